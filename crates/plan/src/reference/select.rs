//! `IndexSelect`: which blocks of positions attention reads (MiniMax M3's indexer, Qwen4's QSA).

use super::{Keys, largest, norm, rotate};
use crate::step::Select;
use model::Pairing;

/// The rotated norm of a block's mean key, as at the block's first position.
#[derive(Clone, Copy, Debug)]
pub struct MeanKey<'a> {
    /// Of the mean, if any.
    pub weight: Option<&'a [f32]>,
    /// Added to the mean square.
    pub eps: f32,
    /// Angular frequencies.
    pub frequencies: &'a [f32],
    /// Factor on cosines and sines.
    pub amplitude: f32,
    /// Which channels pair up.
    pub pairing: Pairing,
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// One index head's choice: blocks by the largest `q · k` of their visible keys, the `local` last blocks first.
pub fn by_largest_key(q: &[f32], keys: &impl Keys, position: usize, block: usize, local: usize) -> Vec<f32> {
    let own = position / block;
    let score = |b: usize| {
        if b + local > own {
            return f32::INFINITY;
        }
        let visible = b * block..((b + 1) * block).min(position + 1);
        visible.map(|p| dot(q, keys.key(p))).fold(f32::NEG_INFINITY, f32::max)
    };
    (0..=own).map(score).collect()
}

/// The scores of all complete blocks, `Σ over heads relu(q · k)` with `k` from the block's mean key.
pub fn by_mean_key(q: &[f32], keys: &impl Keys, position: usize, block: usize, mean: &MeanKey<'_>) -> Vec<f32> {
    let score = |b: usize| {
        let dim = keys.key(0).len();
        let mut sum = vec![0.0; dim];
        for p in b * block..(b + 1) * block {
            sum.iter_mut().zip(keys.key(p)).for_each(|(sum, k)| *sum += k);
        }
        let average: Vec<f32> = sum.iter().map(|s| s / block as f32).collect();
        let mut key = vec![0.0; dim];
        norm(&average, mean.weight, mean.eps, &mut key);
        rotate(&mut key, (b * block) as u32, mean.frequencies, mean.amplitude, mean.pairing);
        q.chunks(dim).map(|q| dot(q, &key).max(0.0)).sum()
    };
    (0..(position + 1) / block).map(score).collect()
}

/// Writes the numbers of the best blocks, and -1 where there are fewer than fit.
pub fn choose(scores: &[f32], to: &mut [f32]) {
    to.fill(-1.0);
    for (to, block) in to.iter_mut().zip(largest(scores, scores.len())) {
        *to = block as f32;
    }
}

/// Whether a row at `row` reads `position`, by the blocks chosen for its head.
pub fn reads(select: &Select, chosen: &[f32], row: usize, position: usize) -> bool {
    let complete = (row + 1) / select.block * select.block;
    select.tail && position >= complete || chosen.contains(&((position / select.block) as f32))
}
