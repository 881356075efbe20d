//! What sequences take of the memory there is: the arithmetic of whether one more can begin.
//!
//! Only what an open sequence needs for going on counts. Points kept to come back to and snapshots can be given up, so
//! they stand in nobody's way.

use super::{SequenceId, Sequences, State};
use crate::blocks::BlockId;
use crate::program::KV_BLOCK;
use crate::{Exec, ExecError};

/// Numbers of pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Blocks of each group, in the order of [`Exec::windows`].
    pub blocks: Vec<usize>,
    /// Copies of the recurrent state; 0 where there is none.
    pub slots: usize,
}

impl Room {
    /// Whether all of it is in `room` beside `taken`.
    pub fn fits(&self, taken: &Self, room: &Self) -> bool {
        let blocks = self.blocks.iter().zip(&taken.blocks).zip(&room.blocks);
        self.slots + taken.slots <= room.slots && blocks.into_iter().all(|((own, taken), room)| own + taken <= *room)
    }

    /// Takes in what another needs.
    pub fn add(&mut self, other: &Self) {
        self.slots += other.slots;
        self.blocks.iter_mut().zip(&other.blocks).for_each(|(own, other)| *own += other);
    }
}

impl<E: Exec> Sequences<E> {
    /// All there is.
    pub fn capacity(&self) -> Room {
        Room { blocks: self.pools.iter().map(|pool| pool.total()).collect(), slots: self.slots.total() }
    }

    /// The most that one sequence of up to so many positions holds at once.
    pub fn needs(&self, positions: usize) -> Room {
        let (all, rows) = (positions.div_ceil(KV_BLOCK), self.exec.limits().rows);
        // What a window's last rows see, and as much before that as a run has rows; it may begin and end inside a block.
        let most = |window: &Option<usize>| window.map_or(all, |w| all.min((w + rows).div_ceil(KV_BLOCK) + 1));
        Room {
            blocks: self.exec.windows().iter().map(most).collect(),
            slots: usize::from(self.exec.has_fixed_states()),
        }
    }

    /// What open sequences hold for going on.
    ///
    /// A block without a window that several share counts once: none of them gives it up. One with a window counts for
    /// each, since whoever goes on leaves it to the others and takes another.
    pub fn taken(&self) -> Room {
        let states: Vec<&State> = self.open.iter().filter_map(|place| place.state.as_ref()).collect();
        let blocks = |group: usize| {
            let held = states.iter().map(|state| state.tables[group].held());
            if self.exec.windows()[group].is_some() {
                return held.map(<[BlockId]>::len).sum();
            }
            let mut seen = vec![false; self.pools[group].total()];
            held.flatten().filter(|block| !std::mem::replace(&mut seen[block.0 as usize], true)).count()
        };
        let mut slots: Vec<_> = states.iter().filter_map(|state| state.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        Room { blocks: (0..self.pools.len()).map(blocks).collect(), slots: slots.len() }
    }

    /// What a sequence lacks beside what it holds to come to so many positions.
    pub fn lacks(&self, sequence: SequenceId, positions: usize) -> Result<Room, ExecError> {
        let state = self.state(sequence)?;
        let mut needs = self.needs(positions);
        let others = || self.open.iter().filter_map(|place| place.state.as_ref()).filter(|s| !std::ptr::eq(*s, state));
        for (group, needed) in needs.blocks.iter_mut().enumerate() {
            let held = state.tables[group].held();
            *needed = needed.saturating_sub(held.len());
            // A block that is half full and another sequence's too must be left before it is written to.
            let partial = held.last().filter(|_| !state.position.is_multiple_of(KV_BLOCK));
            let shared = partial.is_some_and(|block| others().any(|s| s.tables[group].held().last() == Some(block)));
            *needed += usize::from(shared && positions > state.position);
        }
        let own = state.slot.is_some_and(|slot| others().all(|other| other.slot != Some(slot)));
        needs.slots = needs.slots.saturating_sub(usize::from(own));
        Ok(needs)
    }
}
