//! Reference-counted blocks of cache.

/// A block of [`crate::KV_BLOCK`] positions in every layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// Which blocks are held, and by how many.
#[derive(Debug)]
pub(crate) struct Blocks {
    holders: Vec<u32>,
    free: Vec<BlockId>,
}

impl Blocks {
    pub(crate) fn new(count: usize) -> Self {
        // Popped from the end, so that low numbers are used first and untouched memory stays untouched.
        Self { holders: vec![0; count], free: (0..count as u32).rev().map(BlockId).collect() }
    }

    pub(crate) fn total(&self) -> usize {
        self.holders.len()
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn take(&mut self) -> Option<BlockId> {
        let block = self.free.pop()?;
        self.holders[block.0 as usize] = 1;
        Some(block)
    }

    pub(crate) fn hold(&mut self, block: BlockId) {
        self.holders[block.0 as usize] += 1;
    }

    pub(crate) fn holders(&self, block: BlockId) -> usize {
        self.holders[block.0 as usize] as usize
    }

    pub(crate) fn release(&mut self, block: BlockId) {
        let holders = &mut self.holders[block.0 as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(block);
        }
    }
}
