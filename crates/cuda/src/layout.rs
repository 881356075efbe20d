//! Where things lie in the device's memory, known before any of it is taken.

use plan::{BlockScore, KV_BLOCK, KvSpec, Limits, Program, Rows, StateSpec, Step, windows};
use std::mem::size_of;

/// Places in one piece of memory, each aligned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    end: usize,
}

impl Layout {
    pub(crate) const ALIGN: usize = 256;

    /// The place of the next `bytes`.
    pub(crate) fn take(&mut self, bytes: usize) -> usize {
        let at = self.end;
        self.end += bytes.next_multiple_of(Self::ALIGN);
        at
    }

    /// The same of 4-byte values.
    pub(crate) fn take_values(&mut self, values: usize) -> usize {
        self.take(values * size_of::<f32>())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.end
    }
}

/// Where a state of a program lies among the states' bytes. They follow one another without gaps, so that their sum is the budget's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatePlace {
    /// All blocks' keys, then all blocks' values.
    Kv { spec: KvSpec, k: usize, v: usize, k_block: usize, v_block: usize },
    /// One copy after the other.
    Fixed { at: usize, bytes: usize },
}

/// The places of all states of all programs, and their bytes. Caches come first: their sizes keep what follows aligned.
pub(crate) fn states(programs: &[Program], limits: &Limits) -> (Vec<Vec<StatePlace>>, usize) {
    let mut end = 0;
    let mut take = |bytes: usize| {
        end += bytes;
        end - bytes
    };
    let mut places: Vec<Vec<Option<StatePlace>>> = programs.iter().map(|p| vec![None; p.states.len()]).collect();
    for kv in [true, false] {
        for (program, places) in programs.iter().zip(&mut places) {
            for (state, place) in program.states.iter().zip(places) {
                match state {
                    StateSpec::Kv(spec) if kv => {
                        let (types, blocks) = (spec.types(limits.kv), limits.blocks_of(spec.window));
                        let k_block = KV_BLOCK * spec.heads * types.k.bytes(spec.k_dim);
                        let v_block = KV_BLOCK * spec.heads * types.v.bytes(spec.v_dim);
                        let (k, v) = (take(blocks * k_block), take(blocks * v_block));
                        *place = Some(StatePlace::Kv { spec: *spec, k, v, k_block, v_block });
                    }
                    StateSpec::Kv(_) => {}
                    fixed if !kv => {
                        let bytes = fixed.fixed_values() * size_of::<f32>();
                        *place = Some(StatePlace::Fixed { at: take(bytes * limits.state_slots), bytes });
                    }
                    _ => {}
                }
            }
        }
    }
    (places.into_iter().map(|p| p.into_iter().flatten().collect()).collect(), end)
}

/// Positions that are one piece of attention's softmax: `PIECE` of kernels/attention.cu.
pub(crate) const PIECE: usize = 64;

/// Bytes that pieces of attention may take beside those of one row.
const PARTS: usize = 8 << 20;

/// Places of a program's activations and scratch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Activations {
    /// Of each slot.
    pub(crate) slots: Vec<usize>,
    /// Gates, and what `up` gives: of a fused gate, or of all choices of experts.
    pub(crate) inside: [usize; 2],
    /// Outputs of all choices of experts.
    pub(crate) outputs: usize,
    /// Pieces of attention, and their bytes.
    pub(crate) parts: usize,
    pub(crate) parts_bytes: usize,
    /// Scores of blocks, or rows of a hashed table.
    pub(crate) keys: usize,
}

/// Pieces that rows see which may see `reach` positions; without a window those are no more than there is room for.
pub(crate) fn pieces(window: Option<usize>, reach: usize, limits: &Limits) -> usize {
    match window {
        Some(w) => reach.div_ceil(PIECE).min(w.div_ceil(PIECE) + 1),
        None => reach.min(limits.blocks * KV_BLOCK).div_ceil(PIECE).max(1),
    }
}

/// Blocks of `block` positions that a row may have to choose from.
pub(crate) fn choices_room(block: usize, limits: &Limits) -> usize {
    (limits.blocks * KV_BLOCK).div_ceil(block) + 1
}

