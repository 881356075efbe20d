//! `IndexSelect`: scores of blocks of keys, and the best of them.

use super::{Compiled, Engine};
use crate::attention::with_scratch;
use crate::cache::Cache;
use crate::isa::Isa;
use crate::kernels::attention::{KEYS, scores};
use crate::kernels::{math, rope};
use crate::runs::{Run, runs};
use plan::reference::choose;
use plan::{Batch, BlockScore, KV_BLOCK, Slot, StateId};

impl Compiled {
    pub(super) fn select(
        &mut self,
        engine: &Engine,
        q: Slot,
        (state, heads, block): (StateId, usize, usize),
        score: &BlockScore,
        to: Slot,
        batch: &Batch<'_>,
    ) {
        let (width, q_width) = (self.width(to), self.width(q));
        self.write(to, batch, |this, to| {
            let (q, cache) = (this.values(q, batch), this.states[state.0 as usize].cache());
            for run in runs(batch) {
                let means = match score {
                    BlockScore::LargestKey { .. } => Vec::new(),
                    BlockScore::MeanKey { .. } => this.mean_keys(engine.isa, score, cache, &run, (block, batch)),
                };
                let rows = &mut to[run.rows.start * width..run.rows.end * width];
                engine.rows(rows, width, &|row, to| {
                    let row = run.rows.start + row;
                    let (q, position) = (&q[row * q_width..][..q_width], batch.positions[row] as usize);
                    let dim = q_width / heads;
                    match score {
                        BlockScore::LargestKey { local } => {
                            let count = width / heads;
                            for (q, to) in q.chunks_exact(dim).zip(to.chunks_exact_mut(count)) {
                                choose(&largest_keys(engine.isa, q, cache, &run, (position, block, *local)), to);
                            }
                        }
                        BlockScore::MeanKey { .. } => {
                            let complete = (position + 1) / block;
                            let means = means.chunks_exact(dim).take(complete);
                            choose(&means.map(|k| relu_dots(q, k)).collect::<Vec<_>>(), to);
                        }
                    }
                });
            }
        });
    }

    /// The rotated norms of the mean keys of all complete blocks of a sequence.
    fn mean_keys(
        &self,
        isa: Isa,
        score: &BlockScore,
        cache: &Cache,
        run: &Run<'_>,
        (block, batch): (usize, &Batch<'_>),
    ) -> Vec<f32> {
        let &BlockScore::MeanKey { norm, eps, rope } = score else {
            unreachable!("only mean keys have means");
        };
        let (dim, end) = (cache.spec.k_dim, batch.positions[run.rows.end - 1] as usize + 1);
        let mut means = vec![0.0; end / block * dim];
        let (mut angles, blocks) = (Vec::new(), run.sequence.blocks(cache.spec.window));
        let spec = &self.program.ropes[rope.0 as usize];
        for (b, mean) in means.chunks_exact_mut(dim).enumerate() {
            for p in b * block..(b + 1) * block {
                cache.add_key(blocks[p / KV_BLOCK], p % KV_BLOCK, mean);
            }
            mean.iter_mut().for_each(|x| *x /= block as f32);
            math::rms_norm_in_place(isa, mean, self.vector(norm), eps);
            rope::angles(&[(b * block) as u32], &self.frequencies[rope.0 as usize], spec.amplitude(), &mut angles);
            rope::rotate(mean, &angles, spec.pairing);
        }
        means
    }
}

/// The scores of one index head: the largest product of each block's visible keys, the `local` last blocks first.
fn largest_keys(
    isa: Isa,
    q: &[f32],
    cache: &Cache,
    run: &Run<'_>,
    (position, block, local): (usize, usize, usize),
) -> Vec<f32> {
    let own = position / block;
    let mut best = vec![f32::NEG_INFINITY; own + 1];
    with_scratch(KEYS, |products| {
        for (index, id) in run.sequence.blocks(cache.spec.window).iter().enumerate().take(position / KV_BLOCK + 1) {
            scores(isa, q, cache.keys(*id), products);
            for (place, product) in products.iter().enumerate() {
                let p = index * KV_BLOCK + place;
                if p <= position && *product > best[p / block] {
                    best[p / block] = *product;
                }
            }
        }
    });
    best.iter_mut().rev().take(local).for_each(|score| *score = f32::INFINITY);
    best
}

fn relu_dots(q: &[f32], k: &[f32]) -> f32 {
    let dot = |q: &[f32]| q.iter().zip(k).fold(0.0f32, |sum, (q, k)| q.mul_add(*k, sum));
    q.chunks_exact(k.len()).map(|q| dot(q).max(0.0)).sum()
}
