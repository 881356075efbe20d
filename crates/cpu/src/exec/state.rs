//! What the device remembers of sequences, and the steps that move it on row by row.

use super::{Compiled, Engine};
use crate::attention::with_scratch;
use crate::cache::Cache;
use crate::kernels::{conv, delta};
use crate::runs::{Run, runs};
use plan::reference::ngram_rows;
use plan::{Batch, DeltaShape, FixedStates, Limits, Slot, StateCopy, StatePiece, StateSlot, StateSpec, Step};
use std::sync::{Mutex, PoisonError};

/// One state of a program, for all sequences.
#[derive(Debug)]
pub(super) enum State {
    /// Keys and values.
    Kv(Box<Cache>),
    /// Copies of a state of fixed size.
    Fixed(FixedStates),
}

impl State {
    pub(super) fn new(spec: &StateSpec, limits: &Limits) -> Self {
        match spec {
            StateSpec::Kv(kv) => Self::Kv(Box::new(Cache::new(*kv, limits.blocks_of(kv.window), limits.kv))),
            fixed => Self::Fixed(FixedStates::new(fixed.fixed_values(), limits.state_slots)),
        }
    }

    /// Bytes allocated.
    pub(super) fn allocated(&self) -> usize {
        match self {
            Self::Kv(cache) => cache.allocated(),
            Self::Fixed(states) => states.allocated(),
        }
    }

    pub(super) fn cache(&self) -> &Cache {
        match self {
            Self::Kv(cache) => cache,
            Self::Fixed(_) => unreachable!("the step was lowered with a cache"),
        }
    }

    pub(super) fn cache_mut(&mut self) -> &mut Cache {
        match self {
            Self::Kv(cache) => cache,
            Self::Fixed(_) => unreachable!("the step was lowered with a cache"),
        }
    }

    /// One copy of a fixed state.
    fn fixed(&mut self, slot: Option<StateSlot>) -> &mut [f32] {
        match self {
            Self::Fixed(states) => states.slot(slot),
            Self::Kv(_) => unreachable!("the step was lowered with a fixed state"),
        }
    }

    /// What this state holds of a piece.
    pub(super) fn bytes(&self, piece: StatePiece) -> [&[u8]; 2] {
        match (self, piece) {
            (Self::Kv(cache), StatePiece::Block { window, block }) if window == cache.spec.window => cache.bytes(block),
            (Self::Fixed(states), StatePiece::Slot(slot)) => [states.bytes(slot), &[]],
            _ => [&[], &[]],
        }
    }

    /// The same, to be filled.
    pub(super) fn bytes_mut(&mut self, piece: StatePiece) -> [&mut [u8]; 2] {
        match (self, piece) {
            (Self::Kv(cache), StatePiece::Block { window, block }) if window == cache.spec.window => {
                cache.bytes_mut(block)
            }
            (Self::Fixed(states), StatePiece::Slot(slot)) => [states.bytes_mut(slot), &mut []],
            _ => [&mut [], &mut []],
        }
    }

    pub(super) fn copy(&mut self, copy: StateCopy) {
        match (self, copy) {
            (Self::Kv(cache), StateCopy::Block { window, from, to }) if window == cache.spec.window => {
                cache.copy(from, to);
            }
            (Self::Fixed(states), copy) => states.copy(copy),
            (Self::Kv(_), _) => {}
        }
    }
}

/// The inputs of [`Step::Delta`], all rows.
struct DeltaInputs<'a> {
    qkv: &'a [f32],
    beta: &'a [f32],
    decay: &'a [f32],
    a: &'a [f32],
    dt_bias: &'a [f32],
    shape: &'a DeltaShape,
}

impl Compiled {
    /// Steps whose rows depend on earlier rows of the sequence.
    pub(super) fn recur(&mut self, engine: &Engine, step: &Step, batch: &Batch<'_>) {
        let mut states = std::mem::take(&mut self.states);
        match step {
            Step::Conv { x, weight, dilation, state, to } => {
                let state = &mut states[state.0 as usize];
                self.write(*to, batch, |this, to| {
                    let (x, weight) = (this.values(*x, batch), this.weight(*weight).vector());
                    for run in runs(batch) {
                        convolve(engine, state.fixed(run.sequence.slot), (x, weight, *dilation), &run, (to, batch));
                    }
                });
            }
            Step::Delta { qkv, beta, decay, a, dt_bias, shape, state, to } => {
                let state = &mut states[state.0 as usize];
                self.write(*to, batch, |this, to| {
                    let values = |slot: &Slot| this.values(*slot, batch);
                    let inputs = DeltaInputs {
                        qkv: values(qkv),
                        beta: values(beta),
                        decay: values(decay),
                        a: this.weight(*a).vector(),
                        dt_bias: this.weight(*dt_bias).vector(),
                        shape,
                    };
                    for run in runs(batch) {
                        inputs.run(engine, state.fixed(run.sequence.slot), &run, to);
                    }
                });
            }
            Step::NgramEmbed { table, hash, state, to } => {
                let state = &mut states[state.0 as usize];
                self.write(*to, batch, |this, to| {
                    let table = this.weight(*table).tensor();
                    let width = to.len() / batch.tokens.len();
                    for run in runs(batch) {
                        let earlier = state.fixed(run.sequence.slot);
                        for row in run.rows {
                            let rows = ngram_rows(hash, batch.tokens[row].0, earlier);
                            let to = to[row * width..][..width].chunks_exact_mut(table.cols());
                            for (row, to) in rows.into_iter().zip(to) {
                                if let Err(error) = table.row_to_f32(row, to) {
                                    unreachable!("the type and the table's rows were checked: {error}");
                                }
                            }
                        }
                    }
                });
            }
            other => unreachable!("{other:?} has no state of fixed size"),
        }
        self.states = states;
    }
}

