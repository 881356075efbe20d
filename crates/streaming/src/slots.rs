//! Which experts of a layer stay in memory: those used most, lately.

use crate::Held;
use std::sync::Arc;

/// Rows after which a use counts half.
const HALF_LIFE: u64 = 512;

/// The experts of one layer that are in memory, and how often each was used.
#[derive(Debug)]
pub(crate) struct Slots {
    held: Vec<Option<Arc<Held>>>,
    uses: Vec<u64>,
    /// When each was used last.
    last: Vec<u64>,
    clock: u64,
    rows: u64,
    /// Experts that may be held.
    pub(crate) share: usize,
    /// Reads since shares were last compared.
    pub(crate) misses: u64,
}

impl Slots {
    pub(crate) fn new(experts: usize, share: usize) -> Self {
        let held = (0..experts).map(|_| None).collect();
        Self { held, uses: vec![0; experts], last: vec![0; experts], clock: 0, rows: 0, share, misses: 0 }
    }

    /// A run of `rows` rows begins.
    pub(crate) fn begin(&mut self, rows: u64) {
        self.clock += 1;
        self.rows += rows;
        if self.rows >= HALF_LIFE {
            self.rows = 0;
            self.uses.iter_mut().for_each(|uses| *uses /= 2);
        }
    }

    /// An expert is used by some of them; it, if it is held.
    pub(crate) fn uses(&mut self, expert: usize, rows: usize) -> Option<Arc<Held>> {
        self.uses[expert] += rows as u64;
        self.last[expert] = self.clock;
        self.held[expert].clone()
    }

    pub(crate) fn holds(&self, expert: usize) -> bool {
        self.held[expert].is_some()
    }

    fn count(&self) -> usize {
        self.held.iter().flatten().count()
    }

    /// Keeps an expert if there is room or it is used at least as much as one that is not in use just now; returns what
    /// has no place then.
    pub(crate) fn offer(&mut self, expert: usize, arrived: Arc<Held>) -> Option<Arc<Held>> {
        if self.held[expert].is_some() {
            return Some(arrived);
        }
        if self.count() < self.share {
            self.held[expert] = Some(arrived);
            return None;
        }
        match self.least_used() {
            Some(victim) if self.uses[victim] <= self.uses[expert] => {
                self.held[expert] = Some(arrived);
                self.held[victim].take()
            }
            _ => Some(arrived),
        }
    }

    /// Gives up an expert that is beyond the share and not in use.
    pub(crate) fn give_up(&mut self) -> Option<Arc<Held>> {
        if self.count() <= self.share {
            return None;
        }
        let victim = self.least_used()?;
        self.held[victim].take()
    }

    /// Of the experts nobody uses just now the one used least, and longest ago.
    fn least_used(&self) -> Option<usize> {
        let free = |expert: &usize| self.held[*expert].as_ref().is_some_and(|held| Arc::strong_count(held) == 1);
        (0..self.held.len()).filter(free).min_by_key(|e| (self.uses[*e], self.last[*e]))
    }
}
