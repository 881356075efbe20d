//! Recurrent state: which copy a sequence reads and writes, and which earlier ones are kept to come back to.
//!
//! A copy with several holders is never written: whoever goes on from it takes one of its own. Keeping the present
//! state is therefore to hold its copy once more. States are kept where a feed of several tokens begins or ends, and
//! every so often in between; when there are too many, the one goes whose loss leaves the smallest gap.

use super::{Feed, SequenceId, Sequences, State};
use crate::blocks::StateSlot;
use crate::{Exec, ExecError, StateCopy};

/// States kept for one sequence.
const KEPT: usize = 4;

/// Positions after which another one is kept even when tokens come one by one.
const KEEP_EVERY: usize = 64;

/// A sequence's change to a copy of its own.
pub(super) struct SlotMove {
    pub(super) sequence: SequenceId,
    /// `None`: from nothing, the beginning.
    pub(super) from: Option<StateSlot>,
    pub(super) to: StateSlot,
}

impl SlotMove {
    pub(super) fn copy(&self) -> StateCopy {
        match self.from {
            Some(from) => StateCopy::Slot { from, to: self.to },
            None => StateCopy::Clear { slot: self.to },
        }
    }
}

impl<E: Exec> Sequences<E> {
    /// Puts a sequence back to the last kept state not after `to`, or to the beginning, if its state is recurrent.
    pub(super) fn rewind_recurrent(&mut self, state: &mut State, to: usize) {
        if to >= state.position || !self.exec.has_fixed_states() {
            return;
        }
        let later = state.kept.iter().position(|(position, _)| *position > to).unwrap_or(state.kept.len());
        let dropped: Vec<_> = state.kept.drain(later..).map(|(_, slot)| slot).chain(state.slot.take()).collect();
        state.position = state.kept.last().map_or(0, |(position, _)| *position);
        state.slot = state.kept.last().map(|(_, slot)| *slot);
        state.slot.into_iter().for_each(|s| self.slots.hold(s));
        dropped.into_iter().for_each(|s| self.slots.release(s));
    }

    /// Keeps present states where that is due, and takes a copy for every feed whose state others hold too. The
    /// moves are still to be made.
    pub(super) fn slot_moves(&mut self, feeds: &[Feed<'_>]) -> Result<Vec<SlotMove>, ExecError> {
        if !self.exec.has_fixed_states() {
            return Ok(Vec::new());
        }
        for feed in feeds {
            self.keep_if_due(feed)?;
        }
        let mut leaving = self.leaving(feeds)?;
        while self.slots.free() < leaving.len() {
            self.forget_somewhere()?;
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

    fn keep_if_due(&mut self, feed: &Feed<'_>) -> Result<(), ExecError> {
        let state = self.state(feed.sequence)?;
        let (position, last) = (state.position, state.kept.last().map_or(0, |(position, _)| *position));
        let due = feed.tokens.len() > 1 || state.after_many || position >= last + KEEP_EVERY;
        let Some(slot) = state.slot.filter(|_| due && position > last) else {
            return Ok(());
        };
        self.slots.hold(slot);
        let kept = &mut self.state_mut(feed.sequence)?.kept;
        kept.push((position, slot));
        if kept.len() > KEPT {
            self.forget_one(feed.sequence)?;
        }
        Ok(())
    }

    /// Gives up a kept state of the sequence that has most.
    fn forget_somewhere(&mut self) -> Result<(), ExecError> {
        let kept = |at: &usize| self.open[*at].as_ref().map_or(0, |state| state.kept.len());
        match (0..self.open.len()).max_by_key(kept).filter(|at| kept(at) > 0) {
            Some(at) => self.forget_one(SequenceId(at as u32)),
            None => Err(ExecError::StateSlotsFull { total: self.slots.total() }),
        }
    }

    /// Gives up the kept state whose loss leaves the smallest gap, the newest last.
    fn forget_one(&mut self, sequence: SequenceId) -> Result<(), ExecError> {
        let kept = &mut self.state_mut(sequence)?.kept;
        let gap = |at: &usize| {
            let before = at.checked_sub(1).map_or(0, |b| kept[b].0);
            kept.get(at + 1).map_or(usize::MAX, |after| after.0 - before)
        };
        if let Some(at) = (0..kept.len()).min_by_key(gap) {
            let (_, slot) = kept.remove(at);
            self.slots.release(slot);
        }
        Ok(())
    }
}