/// The convolution of one sequence's rows; `earlier` are the rows before them and move on.
fn convolve(
    engine: &Engine,
    earlier: &mut [f32],
    (x, weight, dilation): (&[f32], &[f32], usize),
    run: &Run<'_>,
    (to, batch): (&mut [f32], &Batch<'_>),
) {
    let width = x.len() / batch.tokens.len();
    let (before, kernel) = (earlier.len() / width, weight.len() / width);
    let own = &x[run.rows.start * width..run.rows.end * width];
    let history = &*earlier;
    engine.rows(&mut to[run.rows.start * width..run.rows.end * width], width, &|row, to| {
        let tap = |tap: usize| {
            // Counted from the first of the earlier rows.
            let at = before + row - (kernel - 1 - tap) * dilation;
            if at < before { &history[at * width..][..width] } else { &own[(at - before) * width..][..width] }
        };
        conv::conv(engine.isa, weight, tap, to);
    });
    let moved = own.len().min(earlier.len());
    earlier.copy_within(moved.., 0);
    let kept = earlier.len() - moved;
    earlier[kept..].copy_from_slice(&own[own.len() - moved..]);
}

impl DeltaInputs<'_> {
    /// One sequence's rows: a task a value head.
    fn run(&self, engine: &Engine, state: &mut [f32], run: &Run<'_>, to: &mut [f32]) {
        let &DeltaShape { v_heads, k_dim, v_dim, .. } = self.shape;
        let rows = run.rows.len();
        let mut outputs = vec![0.0; v_heads * rows * v_dim];
        let heads = state.chunks_exact_mut(k_dim * v_dim).zip(outputs.chunks_exact_mut(rows * v_dim));
        let heads: Vec<_> = heads.map(Mutex::new).collect();
        engine.pool.run(v_heads, &|head, _| {
            let mut own = heads[head].lock().unwrap_or_else(PoisonError::into_inner);
            let (state, outputs) = &mut *own;
            self.head(engine, head, run, state, outputs);
        });
        drop(heads);
        for (head, outputs) in outputs.chunks_exact(rows * v_dim).enumerate() {
            for (row, output) in outputs.chunks_exact(v_dim).enumerate() {
                let at = (run.rows.start + row) * v_heads * v_dim + head * v_dim;
                to[at..at + v_dim].copy_from_slice(output);
            }
        }
    }

    fn head(&self, engine: &Engine, head: usize, run: &Run<'_>, state: &mut [f32], outputs: &mut [f32]) {
        let &DeltaShape { k_heads, v_heads, k_dim, v_dim, .. } = self.shape;
        let (isa, key_head, keys) = (engine.isa, self.shape.key_head(head) * k_dim, k_heads * k_dim);
        let width = 2 * keys + v_heads * v_dim;
        with_scratch(2 * k_dim + v_dim, |scratch| {
            let (q, rest) = scratch.split_at_mut(k_dim);
            let (k, scratch) = rest.split_at_mut(k_dim);
            for (row, output) in run.rows.clone().zip(outputs.chunks_exact_mut(v_dim)) {
                let qkv = &self.qkv[row * width..][..width];
                q.copy_from_slice(&qkv[key_head..][..k_dim]);
                k.copy_from_slice(&qkv[keys + key_head..][..k_dim]);
                delta::to_length(isa, q, (k_dim as f32).powf(-0.5));
                delta::to_length(isa, k, 1.0);
                let gate = row * v_heads + head;
                let row = delta::Row {
                    q,
                    k,
                    v: &qkv[2 * keys + head * v_dim..][..v_dim],
                    keep: delta::keep(self.a[head], self.decay[gate] + self.dt_bias[head]),
                    strength: delta::strength(self.beta[gate]),
                };
                delta::delta(isa, &row, state, scratch, output);
            }
        });
    }
}
