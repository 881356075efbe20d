//! Reference-counted pieces of a device's memory: blocks of cache, and copies of recurrent state.

use crate::program::KV_BLOCK;

/// A block of [`KV_BLOCK`] positions in the caches of one group: all layers with the same window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

impl BlockId {
    /// The place of a block that was freed because no row to come can see its positions. Nobody reads it.
    pub const HOLE: Self = Self(u32::MAX);
}

/// Where one group's blocks of a sequence are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The window of the group's layers.
    pub window: Option<usize>,
    /// The block of positions `[KV_BLOCK · i, KV_BLOCK · (i + 1))` is `blocks[i]`; holes come first.
    pub blocks: Vec<BlockId>,
}

impl Table {
    /// A table without blocks.
    pub(crate) fn new(window: Option<usize>) -> Self {
        Self { window, blocks: Vec::new() }
    }

    /// How many holes there are.
    pub(crate) fn holes(&self) -> usize {
        self.blocks.partition_point(|b| *b == BlockId::HOLE)
    }

    /// The blocks that are there.
    pub(crate) fn held(&self) -> &[BlockId] {
        &self.blocks[self.holes()..]
    }

    /// The first block that a row at `position` can see, or would be in.
    pub(crate) fn first_seen(&self, position: usize) -> usize {
        self.window.map_or(0, |w| (position + 1).saturating_sub(w) / KV_BLOCK)
    }

    /// Whether a sequence of `position` tokens finds all it can see.
    pub(crate) fn serves(&self, position: usize) -> bool {
        self.holes() <= self.first_seen(position)
    }

    /// The blocks that a sequence of `position` tokens sees, for a group with a window.
    pub(crate) fn seen_at(&self, position: usize) -> Self {
        let blocks = match self.window {
            None => Vec::new(),
            Some(_) => {
                let first = self.first_seen(position);
                let block = |(i, block): (usize, &BlockId)| if i < first { BlockId::HOLE } else { *block };
                self.blocks.iter().enumerate().map(block).collect()
            }
        };
        Self { window: self.window, blocks }
    }
}

/// One copy of every state that does not grow with the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateSlot(pub u32);

/// A number that stands for a piece of memory.
pub(crate) trait Piece: Copy {
    fn new(index: u32) -> Self;
    fn index(self) -> usize;
}

impl Piece for BlockId {
    fn new(index: u32) -> Self {
        Self(index)
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

impl Piece for StateSlot {
    fn new(index: u32) -> Self {
        Self(index)
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Which pieces are held, and by how many.
#[derive(Debug)]
pub(crate) struct Pieces<P> {
    holders: Vec<u32>,
    free: Vec<P>,
}

impl<P: Piece> Pieces<P> {
    pub(crate) fn new(count: usize) -> Self {
        // Popped from the end, so that low numbers are used first and untouched memory stays untouched.
        Self { holders: vec![0; count], free: (0..count as u32).rev().map(P::new).collect() }
    }

    pub(crate) fn total(&self) -> usize {
        self.holders.len()
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn take(&mut self) -> Option<P> {
        let piece = self.free.pop()?;
        self.holders[piece.index()] = 1;
        Some(piece)
    }

    pub(crate) fn hold(&mut self, piece: P) {
        self.holders[piece.index()] += 1;
    }

    pub(crate) fn holders(&self, piece: P) -> usize {
        self.holders[piece.index()] as usize
    }

    pub(crate) fn release(&mut self, piece: P) {
        let holders = &mut self.holders[piece.index()];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(piece);
        }
    }
}
