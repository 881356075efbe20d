//! One pass over a row of logits: its greatest entry, its best entries.

use crate::error::SelectError;
use foundation::{LogitValue, TokenId};
use std::cmp::Ordering;

/// A token with its score, ordered best first and then by id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scored {
    pub(crate) id: u32,
    pub(crate) score: LogitValue,
}

impl Scored {
    pub(crate) fn best_first(a: &Self, b: &Self) -> Ordering {
        b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
    }
}

/// The greatest logit of a row in which every value is finite or −∞ and one at least is finite.
pub(crate) fn checked_max(row: &[LogitValue], position: u64) -> Result<LogitValue, SelectError> {
    const LANES: usize = 16;
    let mut max = [f32::NEG_INFINITY; LANES];
    let mut refused = [0u32; LANES];
    let chunks = row.chunks_exact(LANES);
    let rest = chunks.remainder();
    let mut take = |chunk: &[LogitValue]| {
        for ((max, refused), &score) in max.iter_mut().zip(&mut refused).zip(chunk) {
            *max = if score > *max { score } else { *max };
            *refused |= u32::from(score.is_nan()) | u32::from(score == f32::INFINITY);
        }
    };
    chunks.for_each(&mut take);
    take(rest);
    let len = row.len();
    if refused != [0; LANES]
        && let Some(index) = row.iter().position(|x| x.is_nan() || *x == f32::INFINITY)
    {
        let token = TokenId(index as u32);
        return Err(if row[index].is_nan() {
            SelectError::NotANumber { token, len, position }
        } else {
            SelectError::PositiveInfinity { token, len, position }
        });
    }
    let max = max.into_iter().fold(f32::NEG_INFINITY, f32::max);
    if len == 0 {
        Err(SelectError::Empty { position })
    } else if max == f32::NEG_INFINITY {
        Err(SelectError::AllMasked { len, position })
    } else {
        Ok(max)
    }
}

/// The first entry equal to `max`.
pub(crate) fn first_of(row: &[LogitValue], max: LogitValue) -> usize {
    const BLOCK: usize = 64;
    let holds = |block: &[LogitValue]| block.iter().fold(false, |any, x| any | (*x == max));
    let block = row.chunks(BLOCK).position(holds).unwrap_or(0) * BLOCK;
    block + row[block..].iter().position(|score| *score == max).unwrap_or(0)
}

/// Leaves the `k` best unmasked entries of the row in `best`, in no particular order.
///
/// One pass: entries above the k-th best so far are collected, and the collection is cut back to
/// k whenever it has doubled. A later entry equal to the k-th best has a higher id and loses.
pub(crate) fn keep_best(row: &[LogitValue], k: usize, best: &mut Vec<Scored>) {
    const BLOCK: usize = 64;
    best.clear();
    let full = k.max(256).saturating_mul(2);
    let mut threshold = f32::NEG_INFINITY;
    for (block_index, block) in row.chunks(BLOCK).enumerate() {
        if !block.iter().fold(false, |any, score| any | (*score > threshold)) {
            continue;
        }
        for (offset, &score) in block.iter().enumerate() {
            if score > threshold {
                best.push(Scored { id: (block_index * BLOCK + offset) as u32, score });
            }
        }
        if best.len() >= full {
            cut(best, k);
            threshold = best[k - 1].score;
        }
    }
    cut(best, k);
}

/// Keeps the `k` best; the last of them ends up at `k - 1`.
fn cut(best: &mut Vec<Scored>, k: usize) {
    if k == 0 {
        best.clear();
    } else if best.len() > k {
        best.select_nth_unstable_by(k - 1, Scored::best_first);
        best.truncate(k);
    }
}
