//! A scheduler on a thread of its own.
//!
//! Commands are taken between steps, so a cancelled request is gone within one of them. Events wait in a queue for each
//! request, and nobody waits for a reader: one who leaves too many unread loses the request.

use super::Scheduler;
use super::request::{Delivery, Event, Ids, Outlet, Request, RequestId};
use crate::RuntimeError;
use crate::prefix_cache::PrefixStatus;
use plan::{Exec, Saved};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

enum Command {
    Submit(RequestId, Box<Request>, Outlet),
    Cancel(RequestId),
    Shutdown,
}

/// How a service stands between two steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceStatus {
    /// Requests with a sequence.
    pub running: usize,
    /// Requests that wait for one.
    pub waiting: usize,
    /// Blocks of cache that nobody holds.
    pub free_blocks: usize,
    /// Steps so far.
    pub steps: u64,
    /// What is kept of earlier prompts and answers.
    pub prefixes: PrefixStatus,
}

/// A scheduler on a thread of its own; dropping it does what [`Service::shutdown`] does.
#[derive(Debug)]
pub struct Service {
    commands: Sender<Command>,
    ids: Ids,
    unread: usize,
    status: Arc<Mutex<ServiceStatus>>,
    thread: Option<JoinHandle<Result<Option<Saved>, RuntimeError>>>,
}

impl Service {
    /// Starts the thread. A request whose reader leaves more than `unread` events in its queue is ended.
    pub fn start<E: Exec + Send + 'static>(scheduler: Scheduler<E>, unread: usize) -> Self {
        let (commands, inbox) = channel();
        let ids = scheduler.ids.clone();
        let status = Arc::new(Mutex::new(status_of(&scheduler, 0)));
        let shared = Arc::clone(&status);
        let thread = std::thread::spawn(move || serve(scheduler, &inbox, &shared));
        Self { commands, ids, unread, status, thread: Some(thread) }
    }

    /// Hands a request over; what is wrong with it arrives as [`Event::Failed`].
    pub fn submit(&self, request: Request) -> Stream {
        let (sender, events) = channel();
        let unread = Arc::new(AtomicUsize::new(0));
        let (counter, most) = (Arc::clone(&unread), self.unread);
        let sink = move |event: Event| {
            let full = counter.fetch_add(1, Ordering::Relaxed) >= most && !event.is_last();
            match () {
                () if full => Delivery::Full,
                () if sender.send(event).is_err() => Delivery::Gone,
                () => Delivery::Taken,
            }
        };
        let id = self.ids.next();
        // A thread that is gone drops the sender, which ends the stream.
        let _ = self.commands.send(Command::Submit(id, Box::new(request), Outlet::new(Box::new(sink))));
        Stream { id, events, unread, commands: self.commands.clone() }
    }

    /// How it stands.
    pub fn status(&self) -> ServiceStatus {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels everything, saves what is kept for later prompts where that was asked for, and waits for the thread.
    ///
    /// # Errors
    /// If what is kept could not be saved; every request has ended all the same.
    pub fn shutdown(mut self) -> Result<Option<Saved>, RuntimeError> {
        self.stop()
    }

    fn stop(&mut self) -> Result<Option<Saved>, RuntimeError> {
        let _ = self.commands.send(Command::Shutdown);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(saved)) => saved,
            Some(Err(panic)) if !std::thread::panicking() => std::panic::resume_unwind(panic),
            _ => Ok(None),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Whoever wants to know calls `shutdown`.
        let _ = self.stop();
    }
}

/// A request's events. Dropping it cancels the request.
#[derive(Debug)]
pub struct Stream {
    id: RequestId,
    events: Receiver<Event>,
    unread: Arc<AtomicUsize>,
    commands: Sender<Command>,
}

impl Stream {
    /// The request.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Waits for the next event; `None` after the last one.
    pub fn recv(&self) -> Option<Event> {
        self.events.recv().ok().inspect(|_| self.taken())
    }

    /// Waits at most so long.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Event, RecvTimeoutError> {
        self.events.recv_timeout(timeout).inspect(|_| self.taken())
    }

    /// The next event if there is one.
    pub fn try_recv(&self) -> Result<Event, TryRecvError> {
        self.events.try_recv().inspect(|_| self.taken())
    }

    /// Ends the request within one step; its record still comes.
    pub fn cancel(&self) {
        let _ = self.commands.send(Command::Cancel(self.id));
    }

    fn taken(&self) {
        self.unread.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.cancel();
    }
}

fn serve<E: Exec>(
    mut scheduler: Scheduler<E>,
    inbox: &Receiver<Command>,
    status: &Mutex<ServiceStatus>,
) -> Result<Option<Saved>, RuntimeError> {
    let mut steps = 0;
    loop {
        // With nothing to do, wait for a command; else take those that are there.
        let mut next =
            if scheduler.is_idle() { inbox.recv().map_err(|_| TryRecvError::Disconnected) } else { inbox.try_recv() };
        loop {
            match next {
                Ok(Command::Submit(id, request, outlet)) => scheduler.take(id, *request, outlet),
                Ok(Command::Cancel(id)) => scheduler.cancel(id),
                Ok(Command::Shutdown) | Err(TryRecvError::Disconnected) => {
                    scheduler.cancel_all();
                    return scheduler.save_prefixes();
                }
                Err(TryRecvError::Empty) => break,
            }
            next = inbox.try_recv();
        }
        steps += u64::from(scheduler.step());
        *status.lock().unwrap_or_else(PoisonError::into_inner) = status_of(&scheduler, steps);
    }
}

fn status_of<E: Exec>(scheduler: &Scheduler<E>, steps: u64) -> ServiceStatus {
    ServiceStatus {
        running: scheduler.running(),
        waiting: scheduler.waiting(),
        free_blocks: scheduler.sequences().free_blocks(),
        steps,
        prefixes: scheduler.prefix_status(),
    }
}

impl<E: Exec> Scheduler<E> {
    /// Takes a request that already has an id and a reader, who hears of a refusal.
    fn take(&mut self, id: RequestId, request: Request, outlet: Outlet) {
        let checked: Result<usize, RuntimeError> = self.check(&request.prompt, &request.config);
        match checked {
            Ok(budget) => self.enqueue(id, request, budget, outlet),
            Err(error) => outlet.last(Event::Failed(error)),
        }
    }
}
