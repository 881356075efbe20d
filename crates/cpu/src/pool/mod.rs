//! Persistent threads that run the tasks of one step at a time.
//!
//! The caller takes part. Tasks are claimed from one counter, and a run is over when all *tasks* are done, so a worker that the
//! system has descheduled delays nobody unless it holds a task. Waiting threads spin briefly, then sleep.
//!
//! The pool knows nothing of what a task does; [`Tiles`] splits an output buffer among tasks without overlap.
#![allow(unsafe_code)]

mod default_threads;
mod placement;
mod tiles;

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub use default_threads::{Limits, default_threads};
pub use tiles::{TileMut, Tiles};

use placement::Placement;

/// Polls before a waiting thread sleeps: some tens of microseconds, longer than the gap between two steps.
const SPINS: u32 = 4_000;

type Task<'a> = dyn Fn(usize, usize) + Sync + 'a;

thread_local! {
    /// The pool and worker number whose task this thread is running.
    static RUNNING: Cell<Option<(*const Shared, usize)>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Job {
    task: *const Task<'static>,
    tasks: usize,
}

struct Shared {
    job: UnsafeCell<Option<Job>>,
    /// Tasks not claimed yet.
    unclaimed: AtomicUsize,
    /// Tasks not finished yet.
    unfinished: AtomicUsize,
    stop: AtomicBool,
    /// Workers that sleep or are about to: changed under `sleep` only.
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    /// Whether the caller sleeps until `unfinished` is 0.
    caller_sleeps: AtomicBool,
    finish: Mutex<()>,
    finished: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    spins: u32,
    placement: Placement,
}

// SAFETY: `job` is written only by the caller of `Pool::run` (one at a time, by its lock) while no task is unclaimed or
// unfinished, and read only by a thread that has claimed a task: the claim orders the read after the write, and the next write
// waits until that task is finished. The pointer in it refers to a `Sync` closure that outlives the run.
unsafe impl Sync for Shared {}
// SAFETY: see above; nothing in it belongs to one thread.
unsafe impl Send for Shared {}

/// A fixed number of threads, the caller among them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Workers that can run at once beside the caller: waking more only costs time.
    useful: usize,
    caller: Mutex<()>,
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool of `threads` threads (0 counts as 1): the caller of [`Pool::run`] and `threads - 1` workers. Where the system
    /// refuses more threads, the pool is smaller.
    pub fn new(threads: usize) -> Self {
        let wanted = threads.max(1) - 1;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let shared = Arc::new(Shared {
            job: UnsafeCell::new(None),
            unclaimed: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            caller_sleeps: AtomicBool::new(false),
            finish: Mutex::new(()),
            finished: Condvar::new(),
            panic: Mutex::new(None),
            spins: if threads > cores { SPINS / 20 } else { SPINS },
            placement: Placement::new(threads.max(1)),
        });
        let mut workers = Vec::with_capacity(wanted);
        for number in 1..=wanted {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(format!("turbospark-{number}"));
            match thread.spawn(move || shared.work(number)) {
                Ok(handle) => workers.push(handle),
                Err(_) => break,
            }
        }
        let useful = workers.len().min(cores.saturating_sub(1).max(1));
        Self { shared, workers, useful, caller: Mutex::new(()) }
    }

    /// The number of threads, the caller among them: worker numbers are below it.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task(index, worker)` once for each index below `tasks` and returns when all have finished.
    ///
    /// At most one task runs on a worker number at a time; the caller is worker 0. Runs started from several threads take
    /// turns. A run started inside a task of the same pool is done there and then, by that worker alone.
    ///
    /// # Panics
    /// If a task panics: the other tasks still run, then the first panic goes on in the caller.
    pub fn run(&self, tasks: usize, task: &Task<'_>) {
        let shared = &*self.shared;
        if let Some((pool, worker)) = RUNNING.get()
            && std::ptr::eq(pool, shared)
        {
            (0..tasks).for_each(|index| task(index, worker));
            return;
        }
        if tasks == 0 {
            return;
        }
        let turn = lock(&self.caller);
        // SAFETY: only the lifetime changes. The reference is used by claimed tasks only, and this function does not return or
        // unwind before all tasks have finished.
        let erased = unsafe { std::mem::transmute::<&Task<'_>, &'static Task<'static>>(task) };
        // SAFETY: this thread holds the turn and no task is unclaimed or unfinished, so nobody reads the job now.
        unsafe { *shared.job.get() = Some(Job { task: erased, tasks }) };
        shared.placement.note_caller();
        shared.unfinished.store(tasks, Ordering::Relaxed);
        shared.unclaimed.store(tasks, Ordering::SeqCst);
        self.wake(tasks - 1);
        shared.drain(0);
        shared.wait_until_finished();
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(turn);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Runs `task(index, tile)` once for each tile.
    ///
    /// # Panics
    /// As [`Pool::run`].
    pub fn run_tiles<T: Send>(&self, tiles: Tiles<'_, T>, task: &(dyn Fn(usize, TileMut<'_, T>) + Sync)) {
        let tiles = &tiles;
        self.run(tiles.len(), &|index, _worker| {
            // SAFETY: the pool runs each index once, and `tiles`, which borrows the buffer, is consumed by this run.
            let tile = unsafe { tiles.tile(index) };
            task(index, tile);
        });
    }

    /// Wakes as many sleepers as `tasks` can keep busy beside the workers that are awake.
    fn wake(&self, tasks: usize) {
        let sleepers = self.shared.sleepers.load(Ordering::SeqCst);
        let awake = self.workers.len().saturating_sub(sleepers);
        let wanted = tasks.min(self.useful).saturating_sub(awake).min(sleepers);
        if wanted > 0 {
            let _sleep = lock(&self.shared.sleep);
            for _ in 0..wanted {
                self.shared.wake.notify_one();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        {
            let _sleep = lock(&self.shared.sleep);
            self.shared.wake.notify_all();
        }
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks, so joining cannot fail.
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

impl Shared {
    fn work(&self, number: usize) {
        let mut idle = 0;
        let mut avoided = usize::MAX;
        loop {
            self.placement.step_aside(&mut avoided);
            if self.drain(number) {
                idle = 0;
            } else if self.stop.load(Ordering::Relaxed) {
                return;
            } else if idle < self.spins {
                idle += 1;
                spin_loop();
            } else {
                self.sleep();
                idle = 0;
            }
        }
    }

    /// Sleeps until there is work. A run stores `unclaimed` before it reads `sleepers`, and this does the reverse, so that at
    /// least one of the two sees the other; the lock is held from the check to the wait.
    fn sleep(&self) {
        let mut guard = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.unclaimed.load(Ordering::SeqCst) == 0 && !self.stop.load(Ordering::SeqCst) {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Claims and runs tasks until none is left; whether there was any.
    fn drain(&self, worker: usize) -> bool {
        let mut any = false;
        let mut left = self.unclaimed.load(Ordering::Acquire);
        while left != 0 {
            match self.unclaimed.compare_exchange_weak(left, left - 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.run_claimed(left, worker);
                    any = true;
                    left = self.unclaimed.load(Ordering::Acquire);
                }
                Err(now) => left = now,
            }
        }
        any
    }

    fn run_claimed(&self, left: usize, worker: usize) {
        // SAFETY: this thread has claimed a task, so the job was written before and stays until that task is finished.
        let job = unsafe { (*self.job.get()).expect("a claimed task belongs to a job") };
        // SAFETY: the closure outlives the run, and the run outlives this unfinished task.
        let task = unsafe { &*job.task };
        let outer = RUNNING.replace(Some((self, worker)));
        let result = catch_unwind(AssertUnwindSafe(|| task(job.tasks - left, worker)));
        RUNNING.set(outer);
        if let Err(panic) = result {
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
        if self.unfinished.fetch_sub(1, Ordering::SeqCst) == 1 && self.caller_sleeps.load(Ordering::SeqCst) {
            let _finish = lock(&self.finish);
            self.finished.notify_one();
        }
    }

    fn wait_until_finished(&self) {
        for _ in 0..self.spins {
            if self.unfinished.load(Ordering::Acquire) == 0 {
                return;
            }
            spin_loop();
        }
        let mut guard = lock(&self.finish);
        self.caller_sleeps.store(true, Ordering::SeqCst);
        while self.unfinished.load(Ordering::SeqCst) != 0 {
            guard = self.finished.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_sleeps.store(false, Ordering::SeqCst);
    }
}
