//! What sequences take of a device's memory.

use super::{Held, SequenceId, Sequences};
use crate::budget::Budget;
use crate::{Exec, ExecError};

impl<E: Exec> Sequences<E> {
    /// Bytes of the blocks and copies of recurrent state that these sequences hold, their ways back included and shared
    /// pieces counted once, on a device that the budget describes.
    pub fn bytes(&self, sequences: &[SequenceId], budget: &Budget) -> Result<u64, ExecError> {
        let mut all = Held::default();
        for sequence in sequences {
            let held = self.state(*sequence)?.held();
            all.blocks.extend(held.blocks);
            all.slots.extend(held.slots);
        }
        let all = all.each_once();
        let blocks: u64 = all.blocks.iter().map(|(group, _)| budget.groups[*group].block()).sum();
        Ok(blocks + all.slots.len() as u64 * budget.slot)
    }
}
