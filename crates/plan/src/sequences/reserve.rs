//! What a run needs before it starts: blocks to write to, in every group, and a recurrent state of each feed's own.

use super::{Feed, SequenceId, Sequences};
use crate::blocks::{BlockId, StateSlot};
use crate::program::KV_BLOCK;
use crate::{Exec, ExecError, StateCopy};

/// A feed's change to a block of its own.
struct BlockMove {
    group: usize,
    feed: usize,
    from: BlockId,
}

/// A sequence's change to a copy of its own.
struct SlotMove {
    sequence: SequenceId,
    /// `None`: from nothing, the beginning.
    from: Option<StateSlot>,
    to: StateSlot,
}

impl SlotMove {
    fn copy(&self) -> StateCopy {
        match self.from {
            Some(from) => StateCopy::Slot { from, to: self.to },
            None => StateCopy::Clear { slot: self.to },
        }
    }
}

impl<E: Exec> Sequences<E> {
    /// Gives every feed blocks and a recurrent state of its own to write to; all or none.
    pub(super) fn reserve(&mut self, feeds: &[Feed<'_>]) -> Result<(), ExecError> {
        for feed in feeds {
            self.keep_if_due(feed)?;
        }
        let mut shared = Vec::new();
        for group in 0..self.pools.len() {
            shared.extend(self.room(feeds, group)?);
        }
        let moves = self.slot_moves(feeds)?;
        // Nothing is refused from here on but by the device.
        self.forget_unseen(feeds)?;
        let leave = |m: BlockMove| Some((self.pools[m.group].take()?, m));
        let leaves: Vec<_> = shared.into_iter().filter_map(leave).collect();
        let copies = leaves.iter().map(|(to, m)| StateCopy::Block {
            window: self.exec.windows()[m.group],
            from: m.from,
            to: *to,
        });
        let copies: Vec<StateCopy> = copies.chain(moves.iter().map(SlotMove::copy)).collect();
        if !copies.is_empty()
            && let Err(error) = self.exec.copy_states(&copies)
        {
            leaves.iter().for_each(|(to, m)| self.pools[m.group].release(*to));
            moves.iter().for_each(|m| self.slots.release(m.to));
            return Err(error);
        }
        for (to, m) in leaves {
            if let Some(last) = self.state_mut(feeds[m.feed].sequence)?.tables[m.group].blocks.last_mut() {
                *last = to;
            }
            self.pools[m.group].release(m.from);
        }
        for m in moves {
            self.state_mut(m.sequence)?.slot = Some(m.to);
            m.from.into_iter().for_each(|from| self.slots.release(from));
        }
        for feed in feeds {
            for group in 0..self.pools.len() {
                let missing = self.missing(feed, group)?;
                let fresh: Vec<BlockId> = (0..missing).filter_map(|_| self.pools[group].take()).collect();
                self.state_mut(feed.sequence)?.tables[group].blocks.extend(fresh);
            }
        }
        Ok(())
    }

    /// Makes sure that a group has blocks enough, where kept points can make way for them; returns the blocks to leave.
    fn room(&mut self, feeds: &[Feed<'_>], group: usize) -> Result<Vec<BlockMove>, ExecError> {
        let mut missing = 0;
        for feed in feeds {
            missing += self.missing(feed, group)?;
        }
        loop {
            let shared = self.shared(feeds, group)?;
            let (needed, free) = (shared.len() + missing, self.pools[group].free() + self.freed(feeds, group)?);
            if needed <= free {
                return Ok(shared);
            }
            let window = self.exec.windows()[group];
            if window.is_none() || !self.forget_somewhere() {
                let total = self.pools[group].total();
                return Err(ExecError::StateFull { window, needed, free, total, block: KV_BLOCK });
            }
        }
    }

    /// Blocks that a feed needs beyond those its sequence has.
    fn missing(&self, feed: &Feed<'_>, group: usize) -> Result<usize, ExecError> {
        let state = self.state(feed.sequence)?;
        Ok((state.position + feed.tokens.len()).div_ceil(KV_BLOCK) - state.tables[group].blocks.len())
    }

    /// The feeds whose next token would be written into a block that somebody else can see, with that block. Where
    /// only feeds of this run share a block, the last of them keeps it. A sequence's own kept points end before what is
    /// written, so they do not mind.
    fn shared(&self, feeds: &[Feed<'_>], group: usize) -> Result<Vec<BlockMove>, ExecError> {
        let mut shared: Vec<BlockMove> = Vec::new();
        for (at, feed) in feeds.iter().enumerate() {
            let state = self.state(feed.sequence)?;
            let blocks = &state.tables[group].blocks;
            let partial = !state.position.is_multiple_of(KV_BLOCK);
            if let Some(last) = blocks.last().filter(|_| partial) {
                let leaving = shared.iter().filter(|m| m.from == *last).count();
                let own = state.kept.iter().filter(|k| k.tables[group].blocks.get(blocks.len() - 1) == Some(last));
                if self.pools[group].holders(*last) > leaving + 1 + own.count() {
                    shared.push(BlockMove { group, feed: at, from: *last });
                }
            }
        }
        Ok(shared)
    }

    /// The first block that stays when a feed is done: what its rows see, and as much before that as a run has rows.
    fn first_kept(&self, feed: &Feed<'_>, group: usize) -> Result<usize, ExecError> {
        let state = self.state(feed.sequence)?;
        let (table, end) = (&state.tables[group], state.position + feed.tokens.len());
        Ok(table.first_seen(end.saturating_sub(self.exec.limits().rows)))
    }

    /// Blocks that [`Sequences::forget_unseen`] will free.
    fn freed(&self, feeds: &[Feed<'_>], group: usize) -> Result<usize, ExecError> {
        let mut unseen: Vec<BlockId> = Vec::new();
        for feed in feeds {
            let table = &self.state(feed.sequence)?.tables[group];
            let (from, to) = (table.holes(), self.first_kept(feed, group)?);
            unseen.extend(table.blocks.get(from..to).unwrap_or_default());
        }
        unseen.sort_unstable();
        let last = |same: &&[BlockId]| same.len() == self.pools[group].holders(same[0]);
        Ok(unseen.chunk_by(|a, b| a == b).filter(last).count())
    }

    /// Makes holes of the blocks that no row to come will see and no short rewind needs.
    fn forget_unseen(&mut self, feeds: &[Feed<'_>]) -> Result<(), ExecError> {
        for feed in feeds {
            for group in 0..self.pools.len() {
                let to = self.first_kept(feed, group)?;
                let table = &mut self.state_mut(feed.sequence)?.tables[group];
                let from = table.holes();
                let unseen = table.blocks.get_mut(from..to).unwrap_or_default();
                let unseen: Vec<BlockId> = unseen.iter_mut().map(|b| std::mem::replace(b, BlockId::HOLE)).collect();
                unseen.into_iter().for_each(|block| self.pools[group].release(block));
            }
        }
        Ok(())
    }

    /// Takes a copy of the recurrent state for every feed whose state others hold too; kept points make way. The moves
    /// are still to be made.
    fn slot_moves(&mut self, feeds: &[Feed<'_>]) -> Result<Vec<SlotMove>, ExecError> {
        if !self.exec.has_fixed_states() {
            return Ok(Vec::new());
        }
        let mut leaving = self.leaving(feeds)?;
        while self.slots.free() < leaving.len() {
            if !self.forget_somewhere() {
                return Err(ExecError::StateSlotsFull { total: self.slots.total() });
            }
            leaving = self.leaving(feeds)?;
        }
        let take = |(sequence, from)| Some(SlotMove { sequence, from, to: self.slots.take()? });
        Ok(leaving.into_iter().filter_map(take).collect())
    }

    /// The sequences that may not write to the copy they read, with that copy. Where only feeds of this run share one,
    /// the last of them keeps it.
    fn leaving(&self, feeds: &[Feed<'_>]) -> Result<Vec<(SequenceId, Option<StateSlot>)>, ExecError> {
        let mut leaving: Vec<(SequenceId, Option<StateSlot>)> = Vec::new();
        for feed in feeds {
            let slot = self.state(feed.sequence)?.slot;
            let before = leaving.iter().filter(|(_, left)| *left == slot).count();
            if slot.is_none_or(|slot| self.slots.holders(slot) > before + 1) {
                leaving.push((feed.sequence, slot));
            }
        }
        Ok(leaving)
    }
}
