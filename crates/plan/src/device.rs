//! The contract between programs and devices.

use crate::blocks::{BlockId, StateSlot, Table};
use crate::budget::Budget;
use crate::experts::{ExpertStats, Residency};
use crate::fuse::Fusion;
use crate::kv::{KvPlan, KvType, KvTypes};
use crate::program::{KV_BLOCK, Program, ProgramId, Tap};
use crate::{ExecError, PlanError};
use foundation::{LogitValue, TokenId};
use weights::Weights;

/// What a device is and which fused steps it has kernels for.
#[derive(Clone, Debug, PartialEq)]
pub struct Caps {
    /// The name used in messages.
    pub device: &'static str,
    /// Fused forms to lower to.
    pub fusions: &'static [Fusion],
    /// Types keys and values can be kept in.
    pub kv: &'static [KvType],
    /// Whether it can use experts where they are mapped, and read them when they are needed.
    pub places_experts: bool,
}

/// What a compiled program must be able to do at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of one run.
    pub rows: usize,
    /// Rows of one run whose logits are wanted.
    pub wanted: usize,
    /// Blocks of cache, [`KV_BLOCK`] positions each, shared by all sequences. Layers with a window may have fewer: see
    /// [`Limits::blocks_of`].
    pub blocks: usize,
    /// How many sequences' windows, with the points kept to come back to, layers with a window have room for.
    pub sequences: usize,
    /// How keys and values are stored.
    pub kv: KvTypes,
    /// Copies of the states that do not grow, live and kept for rewinding, shared by all sequences. Models without such
    /// states take no memory for them.
    pub state_slots: usize,
}

/// Points of one sequence that are kept to come back to.
pub(crate) const KEPT: usize = 4;

/// Copies of recurrent state one sequence is given room for: the live one, one being written, and those kept.
const STATE_SLOTS_PER_SEQUENCE: usize = KEPT + 2;

impl Limits {
    /// Limits for one sequence of up to `context` positions, fed `rows` at a time.
    pub fn for_context(context: usize, rows: usize, kv: KvTypes) -> Self {
        Self {
            rows,
            wanted: 1,
            blocks: context.div_ceil(KV_BLOCK),
            sequences: 1,
            kv,
            state_slots: STATE_SLOTS_PER_SEQUENCE,
        }
    }

    /// Blocks of the group of layers with a window: never more than all positions take.
    ///
    /// A sequence has room for what its next rows see and as many positions before that as one run has rows, which
    /// makes shorter rewinds exact, and for the window before each kept point.
    pub fn blocks_of(&self, window: Option<usize>) -> usize {
        window.map_or(self.blocks, |w| self.blocks.min(self.window_blocks(w)))
    }

    /// Blocks of the group of layers with this window, however many positions there are.
    pub(crate) fn window_blocks(&self, window: usize) -> usize {
        // A whole window starts inside a block and ends inside one.
        let spread = |positions: usize| positions.div_ceil(KV_BLOCK) + 1;
        self.sequences.saturating_mul(spread(window + self.rows) + KEPT * spread(window))
    }

    /// Fails if a device cannot keep the programs' keys and values as these limits ask for, or their experts as they do.
    pub fn check(&self, caps: &Caps, programs: &[Program]) -> Result<(), PlanError> {
        let elsewhere = programs.iter().flat_map(|p| &p.weights).any(|w| w.residency != Residency::Ram);
        if elsewhere && !caps.places_experts {
            return Err(PlanError::ExpertsElsewhere { device: caps.device });
        }
        let known = |fits: &dyn Fn(&KvType) -> bool| {
            caps.kv.iter().filter(|t| fits(t)).map(|t| t.name()).collect::<Vec<_>>().join(", ")
        };
        for cache in programs.iter().flat_map(Program::caches) {
            let types = cache.types(self.kv);
            for (what, kind, dim) in [("keys", types.k, cache.k_dim), ("values", types.v, cache.v_dim)] {
                let (device, found) = (caps.device.to_owned(), kind.to_string());
                if !caps.kv.contains(&kind) {
                    return Err(PlanError::UnsupportedKv { device, found, known: known(&|_| true) });
                }
                if !kind.fits(dim) {
                    let known = known(&|t| t.fits(dim));
                    return Err(PlanError::KvHeadSize { layer: cache.layer, what, dim, found, known });
                }
            }
        }
        Ok(())
    }
}

/// Rows of several sequences for one run. A sequence's rows are neighbours, in order of position.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// One a row.
    pub tokens: &'a [TokenId],
    /// The row's place in its sequence.
    pub positions: &'a [u32],
    /// Index of the row's sequence in `sequences`.
    pub sequence: &'a [u32],
    /// The sequences of this run.
    pub sequences: &'a [SequenceArgs<'a>],
    /// Rows whose logits are wanted, ascending.
    pub wanted: &'a [u32],
}

/// What a device must know of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct SequenceArgs<'a> {
    /// One for each group of layers.
    pub tables: &'a [Table],
    /// Where the states that do not grow are; `None` if the programs have none.
    pub slot: Option<StateSlot>,
}

