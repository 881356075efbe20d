//! Threads that read: several at once, so that a disk has enough to do and nobody computes meanwhile for waiting.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use weights::WeightsError;
use weights::io::{FileRange, Pages, ReadAt, read};

/// Reads in flight at most. A disk's bandwidth takes several; more only wait in its queue.
const THREADS: usize = 8;

/// What one reader is to do.
pub(crate) struct Job {
    pub(crate) file: Arc<dyn ReadAt>,
    pub(crate) range: FileRange,
    pub(crate) pages: Pages,
    /// Whose it is.
    pub(crate) expert: usize,
    /// Which of the expert's reads.
    pub(crate) read: usize,
}

/// What came of it.
pub(crate) struct Done {
    pub(crate) expert: usize,
    pub(crate) read: usize,
    pub(crate) pages: Pages,
    /// Where the stretch begins in the pages.
    pub(crate) result: Result<usize, WeightsError>,
}

/// The threads.
pub(crate) struct Readers {
    jobs: Option<Sender<Job>>,
    /// Used by one thread at a time; the lock is for the type's sake.
    done: Mutex<Receiver<Done>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts them.
    ///
    /// # Errors
    /// If the system gives no thread at all.
    pub(crate) fn new() -> io::Result<Self> {
        let (jobs, queue) = channel::<Job>();
        let (sender, done) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        for number in 0..THREADS {
            let (queue, sender) = (Arc::clone(&queue), sender.clone());
            let thread = std::thread::Builder::new().name(format!("turbospark-read-{number}"));
            match thread.spawn(move || work(&queue, &sender)) {
                Ok(handle) => threads.push(handle),
                Err(error) if threads.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(Self { jobs: Some(jobs), done: Mutex::new(done), threads })
    }

    /// Hands a read over.
    pub(crate) fn start(&self, job: Job) {
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job));
        debug_assert!(matches!(sent, Some(Ok(()))), "readers live as long as their queue");
    }

    /// Waits for the next read to be over.
    pub(crate) fn wait(&self) -> Done {
        match self.finished().recv() {
            Ok(done) => done,
            Err(_) => unreachable!("readers live as long as their queue"),
        }
    }

    fn finished(&self) -> MutexGuard<'_, Receiver<Done>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A read that is over, if there is one.
    pub(crate) fn poll(&self) -> Option<Done> {
        self.finished().try_recv().ok()
    }
}

fn work(queue: &Mutex<Receiver<Job>>, done: &Sender<Done>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { file, range, mut pages, expert, read: number }) = job else { return };
        let result = read(&*file, &range, &mut pages);
        if done.send(Done { expert, read: number, pages, result }).is_err() {
            return;
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A reader that panicked has nothing left to say.
            drop(thread.join());
        }
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} readers", self.threads.len())
    }
}
