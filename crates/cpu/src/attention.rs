//! The `Attend` step: which rows, heads and blocks make a task.

use crate::cache::Cache;
use crate::isa::Isa;
use crate::kernels::attend::{Extent, contribution, merge};
use crate::kernels::attention::KEYS;
use crate::pool::{Pool, Tiles};
use plan::{Batch, BlockId, KV_BLOCK};
use std::cell::RefCell;
use std::ops::Range;

/// Rows of one sequence a task takes, so that a block widened once serves several.
const ROWS_PER_TASK: usize = 16;

/// Blocks of one head a task takes when rows are few.
const BLOCKS_PER_TASK: usize = 4;

/// An `Attend` step over one layer's cache.
#[derive(Debug)]
pub(crate) struct Attend<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) heads: usize,
    pub(crate) scale: f32,
    pub(crate) window: Option<usize>,
    pub(crate) isa: Isa,
}

/// Rows of one sequence, neighbours in the batch.
#[derive(Clone, Debug)]
struct Run<'a> {
    rows: Range<usize>,
    blocks: &'a [BlockId],
}

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl<'a> Attend<'a> {
    /// `to = softmax(scale · q kᵀ) v` for every row, both `[rows, heads · head_dim]`.
    pub(crate) fn run(&self, pool: &Pool, q: &[f32], to: &mut [f32]) {
        let (dim, kv_heads) = (self.cache.spec.head_dim, self.cache.spec.heads);
        let group = self.heads / kv_heads;
        let runs = self.runs();
        if runs.len() == self.batch.tokens.len()
            && self.longest() >= 2 * KV_BLOCK
            && kv_heads % pool.threads() != 0
        {
            return self.decode(pool, &runs, q, to);
        }
        let width = self.heads * dim;
        for run in runs {
            let rows = &mut to[run.rows.start * width..run.rows.end * width];
            let tiles = Tiles::blocks(rows, [run.rows.len(), width], [ROWS_PER_TASK, group * dim]);
            pool.run_tiles(tiles, &|_, mut tile| {
                let head = tile.first_col() / (group * dim);
                let first = run.rows.start + tile.first_row();
                let rows = first..first + tile.rows();
                let all = self.visible(rows.start).start..self.visible(rows.end - 1).end;
                with_scratch(
                    group * (KEYS + dim + 2) + 2 * rows.len() * group,
                    |scratch| {
                        let (weights, rest) = scratch.split_at_mut(group * KEYS);
                        let (output, rest) = rest.split_at_mut(group * dim);
                        let (extents, states) = rest.split_at_mut(2 * group);
                        let extents: &mut [Extent] = bytemuck::cast_slice_mut(extents);
                        let states: &mut [Extent] = bytemuck::cast_slice_mut(states);
                        for index in all.start / KV_BLOCK..all.end.div_ceil(KV_BLOCK) {
                            let block = self.cache.block(run.blocks[index], head);
                            for row in rows.clone() {
                                let visible = self.visible(row);
                                let Some(places) = places(&visible, index) else {
                                    continue;
                                };
                                let q = (
                                    &q[row * width + head * group * dim..][..group * dim],
                                    self.scale,
                                );
                                let out = tile.row_mut(row - first);
                                let states = &mut states[(row - first) * group..][..group];
                                if index == visible.start / KV_BLOCK {
                                    contribution(
                                        self.isa,
                                        q,
                                        block,
                                        places,
                                        weights,
                                        (states, out),
                                    );
                                    continue;
                                }
                                contribution(
                                    self.isa,
                                    q,
                                    block,
                                    places,
                                    weights,
                                    (extents, output),
                                );
                                let later = extents.iter().zip(output.chunks_exact(dim));
                                for ((state, out), (extent, output)) in
                                    states.iter_mut().zip(out.chunks_exact_mut(dim)).zip(later)
                                {
                                    merge(self.isa, (state, out), *extent, output);
                                }
                            }
                        }
                        for row in 0..rows.len() {
                            for (out, state) in tile
                                .row_mut(row)
                                .chunks_exact_mut(dim)
                                .zip(&states[row * group..])
                            {
                                divide(out, state.sum);
                            }
                        }
                    },
                );
            });
        }
    }

    /// One row a sequence: the blocks of a head are spread over tasks, and their contributions merged in
    /// order afterwards, by the same functions.
    fn decode(&self, pool: &Pool, runs: &[Run<'_>], q: &[f32], to: &mut [f32]) {
        let (dim, kv_heads) = (self.cache.spec.head_dim, self.cache.spec.heads);
        let (group, width) = (self.heads / kv_heads, self.heads * dim);
        // For each block and kv head: the group's extents, then its outputs.
        let record = group * (2 + dim);
        for (row, run) in runs.iter().enumerate() {
            let visible = self.visible(row);
            let first = visible.start / KV_BLOCK;
            let blocks = visible.end.div_ceil(KV_BLOCK) - first;
            let mut partials = vec![0.0; blocks * kv_heads * record];
            let q = &q[row * width..][..width];
            let tiles = Tiles::blocks(
                &mut partials,
                [blocks, kv_heads * record],
                [BLOCKS_PER_TASK, record],
            );
            pool.run_tiles(tiles, &|_, mut tile| {
                let head = tile.first_col() / record;
                let q = (&q[head * group * dim..][..group * dim], self.scale);
                with_scratch(group * KEYS, |weights| {
                    for b in 0..tile.rows() {
                        let index = first + tile.first_row() + b;
                        let Some(places) = places(&visible, index) else {
                            continue;
                        };
                        let (extents, output) = tile.row_mut(b).split_at_mut(2 * group);
                        let extents = bytemuck::cast_slice_mut(extents);
                        let block = self.cache.block(run.blocks[index], head);
                        contribution(self.isa, q, block, places, weights, (extents, output));
                    }
                });
            });
            for (head, out) in to[row * width..][..width].chunks_exact_mut(dim).enumerate() {
                let part = |b: usize| -> (Extent, &[f32]) {
                    let record = &partials[(b * kv_heads + head / group) * record..][..record];
                    let (extents, outputs) = record.split_at(2 * group);
                    let extents: &[Extent] = bytemuck::cast_slice(extents);
                    (extents[head % group], &outputs[head % group * dim..][..dim])
                };
                let (mut state, output) = part(0);
                out.copy_from_slice(output);
                for b in 1..blocks {
                    let (extent, output) = part(b);
                    merge(self.isa, (&mut state, out), extent, output);
                }
                divide(out, state.sum);
            }
        }
    }

    /// The positions a row sees.
    fn visible(&self, row: usize) -> Range<usize> {
        let end = self.batch.positions[row] as usize + 1;
        self.window.map_or(0, |w| end.saturating_sub(w))..end
    }

    fn longest(&self) -> usize {
        self.batch
            .positions
            .iter()
            .max()
            .map_or(0, |p| *p as usize + 1)
    }

    fn runs(&self) -> Vec<Run<'a>> {
        let mut runs: Vec<Run<'a>> = Vec::new();
        let mut last = None;
        for (row, sequence) in self.batch.sequence.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if last == Some(sequence) => run.rows.end = row + 1,
                _ => runs.push(Run {
                    rows: row..row + 1,
                    blocks: self.batch.sequences[*sequence as usize].blocks,
                }),
            }
            last = Some(sequence);
        }
        runs
    }
}

/// The visible places of a block, if it has any.
fn places(visible: &Range<usize>, block: usize) -> Option<Range<usize>> {
    let base = block * KV_BLOCK;
    let range = visible.start.max(base)..visible.end.min(base + KV_BLOCK);
    (!range.is_empty()).then(|| range.start - base..range.end - base)
}

fn divide(out: &mut [f32], sum: f32) {
    let scale = 1.0 / sum;
    out.iter_mut().for_each(|x| *x *= scale);
}

/// Calls `f` with `len` values of this thread's own.
pub(crate) fn with_scratch<T>(len: usize, f: impl FnOnce(&mut [f32]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < len {
            scratch.resize(len, 0.0);
        }
        f(&mut scratch[..len])
    })
}
