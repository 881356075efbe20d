//! A program: the steps of one forward pass and everything they refer to.

use crate::step::{Slot, StateId, Step, WeightId};
use model::{Rope, Source};

/// Positions in one block of cached keys and values; blocks are aligned to absolute positions.
///
/// It is also the unit of attention's softmax: each block yields (max, sum, output) from zero, merged in
/// order, so that no bit depends on how rows were batched.
pub const KV_BLOCK: usize = 32;

/// Index of a program among those compiled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramId(pub usize);

/// Which rows of a batch a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// Every row.
    All,
    /// The rows whose outputs are wanted.
    Wanted,
}

/// Shape of an activation buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotSpec {
    /// Values a row.
    pub width: usize,
    /// Rows held.
    pub rows: Rows,
}

/// How a weight is used, which decides how a device stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WeightRole {
    /// A vector, expanded to f32.
    Vector,
    /// A matrix of products; may be a lookup table as well.
    Matrix,
    /// A lookup table only.
    Table,
}

/// One weight of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightUse {
    /// Where the values come from.
    pub source: Source,
    /// Outermost dimension first: `[outputs, inputs]`, or `[1, width]` for a vector.
    pub shape: [usize; 2],
    /// How it is used.
    pub role: WeightRole,
}

/// One layer's cache of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSpec {
    /// Key/value heads.
    pub heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// The layer's window, if it has one.
    pub window: Option<usize>,
}

/// The steps of one forward pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// In order of execution.
    pub steps: Vec<Step>,
    /// Activation buffers.
    pub slots: Vec<SlotSpec>,
    /// Weights, each once.
    pub weights: Vec<WeightUse>,
    /// Caches, in order of layers.
    pub states: Vec<KvSpec>,
    /// Rotary embeddings, each once.
    pub ropes: Vec<Rope>,
    /// Where the logits are when the steps are done, `[wanted rows, vocab]`.
    pub logits: Slot,
    /// Width of a row of logits.
    pub vocab: usize,
}

impl Program {
    /// A weight of the program.
    pub fn weight(&self, id: WeightId) -> &WeightUse {
        &self.weights[id.0 as usize]
    }

    /// A cache of the program.
    pub fn state(&self, id: StateId) -> &KvSpec {
        &self.states[id.0 as usize]
    }

    /// A slot of the program.
    pub fn slot(&self, slot: Slot) -> SlotSpec {
        self.slots[slot.0 as usize]
    }

    /// f32 values of all slots for `rows` rows of which `wanted` give outputs.
    pub fn slot_values(&self, rows: usize, wanted: usize) -> usize {
        let height = |s: &SlotSpec| if s.rows == Rows::All { rows } else { wanted };
        self.slots.iter().map(|s| s.width * height(s)).sum()
    }
}
