//! A program: the steps of one forward pass and everything they refer to.

use crate::PlanError;
use crate::experts::Residency;
use crate::kv::{KvPlan, KvType, KvTypes};
use crate::step::{Place, Slot, StateId, Step, WeightId};
use model::{Rope, Source};
use weights::DType;

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
    /// A matrix for each of several experts, one above the other.
    Experts(usize),
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
    /// The type its values are rounded to when it is loaded, if they are.
    pub to: Option<DType>,
    /// Where experts are kept.
    pub residency: Residency,
}

/// What a program remembers of a sequence between runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateSpec {
    /// Keys and values of every position, in blocks.
    Kv(KvSpec),
    /// The state of a recurrence.
    Recurrent {
        /// f32 values.
        values: usize,
    },
    /// The last rows of a convolution's input, oldest first.
    Rows {
        /// How many.
        rows: usize,
        /// Values in one.
        width: usize,
    },
    /// The last tokens, each as its id + 1, oldest first.
    Tokens {
        /// How many.
        count: usize,
    },
}

impl StateSpec {
    /// The cache of keys and values, if it is one.
    pub fn kv(&self) -> Option<&KvSpec> {
        match self {
            Self::Kv(kv) => Some(kv),
            _ => None,
        }
    }

    /// f32 values of a state that does not grow with the sequence; it starts as zeros.
    pub fn fixed_values(&self) -> usize {
        match *self {
            Self::Kv(_) => 0,
            Self::Recurrent { values } => values,
            Self::Rows { rows, width } => rows * width,
            Self::Tokens { count } => count,
        }
    }
}

/// One layer's cache of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSpec {
    /// Key/value heads.
    pub heads: usize,
    /// Channels of a key.
    pub k_dim: usize,
    /// Channels of a value; 0 where only keys are kept.
    pub v_dim: usize,
    /// The layer's window, if it has one.
    pub window: Option<usize>,
    /// The layer's number.
    pub layer: usize,
    /// The layer's own storage types; `None`: those of the limits.
    pub kv: Option<KvTypes>,
}

impl KvSpec {
    /// How the layer's keys and values are stored where `all` is what the limits say. Keys that only choose blocks are at least
    /// f16: an error there reads the wrong positions, and they are few.
    pub fn types(&self, all: KvTypes) -> KvTypes {
        let types = self.kv.unwrap_or(all);
        if self.v_dim > 0 {
            return types;
        }
        KvTypes::both(if types.k.packed() { KvType::F16 } else { types.k })
    }

    /// Bytes of one position.
    pub fn bytes(&self, all: KvTypes) -> usize {
        let types = self.types(all);
        self.heads * (types.k.bytes(self.k_dim) + types.v.bytes(self.v_dim))
    }
}

/// A place whose values the caller gets to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Which place.
    pub place: Place,
    /// Where its values are when the steps are done, `[rows, width]`.
    pub slot: Slot,
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
    /// What is remembered of a sequence, in order of layers.
    pub states: Vec<StateSpec>,
    /// Rotary embeddings, each once.
    pub ropes: Vec<Rope>,
    /// What the caller gets to see, in order of layers.
    pub taps: Vec<Tap>,
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

    /// A state of the program.
    pub fn state(&self, id: StateId) -> &StateSpec {
        &self.states[id.0 as usize]
    }

    /// A slot of the program.
    pub fn slot(&self, slot: Slot) -> SlotSpec {
        self.slots[slot.0 as usize]
    }

    /// The caches of keys and values.
    pub fn caches(&self) -> impl Iterator<Item = &KvSpec> {
        self.states.iter().filter_map(StateSpec::kv)
    }

    /// Gives the layers that a plan names their own storage types, and takes them from the others.
    pub fn keep_kv(&mut self, plan: &KvPlan) -> Result<(), PlanError> {
        if let Some(layer) = plan.layers.keys().find(|layer| self.caches().all(|c| c.layer != **layer)) {
            return Err(PlanError::NoCache { layer: *layer });
        }
        for state in &mut self.states {
            if let StateSpec::Kv(cache) = state {
                cache.kv = plan.layers.get(&cache.layer).copied();
            }
        }
        Ok(())
    }

    /// f32 values of all states that do not grow with the sequence.
    pub fn fixed_values(&self) -> usize {
        self.states.iter().map(StateSpec::fixed_values).sum()
    }

    /// f32 values of all slots for `rows` rows of which `wanted` give outputs.
    pub fn slot_values(&self, rows: usize, wanted: usize) -> usize {
        let height = |s: &SlotSpec| if s.rows == Rows::All { rows } else { wanted };
        self.slots.iter().map(|s| s.width * height(s)).sum()
    }
}
