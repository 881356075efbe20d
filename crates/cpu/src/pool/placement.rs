//! Keeps workers off the processor the caller runs on.
//!
//! A thread that wakes others often finds them queued behind itself on its own processor, and short sleeps keep the system's
//! load balancing from ever moving them. So a worker that sees the caller's processor change takes that one out of its own
//! affinity mask. Where threads outnumber processors, or the system has no such masks, nothing is done.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

/// Where the caller was when it last started a run.
#[derive(Debug)]
pub(super) struct Placement {
    allowed: Option<mask::Mask>,
    caller: AtomicUsize,
}

impl Placement {
    /// For a pool of this many threads.
    pub(super) fn new(threads: usize) -> Self {
        let allowed = mask::Mask::of_this_thread().filter(|mask| threads <= mask.len());
        Self { allowed, caller: AtomicUsize::new(usize::MAX) }
    }

    /// Notes the caller's processor.
    pub(super) fn note_caller(&self) {
        if self.allowed.is_some()
            && let Some(processor) = mask::this_processor()
            && processor != self.caller.load(Ordering::Relaxed)
        {
            self.caller.store(processor, Ordering::Relaxed);
        }
    }

    /// Moves this worker off the caller's processor; `avoided` is the one it already keeps off.
    pub(super) fn step_aside(&self, avoided: &mut usize) {
        let caller = self.caller.load(Ordering::Relaxed);
        if caller != *avoided
            && let Some(allowed) = &self.allowed
        {
            *avoided = caller;
            allowed.apply_without(caller);
        }
    }
}

#[cfg(target_os = "linux")]
mod mask {
    #[derive(Clone, Copy)]
    pub(super) struct Mask(libc::cpu_set_t);

    impl std::fmt::Debug for Mask {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "Mask({} processors)", self.len())
        }
    }

    impl Mask {
        pub(super) fn of_this_thread() -> Option<Self> {
            // SAFETY: an all-zero `cpu_set_t` is a valid empty set.
            let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: the set is ours and of the size given; 0 is this thread.
            let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
            (result == 0).then_some(Self(set))
        }

        pub(super) fn len(&self) -> usize {
            // SAFETY: the set was filled by the system.
            usize::try_from(unsafe { libc::CPU_COUNT(&self.0) }).unwrap_or(0)
        }

        /// Makes this mask, without one processor, that of this thread. A refusal leaves the thread where it is.
        pub(super) fn apply_without(&self, processor: usize) {
            let mut set = self.0;
            if processor < 8 * size_of::<libc::cpu_set_t>() {
                // SAFETY: the processor number is inside the set.
                unsafe { libc::CPU_CLR(processor, &mut set) };
            }
            // SAFETY: the set is ours and of the size given; 0 is this thread.
            unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
        }
    }

    pub(super) fn this_processor() -> Option<usize> {
        // SAFETY: takes nothing and has no effect.
        usize::try_from(unsafe { libc::sched_getcpu() }).ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod mask {
    #[derive(Debug)]
    pub(super) struct Mask(());

    impl Mask {
        pub(super) fn of_this_thread() -> Option<Self> {
            None
        }

        pub(super) fn len(&self) -> usize {
            0
        }

        pub(super) fn apply_without(&self, _: usize) {}
    }

    pub(super) fn this_processor() -> Option<usize> {
        None
    }
}

/// The number of processors this thread may use.
pub(super) fn allowed_processors() -> usize {
    let counted = mask::Mask::of_this_thread().map(|mask| mask.len());
    counted.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}
