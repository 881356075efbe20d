//! Memory of compiled programs, known before anything is loaded.

use crate::device::Limits;
use crate::program::{KV_BLOCK, KvSpec, Program};
use std::mem::size_of;

/// The windows of all caches of some programs, each once, `None` first. All layers with the same window share one pool
/// of blocks and one table a sequence.
pub fn windows(programs: &[Program]) -> Vec<Option<usize>> {
    let mut windows: Vec<_> = programs.iter().flat_map(Program::caches).map(|cache| cache.window).collect();
    windows.sort_unstable();
    windows.dedup();
    windows
}

/// The cache of all layers with the same window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBudget {
    /// The window.
    pub window: Option<usize>,
    /// Blocks there are.
    pub blocks: usize,
    /// Bytes of one position in all layers of the group.
    pub position: u64,
    /// Blocks it never needs more of, however long the context.
    most: Option<usize>,
}

impl GroupBudget {
    /// Bytes of one block.
    pub fn block(&self) -> u64 {
        self.position * KV_BLOCK as u64
    }

    /// Bytes where all positions together take `blocks` blocks.
    fn bytes(&self, blocks: u64) -> u64 {
        self.block() * self.most.map_or(blocks, |most| blocks.min(most as u64))
    }
}

/// Memory in bytes, exact before anything is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Weights as the device keeps them.
    pub weights: u64,
    /// All blocks of cache and all copies of recurrent state.
    pub states: u64,
    /// Activation buffers and scratch.
    pub slots: u64,
    /// The part of `states` that is copies of states of fixed size.
    pub fixed: u64,
    /// One more position of context where layers with a window have all the blocks they need.
    pub per_position: u64,
    /// The caches, window by window, those without one first.
    pub groups: Vec<GroupBudget>,
    /// One copy of the states of fixed size.
    pub slot: u64,
}

impl Budget {
    /// The budget of programs whose weights and activations take so much, on a device that needs `position` bytes for
    /// one position of a cache.
    pub fn new(
        programs: &[Program],
        limits: &Limits,
        weights: u64,
        slots: u64,
        position: impl Fn(&KvSpec) -> usize,
    ) -> Self {
        let group = |window: Option<usize>| {
            let caches = programs.iter().flat_map(Program::caches).filter(|cache| cache.window == window);
            GroupBudget {
                window,
                blocks: limits.blocks_of(window),
                position: caches.map(|cache| position(cache) as u64).sum(),
                most: window.map(|w| limits.window_blocks(w)),
            }
        };
        let groups: Vec<_> = windows(programs).into_iter().map(group).collect();
        let slot = programs.iter().map(|p| (p.fixed_values() * size_of::<f32>()) as u64).sum();
        let fixed = slot * limits.state_slots as u64;
        let cache: u64 = groups.iter().map(|g| g.block() * g.blocks as u64).sum();
        let full = groups.iter().filter(|g| g.window.is_none());
        Self {
            weights,
            states: cache + fixed,
            slots,
            fixed,
            per_position: full.map(|g| g.position).sum(),
            groups,
            slot,
        }
    }

    /// Everything together.
    pub fn total(&self) -> u64 {
        self.weights + self.states + self.slots
    }

    /// The largest context, a multiple of [`KV_BLOCK`], whose total stays within `available`; 0 if none.
    pub fn largest_context(&self, available: u64) -> u64 {
        let Some(left) = available.checked_sub(self.weights + self.slots + self.fixed) else { return 0 };
        let fits = |blocks: u64| self.groups.iter().map(|g| g.bytes(blocks)).sum::<u64>() <= left;
        // Positions are 32-bit numbers.
        let (mut low, mut high) = (0, u64::from(u32::MAX) / KV_BLOCK as u64 + 1);
        while low + 1 < high {
            let middle = (low + high) / 2;
            *(if fits(middle) { &mut low } else { &mut high }) = middle;
        }
        low * KV_BLOCK as u64
    }

    /// Bytes of cache that a row at `position` reads.
    pub fn read_at(&self, position: usize) -> u64 {
        let seen = |window: Option<usize>| window.map_or(position + 1, |w| w.min(position + 1)) as u64;
        self.groups.iter().map(|g| g.position * seen(g.window)).sum()
    }
}
