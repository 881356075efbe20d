//! What a caller decides about a pull, and what it is told during one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::HubError;

/// How a pull is done.
#[derive(Clone, Debug)]
pub struct PullOptions {
    /// The Python to run pip with; `None` looks for one on the search path.
    pub python: Option<PathBuf>,
    /// Set from another thread or a signal handler to stop the pull within a second.
    pub cancel: Arc<AtomicBool>,
    /// Waits before each further attempt; one more attempt than waits is made.
    pub backoff: Vec<Duration>,
    /// How often progress is looked at.
    pub poll: Duration,
    /// Room to assume on the disk instead of asking the system.
    pub available_bytes: Option<u64>,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            python: None,
            cancel: Arc::default(),
            backoff: [1, 2, 4].map(Duration::from_secs).to_vec(),
            poll: Duration::from_millis(100),
            available_bytes: None,
        }
    }
}

/// What happens during a pull, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Another process is pulling the same model; this one waits for it.
    Waiting {
        /// The lock waited for.
        lock: PathBuf,
    },
    /// A transfer begins.
    Started {
        /// What is fetched.
        what: String,
        /// Bytes to fetch, where known.
        total: Option<u64>,
    },
    /// Bytes fetched so far; never less than before within one transfer.
    Bytes {
        /// Fetched or already present.
        done: u64,
        /// Bytes to fetch, where known.
        total: Option<u64>,
    },
    /// An attempt failed and another one follows.
    Retry {
        /// The attempt that follows, from 2.
        attempt: u32,
        /// Attempts made at most.
        of: u32,
        /// Time until it.
        wait: Duration,
        /// What went wrong.
        why: String,
    },
    /// The bytes are there and their digest is computed.
    Verifying,
    /// The model is installed.
    Done,
}

/// The caller's sink for [`Event`]s.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(Event);

impl PullOptions {
    /// An error if the caller asked to stop.
    pub(crate) fn check_cancelled(&self) -> Result<(), HubError> {
        if self.cancel.load(Ordering::Relaxed) { Err(HubError::Cancelled) } else { Ok(()) }
    }

    /// Sleeps, looking at the cancel flag.
    pub(crate) fn pause(&self, time: Duration) -> Result<(), HubError> {
        let end = Instant::now() + time;
        loop {
            self.check_cancelled()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// Runs `attempt` until it succeeds, fails for good, or the waits are used up.
    pub(crate) fn retry<T>(
        &self,
        sink: Sink<'_>,
        mut attempt: impl FnMut(u32, Sink<'_>) -> Result<T, Failure>,
    ) -> Result<T, HubError> {
        let of = self.backoff.len() as u32 + 1;
        let mut number = 1;
        loop {
            self.check_cancelled()?;
            match attempt(number, sink) {
                Ok(value) => return Ok(value),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing(error)) => {
                    let Some(&wait) = self.backoff.get(number as usize - 1) else {
                        return Err(error);
                    };
                    number += 1;
                    sink(Event::Retry { attempt: number, of, wait, why: error.to_string() });
                    self.pause(wait)?;
                }
            }
        }
    }
}

/// Whether another attempt may help.
pub(crate) enum Failure {
    /// It may.
    Passing(HubError),
    /// It cannot.
    Final(HubError),
}

impl From<HubError> for Failure {
    fn from(error: HubError) -> Self {
        Self::Final(error)
    }
}