/// Places a program's activations.
pub(crate) fn activations(program: &Program, limits: &Limits, to: &mut Layout) -> Activations {
    let height = |rows: Rows| if rows == Rows::All { limits.rows } else { limits.wanted };
    let slots = program.slots.iter().map(|s| to.take_values(s.width * height(s.rows))).collect();
    let (mut inside, mut outputs, mut parts, mut keys) = (0, 0, 0, 0);
    for step in &program.steps {
        match step {
            Step::GateUpAct { to, .. } => {
                let slot = program.slot(*to);
                inside = inside.max(slot.width * height(slot.rows));
            }
            Step::Experts { x, route, bank, .. } => {
                let choices = limits.rows * program.slot(*route).width / 2;
                inside = inside.max(choices * bank.inner);
                outputs = outputs.max(choices * program.slot(*x).width);
            }
            Step::Attend { heads, window, to, .. } => {
                let width = program.slot(*to).width / heads + 2;
                parts = parts.max(heads * width * pieces(*window, usize::MAX, limits) * size_of::<f32>());
            }
            Step::IndexSelect { heads, block, score, .. } => {
                let choices = if matches!(score, BlockScore::MeanKey { .. }) { 1 } else { *heads };
                keys = keys.max(limits.rows * choices * choices_room(*block, limits));
            }
            Step::NgramEmbed { hash, .. } => keys = keys.max(limits.rows * hash.sizes.len()),
            _ => {}
        }
    }
    // Several rows at a time where there is room.
    let parts_bytes = if parts > 0 { parts.max(PARTS.min(parts * limits.rows)) } else { 0 };
    Activations {
        slots,
        inside: [(); 2].map(|()| to.take_values(inside)),
        outputs: to.take_values(outputs),
        parts: to.take(parts_bytes),
        parts_bytes,
        keys: to.take_values(keys),
    }
}

/// Places, in 4-byte numbers, of what a run says of its rows and sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rowwise {
    pub(crate) tokens: usize,
    pub(crate) positions: usize,
    pub(crate) sequences: usize,
    /// One more than there are sequences.
    pub(crate) first: usize,
    pub(crate) slots: usize,
    pub(crate) wanted: usize,
    /// Of each window, one a sequence.
    pub(crate) offsets: usize,
    /// The blocks of all tables.
    pub(crate) table: usize,
    /// All that there is room for at first.
    pub(crate) end: usize,
}

/// Places a run's numbers.
pub(crate) fn rowwise(programs: &[Program], limits: &Limits) -> Rowwise {
    let (rows, windows) = (limits.rows, windows(programs));
    let [tokens, positions, sequences] = [0, rows, 2 * rows];
    let first = 3 * rows;
    let slots = first + rows + 1;
    let wanted = slots + rows;
    let offsets = wanted + limits.wanted;
    let table = offsets + windows.len() * rows;
    let blocks: usize = windows.iter().map(|w| limits.blocks_of(*w)).sum();
    Rowwise { tokens, positions, sequences, first, slots, wanted, offsets, table, end: table + blocks }
}

#[cfg(test)]
mod tests {
    use super::{Layout, activations, rowwise, states};
    use plan::{Budget, KvType, KvTypes, Limits, lower};
    use std::mem::size_of;
    use testkit::{Model, families};

    #[test]
    fn states_take_what_the_budget_says() {
        for golden in families() {
            let model = Model::open(&golden.path());
            let programs = [lower(&model.spec, &model.index).unwrap_or_else(|e| panic!("{e}"))];
            for kv in [KvTypes { k: KvType::F16, v: KvType::F32 }, KvTypes::both(KvType::F16)] {
                let limits = Limits { sequences: 3, ..Limits::for_context(200, 7, kv) };
                let budget = Budget::new(&programs, &limits, 0, 0, |cache| cache.bytes(kv));
                let (places, bytes) = states(&programs, &limits);
                assert_eq!(bytes as u64, budget.states, "{}/{}", golden.model, golden.file);
                assert_eq!(places[0].len(), programs[0].states.len());
            }
        }
    }

    #[test]
    fn activations_grow_with_rows() {
        let golden = families()[0];
        let model = Model::open(&golden.path());
        let program = lower(&model.spec, &model.index).unwrap_or_else(|e| panic!("{e}"));
        let bytes = |rows| {
            let mut layout = Layout::default();
            let limits = Limits::for_context(100, rows, KvTypes::both(KvType::F16));
            let places = activations(&program, &limits, &mut layout);
            assert_eq!(places.slots.len(), program.slots.len());
            assert!(rowwise(std::slice::from_ref(&program), &limits).end > 4 * rows);
            layout.bytes()
        };
        let widths: usize = program.slots.iter().map(|s| s.width * size_of::<f32>()).sum();
        assert!(bytes(64) > bytes(1) && bytes(64) <= 64 * (widths + 256) + (1 << 20), "{} {}", bytes(64), bytes(1));
    }
}
