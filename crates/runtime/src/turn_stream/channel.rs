//! A turn's events from the queue of a request.

use super::{TurnEvent, TurnSplitter};
use crate::RuntimeError;
use crate::scheduler::{Event, RequestId, Stream};
use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// The events of one request to a [`Service`](crate::Service), in order. Dropping it cancels the request.
///
/// Nobody waits for its reader. One who leaves too many events unread ends the request by
/// [`FinishReason::SlowConsumer`](super::FinishReason::SlowConsumer), and still finds everything that was generated.
#[derive(Debug)]
pub struct TurnStream {
    stream: Stream,
    /// `None` after the last event of the request.
    splitter: Option<TurnSplitter>,
    ready: VecDeque<Result<TurnEvent, RuntimeError>>,
}

impl TurnStream {
    /// The events of `stream`, by a splitter that has seen nothing yet.
    pub fn new(stream: Stream, splitter: TurnSplitter) -> Self {
        Self { stream, splitter: Some(splitter), ready: VecDeque::new() }
    }

    /// The request.
    pub fn id(&self) -> RequestId {
        self.stream.id()
    }

    /// Waits for the next event; an error is the last, and `None` follows the last.
    pub fn recv(&mut self) -> Option<Result<TurnEvent, RuntimeError>> {
        self.next(|stream| stream.recv().ok_or(())).ok()
    }

    /// Waits at most so long.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Result<TurnEvent, RuntimeError>, RecvTimeoutError> {
        let end = Instant::now() + timeout;
        self.next(|stream| stream.recv_timeout(end.saturating_duration_since(Instant::now())))
    }

    /// The next event if there is one.
    pub fn try_recv(&mut self) -> Result<Result<TurnEvent, RuntimeError>, TryRecvError> {
        self.next(Stream::try_recv)
    }

    /// Ends the request within one step; what was generated and its end still come.
    pub fn cancel(&self) {
        self.stream.cancel();
    }

    /// Takes events of the request until one of the turn follows.
    fn next<E>(&mut self, event: impl Fn(&Stream) -> Result<Event, E>) -> Result<Result<TurnEvent, RuntimeError>, E> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(ready);
            }
            let event = event(&self.stream)?;
            match (event, self.splitter.take()) {
                (Event::Progress(progress), Some(mut splitter)) => {
                    self.ready.extend(splitter.take(progress).into_iter().map(Ok));
                    self.splitter = Some(splitter);
                }
                (Event::Finished(record), Some(splitter)) => {
                    let (last, end) = splitter.finish(*record);
                    let end = TurnEvent::Finished(Box::new(end));
                    self.ready.extend(last.into_iter().chain([end]).map(Ok));
                }
                (Event::Failed(error), _) => self.ready.push_back(Err(error)),
                (_, None) => {}
            }
        }
    }
}
