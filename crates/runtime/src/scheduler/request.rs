//! What is asked of a scheduler and what it answers.

use crate::config::GenerationConfig;
use crate::raw_completion::{Progress, RawDecodeResult, StopReason};
use crate::{ProducerError, RuntimeError};
use foundation::TokenId;
use plan::ExecError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A request of one scheduler; no two are alike, and a later one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// Gives out the ids of one scheduler's requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Ids(Arc<AtomicU64>);

impl Ids {
    pub(super) fn next(&self) -> RequestId {
        RequestId(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A prompt and what to do with it.
#[derive(Clone, Debug)]
pub struct Request {
    /// At least one token.
    pub prompt: Vec<TokenId>,
    /// How tokens are chosen and when the answer ends.
    pub config: GenerationConfig,
}

/// What happens to a request, in order. The last event is `Finished` or `Failed`.
#[derive(Debug)]
pub enum Event {
    /// The prompt is being read, or the answer grows.
    Progress(Progress),
    /// The record of the answer, also of a cancelled one.
    Finished(Box<RawDecodeResult>),
    /// The request is lost; others go on.
    Failed(RuntimeError),
}

impl Event {
    /// Whether nothing follows.
    pub fn is_last(&self) -> bool {
        !matches!(self, Self::Progress(_))
    }
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Somebody has it, or will.
    Taken,
    /// Nobody listens any more: the request ends as cancelled.
    Gone,
    /// Too many events are unread: the request ends by [`StopReason::SlowConsumer`]. The last event comes all the same.
    Full,
}

/// Takes a request's events; must not wait.
pub(super) type Sink = Box<dyn FnMut(Event) -> Delivery + Send>;

/// A sink that remembers whether anybody still wants what it delivers.
pub(super) struct Outlet {
    sink: Sink,
    refused: Option<StopReason>,
}

impl Outlet {
    pub(super) fn new(sink: Sink) -> Self {
        Self { sink, refused: None }
    }

    /// Why the answer should end, if its reader is gone or too slow.
    pub(super) fn refused(&self) -> Option<StopReason> {
        self.refused
    }

    pub(super) fn progress(&mut self, progress: Progress) {
        if self.refused.is_none() {
            self.refused = match (self.sink)(Event::Progress(progress)) {
                Delivery::Taken => None,
                Delivery::Gone => Some(StopReason::Cancelled),
                Delivery::Full => Some(StopReason::SlowConsumer),
            };
        }
    }

    pub(super) fn last(mut self, event: Event) {
        (self.sink)(event);
    }
}

/// A fault of the device as the end of a request.
pub(super) fn failure(error: ExecError) -> RuntimeError {
    ProducerError::from(error).into()
}