impl<'a> SequenceArgs<'a> {
    /// The blocks of the layers with this window: positions `[KV_BLOCK · i, KV_BLOCK · (i + 1))` are in block `i`.
    ///
    /// # Panics
    /// If the programs have no such layers.
    pub fn blocks(&self, window: Option<usize>) -> &'a [BlockId] {
        match self.tables.iter().find(|table| table.window == window) {
            Some(table) => &table.blocks,
            None => unreachable!("a sequence has a table for each window of the programs it is run with"),
        }
    }
}

/// Where a run's results go.
#[derive(Debug)]
pub struct Outputs<'a> {
    /// `[wanted rows, vocab]`, raw.
    pub logits: &'a mut [LogitValue],
    /// Receives what each of the program's taps shows, `[rows, width]` in the order of the batch; empty if nobody looks.
    pub taps: &'a mut [Vec<f32>],
}

/// A change of state outside a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateCopy {
    /// A block's whole content, in every layer with this window.
    Block {
        /// Which layers.
        window: Option<usize>,
        /// Source.
        from: BlockId,
        /// Destination.
        to: BlockId,
    },
    /// Every state that does not grow.
    Slot {
        /// Source.
        from: StateSlot,
        /// Destination.
        to: StateSlot,
    },
    /// Every state that does not grow, back to zeros.
    Clear {
        /// Which.
        slot: StateSlot,
    },
}

/// A piece of state that can be moved out of a device and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatePiece {
    /// A block, in every layer with this window.
    Block {
        /// Which layers.
        window: Option<usize>,
        /// Which block.
        block: BlockId,
    },
    /// Every state that does not grow.
    Slot(StateSlot),
}

/// Turns programs into something it can replay; never sees a family.
pub trait Device {
    /// What it compiles to.
    type Exec: Exec;

    /// What the device can do.
    fn caps(&self) -> Caps;

    /// Bytes of the device's own memory that are free; `None`: it uses the machine's.
    fn available(&self) -> Option<u64> {
        None
    }

    /// Memory the programs will take, exactly, before anything is loaded.
    fn memory(&self, programs: &[Program], weights: &Weights, limits: &Limits) -> Result<Budget, PlanError>;

    /// Loads the weights and allocates everything a run needs.
    fn compile(&self, programs: Vec<Program>, weights: &Weights, limits: Limits) -> Result<Self::Exec, PlanError>;
}

/// Compiled programs with their weights and cache.
pub trait Exec {
    /// What was compiled for.
    fn limits(&self) -> &Limits;

    /// The windows of the programs' caches, each once, `None` first: see [`crate::windows`].
    fn windows(&self) -> &[Option<usize>] {
        &[None]
    }

    /// Whether any program has states that do not grow, so that every sequence needs a [`StateSlot`].
    fn has_fixed_states(&self) -> bool;

    /// Values in a row of logits of a program.
    fn vocab(&self, program: ProgramId) -> usize;

    /// What a program shows of its inside.
    fn taps(&self, program: ProgramId) -> &[Tap];

    /// Runs a batch; on an error the states that sequences can see are unchanged.
    fn run(&mut self, program: ProgramId, batch: &Batch<'_>, outputs: &mut Outputs<'_>) -> Result<(), ExecError>;

    /// How streamed experts have served; `None` if there are none.
    fn expert_stats(&self) -> Option<ExpertStats> {
        None
    }

    /// Copies and clears states, in order.
    fn copy_states(&mut self, copies: &[StateCopy]) -> Result<(), ExecError>;

    /// Appends the bytes of a piece of state, exactly as it is stored; false if the device cannot show it.
    fn save_state(&self, _: StatePiece, _: &mut Vec<u8>) -> bool {
        false
    }

    /// Fills a piece of state with bytes that [`Exec::save_state`] gave for one of its kind; false, and nothing that
    /// counts, if the device cannot or their number is another.
    fn load_state(&mut self, _: StatePiece, _: &[u8]) -> bool {
        false
    }

    /// Forgets all keys and values, and keeps those to come in other types.
    fn keep_kv(&mut self, kv: &KvPlan) -> Result<(), PlanError> {
        let (device, found, known) =
            ("a device of one cache type".to_owned(), kv.to_string(), self.limits().kv.to_string());
        Err(PlanError::UnsupportedKv { device, found, known })
    }
}

impl Batch<'_> {
    /// The checks every device needs before it touches anything.
    pub fn check(&self, limits: &Limits, vocab: usize, logits: usize) -> Result<(), ExecError> {
        if self.tokens.is_empty() {
            return Err(ExecError::Empty);
        }
        for (found, limit) in [(self.tokens.len(), limits.rows), (self.wanted.len(), limits.wanted)] {
            if found > limit {
                return Err(ExecError::TooManyRows { found, limit });
            }
        }
        if let Some(token) = self.tokens.iter().find(|t| t.index() >= vocab) {
            return Err(ExecError::TokenOutsideVocabulary { token: token.0, vocab });
        }
        let expected = self.wanted.len() * vocab;
        if logits != expected {
            return Err(ExecError::OutputSize { expected, found: logits });
        }
        Ok(())
    }
}
