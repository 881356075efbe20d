//! The `Attend` step: which rows, heads and blocks make a task.

use crate::cache::Cache;
use crate::isa::Isa;
use crate::kernels::attend::{Extent, contribution, finish, merge};
use crate::kernels::attention::KEYS;
use crate::pool::{Pool, Tiles};
use crate::runs::{Run, runs};
use plan::{Batch, KV_BLOCK, Select};
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
    pub(crate) sinks: Option<&'a [f32]>,
    pub(crate) chosen: Option<Chosen>,
    pub(crate) isa: Isa,
}

/// The positions each row reads of those it sees: a bit a position, in words of one block.
#[derive(Debug)]
pub(crate) struct Chosen {
    choices: usize,
    words: Vec<Vec<u32>>,
}

impl Chosen {
    /// From the numbers of chosen blocks, `[rows, choices · count]`, negative for none.
    pub(crate) fn new(select: &Select, positions: &[u32], blocks: &[f32]) -> Self {
        let count = blocks.len() / positions.len() / select.choices;
        let words = blocks.chunks_exact(count).enumerate().map(|(at, blocks)| {
            let end = positions[at / select.choices] as usize + 1;
            let mut words = vec![0u32; end.div_ceil(KV_BLOCK)];
            let mut read = |from: usize, to: usize| {
                (from..to.min(end)).for_each(|p| words[p / KV_BLOCK] |= 1 << (p % KV_BLOCK));
            };
            for block in blocks.iter().filter(|b| **b >= 0.0) {
                let first = *block as usize * select.block;
                read(first, first + select.block);
            }
            if select.tail {
                read(end / select.block * select.block, end);
            }
            words
        });
        Self { choices: select.choices, words: words.collect() }
    }
}

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl<'a> Attend<'a> {
    /// `to = softmax(scale · q kᵀ) v` for every row: `q` is `[rows, heads · k_dim]`, `to` is `[rows, heads · v_dim]`.
    pub(crate) fn run(&self, pool: &Pool, q: &[f32], to: &mut [f32]) {
        let (dim, k_dim, kv_heads) = (self.cache.spec.v_dim, self.cache.spec.k_dim, self.cache.spec.heads);
        let group = self.heads / kv_heads;
        let runs = runs(self.batch);
        if runs.len() == self.batch.tokens.len() && self.longest() >= 2 * KV_BLOCK && kv_heads % pool.threads() != 0 {
            return self.decode(pool, &runs, q, to);
        }
        let (width, q_width) = (self.heads * dim, self.heads * k_dim);
        let head_of = |row: usize, head: usize| &q[row * q_width + head * group * k_dim..][..group * k_dim];
        for run in runs {
            let rows = &mut to[run.rows.start * width..run.rows.end * width];
            let blocks = run.sequence.blocks(self.cache.spec.window);
            let tiles = Tiles::blocks(rows, [run.rows.len(), width], [ROWS_PER_TASK, group * dim]);
            pool.run_tiles(tiles, &|_, mut tile| {
                let head = tile.first_col() / (group * dim);
                let first = run.rows.start + tile.first_row();
                let rows = first..first + tile.rows();
                let all = self.visible(rows.start).start..self.visible(rows.end - 1).end;
                let rotated = self.cache.key_rotation().map_or(0, |_| rows.len() * group * k_dim);
                let states = 2 * rows.len() * group;
                with_scratch(group * (KEYS + dim + 2) + states + rotated + self.cache.scratch(), |scratch| {
                    let (expanded, rest) = scratch.split_at_mut(self.cache.scratch());
                    let (turned, rest) = rest.split_at_mut(rotated);
                    self.turn_queries(rows.clone().map(|row| head_of(row, head)), turned);
                    let (weights, rest) = rest.split_at_mut(group * KEYS);
                    let (output, rest) = rest.split_at_mut(group * dim);
                    let (extents, states) = rest.split_at_mut(2 * group);
                    let extents: &mut [Extent] = bytemuck::cast_slice_mut(extents);
                    let states: &mut [Extent] = bytemuck::cast_slice_mut(states);
                    states.fill(Extent::default());
                    let (first_block, end) = (all.start / KV_BLOCK, all.end.div_ceil(KV_BLOCK));
                    for (index, block) in (first_block..).zip(&blocks[first_block..end]) {
                        let block = self.cache.block(*block, head, self.isa, expanded);
                        for row in rows.clone() {
                            let Some(places) = self.places(row, head, index) else {
                                continue;
                            };
                            let q = match turned.is_empty() {
                                true => head_of(row, head),
                                false => &turned[(row - first) * group * k_dim..][..group * k_dim],
                            };
                            let q = (q, self.scale);
                            let out = tile.row_mut(row - first);
                            let states = &mut states[(row - first) * group..][..group];
                            // The sum of any block is positive: none yet means that this is the first.
                            if states[0].sum == 0.0 {
                                contribution(self.isa, q, block, places, weights, (states, out));
                                continue;
                            }
                            contribution(self.isa, q, block, places, weights, (extents, output));
                            let later = extents.iter().zip(output.chunks_exact(dim));
                            for ((state, out), (extent, output)) in
                                states.iter_mut().zip(out.chunks_exact_mut(dim)).zip(later)
                            {
                                merge(self.isa, (state, out), *extent, output);
                            }
                        }
                    }
                    for row in 0..rows.len() {
                        let outs = tile.row_mut(row).chunks_exact_mut(dim);
                        for ((g, out), state) in outs.enumerate().zip(&states[row * group..]) {
                            self.finish(out, *state, head * group + g);
                        }
                    }
                });
            });
        }
    }

    /// One row a sequence: the blocks of a head are spread over tasks, and their contributions merged in
    /// order afterwards, by the same functions.
    fn decode(&self, pool: &Pool, runs: &[Run<'_>], q: &[f32], to: &mut [f32]) {
        let (dim, k_dim, kv_heads) = (self.cache.spec.v_dim, self.cache.spec.k_dim, self.cache.spec.heads);
        let (group, width, q_width) = (self.heads / kv_heads, self.heads * dim, self.heads * k_dim);
        // For each block and kv head: the group's extents, then its outputs.
        let record = group * (2 + dim);
        for (row, run) in runs.iter().enumerate() {
            let visible = self.visible(row);
            let first = visible.start / KV_BLOCK;
            let (count, blocks) = (visible.end.div_ceil(KV_BLOCK) - first, run.sequence.blocks(self.cache.spec.window));
            let mut partials = vec![0.0; count * kv_heads * record];
            let q = &q[row * q_width..][..q_width];
            let tiles = Tiles::blocks(&mut partials, [count, kv_heads * record], [BLOCKS_PER_TASK, record]);
            pool.run_tiles(tiles, &|_, mut tile| {
                let head = tile.first_col() / record;
                let q = &q[head * group * k_dim..][..group * k_dim];
                let rotated = self.cache.key_rotation().map_or(0, |_| q.len());
                with_scratch(group * KEYS + rotated + self.cache.scratch(), |scratch| {
                    let (expanded, rest) = scratch.split_at_mut(self.cache.scratch());
                    let (turned, weights) = rest.split_at_mut(rotated);
                    self.turn_queries([q].into_iter(), turned);
                    let q = (if turned.is_empty() { q } else { turned }, self.scale);
                    for b in 0..tile.rows() {
                        let index = first + tile.first_row() + b;
                        let Some(places) = self.places(row, head, index) else {
                            continue;
                        };
                        let (extents, output) = tile.row_mut(b).split_at_mut(2 * group);
                        let extents = bytemuck::cast_slice_mut(extents);
                        let block = self.cache.block(blocks[index], head, self.isa, expanded);
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
                let mut read = (0..count).map(part).filter(|(extent, _)| extent.sum > 0.0);
                let Some((mut state, output)) = read.next() else {
                    unreachable!("a row reads at least one position");
                };
                out.copy_from_slice(output);
                for (extent, output) in read {
                    merge(self.isa, (&mut state, out), extent, output);
                }
                self.finish(out, state, head);
            }
        }
    }

    /// Turns queries as the stored keys are; `turned` is empty where those are not.
    fn turn_queries<'q>(&self, queries: impl Iterator<Item = &'q [f32]>, turned: &mut [f32]) {
        let Some(codec) = self.cache.key_rotation() else { return };
        let heads = turned.chunks_exact_mut(codec.dim());
        for (q, turned) in queries.flat_map(|q| q.chunks_exact(codec.dim())).zip(heads) {
            turned.copy_from_slice(q);
            codec.rotate(turned);
        }
    }

    /// Turns a head's weighted stored values into its output.
    fn finish(&self, out: &mut [f32], state: Extent, head: usize) {
        finish(out, state, self.sinks.map(|sinks| sinks[head]));
        if let Some(codec) = self.cache.value_rotation() {
            codec.unrotate(out);
        }
    }

    /// The places of a block that a row reads for a kv head, a bit each, if there are any.
    fn places(&self, row: usize, kv_head: usize, block: usize) -> Option<u32> {
        let (visible, base) = (self.visible(row), block * KV_BLOCK);
        let (start, end) = (visible.start.max(base), visible.end.min(base + KV_BLOCK));
        let bits = |n: usize| if n == KV_BLOCK { u32::MAX } else { (1 << n) - 1 };
        let mut places = if start < end { bits(end - base) & !bits(start - base) } else { 0 };
        if let Some(chosen) = &self.chosen {
            let choice = kv_head * chosen.choices / self.cache.spec.heads;
            places &= chosen.words[row * chosen.choices + choice].get(block).copied().unwrap_or(0);
        }
        (places != 0).then_some(places)
    }

    /// The positions a row sees.
    fn visible(&self, row: usize) -> Range<usize> {
        let end = self.batch.positions[row] as usize + 1;
        self.window.map_or(0, |w| end.saturating_sub(w))..end
    }

    fn longest(&self) -> usize {
        self.batch.positions.iter().max().map_or(0, |p| *p as usize + 1)
    }
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
