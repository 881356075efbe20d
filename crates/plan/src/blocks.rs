//! Reference-counted pieces of a device's memory: blocks of cache, and copies of recurrent state.

/// A block of [`crate::KV_BLOCK`] positions in every layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

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
