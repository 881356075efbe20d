//! Snapshots in terms of numbered pieces, for what keeps them outside a device.

use super::{Sequences, Snapshot, State};
use crate::blocks::{BlockId, StateSlot, Table};
use crate::{Exec, StatePiece};

/// What a snapshot is made of, but for points kept on the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) position: usize,
    /// One a group.
    pub(crate) tables: Vec<Vec<BlockId>>,
    pub(crate) slot: Option<StateSlot>,
}

impl Snapshot {
    pub(crate) fn stored(&self) -> Stored {
        let tables = self.state.tables.iter().map(|table| table.blocks.clone()).collect();
        Stored { position: self.state.position, tables, slot: self.state.slot }
    }
}

impl<E: Exec> Sequences<E> {
    /// A free block of a group, filled; `None` if there is none or the device does not take the bytes.
    pub(crate) fn load_block(&mut self, group: usize, from: &[u8]) -> Option<BlockId> {
        let block = self.pools[group].take()?;
        let piece = StatePiece::Block { window: self.exec.windows()[group], block };
        if self.exec.load_state(piece, from) {
            return Some(block);
        }
        self.pools[group].release(block);
        None
    }

    /// A free copy of the recurrent state, filled.
    pub(crate) fn load_slot(&mut self, from: &[u8]) -> Option<StateSlot> {
        let slot = self.slots.take()?;
        if self.exec.load_state(StatePiece::Slot(slot), from) {
            return Some(slot);
        }
        self.slots.release(slot);
        None
    }

    /// Gives back what was loaded; snapshots made of it hold it still.
    pub(crate) fn unload(
        &mut self,
        blocks: impl Iterator<Item = (usize, BlockId)>,
        slots: impl Iterator<Item = StateSlot>,
    ) {
        blocks.for_each(|(group, block)| self.pools[group].release(block));
        slots.for_each(|slot| self.slots.release(slot));
    }

    /// A snapshot of pieces that are held already.
    pub(crate) fn adopt(&mut self, stored: Stored) -> Snapshot {
        let windows = self.exec.windows().iter().copied();
        let tables = windows.zip(stored.tables).map(|(window, blocks)| Table { window, blocks }).collect();
        let state = State { tables, position: stored.position, slot: stored.slot, ..State::default() };
        self.hold(&state);
        Snapshot { state }
    }
}
