//! Host memory for states that do not grow with the sequence: some copies of one layer's, side by side.

use crate::StateCopy;
use crate::blocks::StateSlot;

/// Copies of one layer's state of fixed size, for devices that keep it in host memory.
#[derive(Debug)]
pub struct FixedStates {
    len: usize,
    values: Vec<f32>,
}

impl FixedStates {
    /// `copies` copies of `len` values, all zero.
    pub fn new(len: usize, copies: usize) -> Self {
        Self { len, values: vec![0.0; len * copies] }
    }

    /// Bytes allocated.
    pub fn allocated(&self) -> usize {
        size_of_val(self.values.as_slice())
    }

    /// One copy; a state without values has no copies to tell apart.
    ///
    /// # Panics
    /// If there are values but no slot.
    pub fn slot(&mut self, slot: Option<StateSlot>) -> &mut [f32] {
        match slot {
            _ if self.len == 0 => &mut [],
            Some(slot) => &mut self.values[slot.0 as usize * self.len..][..self.len],
            None => unreachable!("a program with fixed states is run with a slot for each sequence"),
        }
    }

    /// The bytes of one copy.
    pub fn bytes(&self, slot: StateSlot) -> &[u8] {
        bytemuck::cast_slice(&self.values[slot.0 as usize * self.len..][..self.len])
    }

    /// The bytes of one copy, to be filled.
    pub fn bytes_mut(&mut self, slot: StateSlot) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.values[slot.0 as usize * self.len..][..self.len])
    }

    /// Does what the copy says about slots; blocks of cache are no concern of it.
    pub fn copy(&mut self, copy: StateCopy) {
        match copy {
            StateCopy::Slot { from, to } => {
                let from = from.0 as usize * self.len;
                self.values.copy_within(from..from + self.len, to.0 as usize * self.len);
            }
            StateCopy::Clear { slot } => self.values[slot.0 as usize * self.len..][..self.len].fill(0.0),
            StateCopy::Block { .. } => {}
        }
    }
}
