//! Ways back: points of a sequence's past that are kept because they cannot be had from its present.
//!
//! A point holds a copy of the recurrent state, if the model has any, and what each window saw. Points are kept where a
//! feed of several tokens begins or ends, and every so often in between; when there are too many, the one goes whose
//! loss leaves the smallest gap.
//!
//! A copy of recurrent state with several holders is never written: whoever goes on from it takes one of its own.
//! Keeping the present state is therefore to hold its copy once more.

use super::{Feed, Sequences, State};
use crate::blocks::{StateSlot, Table};
use crate::device::KEPT;
use crate::program::KV_BLOCK;
use crate::{Exec, ExecError};

/// Positions after which another point is kept even when tokens come one by one.
const KEEP_EVERY: usize = 64;

/// A point to come back to.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) position: usize,
    /// The recurrent state, if the model has any.
    pub(super) slot: Option<StateSlot>,
    /// What the windows saw, a table a group; nothing of layers that see everything.
    pub(super) tables: Vec<Table>,
}

/// How a position can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By forgetting what comes after.
    Forget,
    /// By going back to a kept point.
    Kept(usize),
    /// By beginning again.
    Begin,
}

impl<E: Exec> Sequences<E> {
    /// The largest restorable position not above `to`, and how to get there.
    pub(super) fn way_back(&self, state: &State, to: usize) -> (usize, Way) {
        if to >= state.position {
            return (state.position, Way::Forget);
        }
        if !self.exec.has_fixed_states() && state.tables.iter().all(|table| table.serves(to)) {
            return (to, Way::Forget);
        }
        match state.kept.iter().rposition(|kept| kept.position <= to) {
            Some(at) => (state.kept[at].position, Way::Kept(at)),
            None => (0, Way::Begin),
        }
    }

    pub(super) fn rewind_state(&mut self, state: &mut State, to: usize) {
        let (reached, way) = self.way_back(state, to);
        if reached == state.position {
            return;
        }
        let later = state.kept.partition_point(|kept| kept.position <= reached);
        for kept in state.kept.split_off(later) {
            self.drop_kept(kept);
        }
        let used = reached.div_ceil(KV_BLOCK);
        self.give_back(state.tables.iter_mut().map(|table| table.blocks.split_off(used)).collect());
        if way != Way::Forget {
            let kept = if let Way::Kept(at) = way { Some(state.kept[at].clone()) } else { None };
            let seen = kept.as_ref().map_or(&[][..], |kept| &kept.tables);
            self.hold_tables(seen);
            for (group, table) in state.tables.iter_mut().enumerate().filter(|(_, table)| table.window.is_some()) {
                let now = seen.get(group).cloned().unwrap_or_else(|| Table::new(table.window));
                let before = std::mem::replace(table, now);
                before.held().iter().for_each(|block| self.pools[group].release(*block));
            }
            let slot = kept.and_then(|kept| kept.slot);
            slot.into_iter().for_each(|slot| self.slots.hold(slot));
            std::mem::replace(&mut state.slot, slot).into_iter().for_each(|slot| self.slots.release(slot));
        }
        state.position = reached;
    }

    /// Keeps the present point of a feed's sequence if that is due, and there is something that cannot be had later.
    pub(super) fn keep_if_due(&mut self, feed: &Feed<'_>) -> Result<(), ExecError> {
        let state = self.state(feed.sequence)?;
        let (position, last) = (state.position, state.kept.last().map_or(0, |kept| kept.position));
        let moves_on = self.exec.has_fixed_states() || state.tables.iter().any(|table| table.window.is_some());
        let due = feed.tokens.len() > 1 || state.after_many || position >= last + KEEP_EVERY;
        if !moves_on || !due || position <= last {
            return Ok(());
        }
        let tables = state.tables.iter().map(|table| table.seen_at(position)).collect();
        let kept = Kept { position, slot: state.slot, tables };
        kept.slot.into_iter().for_each(|slot| self.slots.hold(slot));
        self.hold_tables(&kept.tables);
        let all = &mut self.state_mut(feed.sequence)?.kept;
        all.push(kept);
        if all.len() > KEPT {
            self.forget_one(feed.sequence.place as usize);
        }
        Ok(())
    }

    /// Gives up a kept point of the sequence that has most; false if there is none.
    pub(super) fn forget_somewhere(&mut self) -> bool {
        let kept = |place: &usize| self.open[*place].state.as_ref().map_or(0, |state| state.kept.len());
        match (0..self.open.len()).max_by_key(kept).filter(|place| kept(place) > 0) {
            Some(place) => {
                self.forget_one(place);
                true
            }
            None => false,
        }
    }

    /// Gives up the kept point whose loss leaves the smallest gap, the newest last.
    fn forget_one(&mut self, place: usize) {
        let Some(state) = self.open[place].state.as_mut() else { return };
        let kept = &mut state.kept;
        let gap = |at: &usize| {
            let before = at.checked_sub(1).map_or(0, |b| kept[b].position);
            kept.get(at + 1).map_or(usize::MAX, |after| after.position - before)
        };
        if let Some(at) = (0..kept.len()).min_by_key(gap) {
            let kept = kept.remove(at);
            self.drop_kept(kept);
        }
    }

    fn drop_kept(&mut self, kept: Kept) {
        kept.slot.into_iter().for_each(|slot| self.slots.release(slot));
        self.drop_tables(&kept.tables);
    }
}
