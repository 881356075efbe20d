//! The chain from a row of logits to one token.

use std::cmp::Ordering;

use foundation::{LogitValue, TokenId};
use thiserror::Error;

use crate::arithmetic::{exp_of_non_positive, sum};
use crate::history::History;
use crate::philox::uniform;
use crate::shaping::Shaping;

/// Why a row of logits gives no token.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SelectError {
    /// The row has no entries.
    #[error("the row of logits is empty; expected one logit per vocabulary entry")]
    Empty,
    /// A logit is not a number.
    #[error(
        "logit {index} of {len} is NaN; the forward pass or the weights are broken, and no token \
         can be chosen"
    )]
    NotANumber {
        /// The first such entry.
        index: usize,
        /// Length of the row.
        len: usize,
    },
    /// A logit is +∞, which leaves no distribution.
    #[error(
        "logit {index} of {len} is +infinity; the forward pass overflowed, and no token can be \
         chosen"
    )]
    PositiveInfinity {
        /// The first such entry.
        index: usize,
        /// Length of the row.
        len: usize,
    },
    /// Every logit is −∞.
    #[error(
        "all {len} logits are -infinity: every token is masked; a grammar or bias that masks must \
         leave one token"
    )]
    AllMasked {
        /// Length of the row.
        len: usize,
    },
    /// A token asked about has no logit.
    #[error("token {id} has no logit: the row has {len} entries")]
    NoSuchToken {
        /// The token.
        id: TokenId,
        /// Length of the row.
        len: usize,
    },
}

/// A token with its probability after shaping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token.
    pub token: TokenId,
    /// Its probability among the candidates that remained, greater than 0.
    pub probability: f64,
}

/// Buffers reused from one token to the next; holds no state that changes a result.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    penalised: Vec<LogitValue>,
    best: Vec<Scored>,
    scores: Vec<LogitValue>,
    weights: Vec<f64>,
    partial_sums: Vec<f64>,
}

impl Scratch {
    /// Empty buffers; the first token sizes them.
    pub fn new() -> Self {
        Self::default()
    }
}

/// Chooses the token at absolute `position` of a sequence.
///
/// `logits` is one raw row, `[vocab]`; −∞ masks a token. Tokens of the history without a logit
/// (placeholders beyond the vocabulary) have nothing to penalise and are passed over.
///
/// # Errors
/// A row that is empty, holds NaN or +∞, or masks every token.
pub fn select(
    logits: &[LogitValue],
    shaping: &Shaping,
    history: &History,
    position: u64,
    scratch: &mut Scratch,
) -> Result<TokenId, SelectError> {
    match shape(logits, shaping, history, scratch)? {
        Shaped::One(token) => Ok(token),
        Shaped::Many(ids) => {
            let u = uniform(shaping.options().seed, position);
            let index = draw(&scratch.weights, u, &mut scratch.partial_sums);
            Ok(ids.token(index, scratch))
        }
    }
}

/// The distribution [`select`] draws from, most probable first, ties by id. Probabilities add
/// up to 1.
///
/// # Errors
/// As [`select`].
pub fn distribution(
    logits: &[LogitValue],
    shaping: &Shaping,
    history: &History,
    scratch: &mut Scratch,
) -> Result<Vec<Candidate>, SelectError> {
    let ids = match shape(logits, shaping, history, scratch)? {
        Shaped::One(token) => {
            return Ok(vec![Candidate { token, probability: 1.0 }]);
        }
        Shaped::Many(ids) => ids,
    };
    let total = sum(&scratch.weights);
    let mut candidates: Vec<Candidate> = scratch
        .weights
        .iter()
        .enumerate()
        .filter(|(_, weight)| **weight > 0.0)
        .map(|(index, weight)| Candidate { token: ids.token(index, scratch), probability: weight / total })
        .collect();
    candidates.sort_by(|a, b| b.probability.total_cmp(&a.probability));
    Ok(candidates)
}

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

/// What shaping left: one token, or weights in `Scratch::weights` in order of id.
enum Shaped {
    One(TokenId),
    Many(Ids),
}

/// Which token a weight belongs to.
#[derive(Clone, Copy)]
enum Ids {
    /// Weight i is token i.
    WholeRow,
    /// Weight i is token `Scratch::best[i].id`.
    Best,
}

impl Ids {
    fn token(self, index: usize, scratch: &Scratch) -> TokenId {
        match self {
            Self::WholeRow => TokenId(index as u32),
            Self::Best => TokenId(scratch.best[index].id),
        }
    }
}

fn shape(
    logits: &[LogitValue],
    shaping: &Shaping,
    history: &History,
    scratch: &mut Scratch,
) -> Result<Shaped, SelectError> {
    let Scratch { penalised, best, scores, weights, .. } = scratch;
    let row = if shaping.has_penalties() && !history.is_empty() {
        penalise(logits, shaping, history, penalised);
        penalised.as_slice()
    } else {
        logits
    };
    let max = checked_max(row)?;
    let options = shaping.options();
    if shaping.is_greedy() {
        let first = first_of(row, max);
        return Ok(Shaped::One(TokenId(first as u32)));
    }
    let (ids, scores) = if options.top_k == 0 || options.top_k >= row.len() {
        (Ids::WholeRow, row)
    } else {
        keep_best(row, options.top_k, best);
        best.sort_unstable_by_key(|scored| scored.id);
        scores.clear();
        scores.extend(best.iter().map(|scored| scored.score));
        (Ids::Best, scores.as_slice())
    };
    let scale = Scale { max: f64::from(max), per_degree: 1.0 / f64::from(options.temperature) };
    weights.clear();
    weights.resize(scores.len(), 0.0);
    for (weight, score) in weights.iter_mut().zip(scores) {
        *weight = exp_of_non_positive(scale.exponent(*score));
    }
    if options.top_p < 1.0 {
        keep_top_p(scores, weights, f64::from(options.top_p), scale);
    }
    if options.min_p > 0.0 {
        // The best token weighs exactly 1.
        let least = f64::from(options.min_p);
        for weight in weights.iter_mut() {
            *weight = if *weight >= least { *weight } else { 0.0 };
        }
    }
    Ok(Shaped::Many(ids))
}

/// Turns scores into exponents relative to the best one, temperature applied.
#[derive(Clone, Copy)]
struct Scale {
    max: f64,
    per_degree: f64,
}

impl Scale {
    #[inline(always)]
    fn exponent(self, score: LogitValue) -> f64 {
        (f64::from(score) - self.max) * self.per_degree
    }
}

/// Copies the row and changes the logits of the tokens in the history; a finite logit stays
/// finite.
fn penalise(logits: &[LogitValue], shaping: &Shaping, history: &History, penalised: &mut Vec<LogitValue>) {
    let options = shaping.options();
    penalised.clear();
    penalised.extend_from_slice(logits);
    for count in history.counts() {
        let Some(logit) = penalised.get_mut(count.id.index()) else {
            continue;
        };
        if !logit.is_finite() {
            continue;
        }
        if count.prompt + count.generated > 0 {
            *logit =
                if *logit > 0.0 { *logit / options.repetition_penalty } else { *logit * options.repetition_penalty };
        }
        if count.generated > 0 {
            *logit -= options.presence_penalty;
            *logit -= options.frequency_penalty * count.generated as f32;
        }
        *logit = logit.clamp(f32::MIN, f32::MAX);
    }
}

/// The greatest logit of a row in which every value is finite or −∞ and one at least is finite.
pub(crate) fn checked_max(row: &[LogitValue]) -> Result<LogitValue, SelectError> {
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
        return Err(if row[index].is_nan() {
            SelectError::NotANumber { index, len }
        } else {
            SelectError::PositiveInfinity { index, len }
        });
    }
    let max = max.into_iter().fold(f32::NEG_INFINITY, f32::max);
    if len == 0 {
        Err(SelectError::Empty)
    } else if max == f32::NEG_INFINITY {
        Err(SelectError::AllMasked { len })
    } else {
        Ok(max)
    }
}

/// The first entry equal to `max`.
fn first_of(row: &[LogitValue], max: LogitValue) -> usize {
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

/// Sets to zero the weights after the one with which the best reach `top_p` of the total.
///
/// Weights are added up in bins of equal exponent range; only the bin in which the sum crosses
/// is sorted.
fn keep_top_p(scores: &[LogitValue], weights: &mut [f64], top_p: f64, scale: Scale) {
    const BINS: usize = 1024;
    const PER_UNIT: f64 = 16.0;
    const BLOCK: usize = 64;
    let depth_of = |score: LogitValue| -scale.exponent(score) * PER_UNIT;
    let mut bins = [0f64; BINS];
    for (score, weight) in scores.iter().zip(&*weights) {
        bins[(depth_of(*score) as usize).min(BINS - 1)] += weight;
    }
    let target = top_p * bins.iter().sum::<f64>();
    let mut before = 0.0;
    let Some(crossing) = bins.iter().position(|mass| {
        let crosses = before + mass >= target;
        if !crosses {
            before += mass;
        }
        crosses
    }) else {
        return;
    };
    let from = crossing as f64;
    let to = if crossing == BINS - 1 { f64::INFINITY } else { from + 1.0 };
    let mut ranked = Vec::new();
    let blocks = scores.chunks(BLOCK).zip(weights.chunks_mut(BLOCK)).enumerate();
    for (block_index, (scores, weights)) in blocks {
        let mut any = false;
        for (score, weight) in scores.iter().zip(weights) {
            let depth = depth_of(*score);
            any |= (depth >= from) & (depth < to);
            *weight = if depth < to { *weight } else { 0.0 };
        }
        for (offset, &score) in scores.iter().enumerate().filter(|_| any) {
            if (from..to).contains(&depth_of(score)) {
                ranked.push(Scored { id: (block_index * BLOCK + offset) as u32, score });
            }
        }
    }
    ranked.sort_unstable_by(Scored::best_first);
    let mut reached = before;
    for (rank, scored) in ranked.iter().enumerate() {
        let weight = &mut weights[scored.id as usize];
        // With nothing before it, the best token stays whatever top_p is.
        let first = rank == 0 && crossing == 0;
        if first || reached < target {
            reached += *weight;
        } else {
            *weight = 0.0;
        }
    }
}

/// The index at which the running sum of the weights passes `u` of the total; never one of
/// weight zero.
fn draw(weights: &[f64], u: f64, partial_sums: &mut Vec<f64>) -> usize {
    const BLOCK: usize = 256;
    partial_sums.clear();
    partial_sums.extend(weights.chunks(BLOCK).map(sum));
    let target = u * partial_sums.iter().sum::<f64>();
    let mut before = 0.0;
    let mut last = 0;
    for (block_index, (block, total)) in weights.chunks(BLOCK).zip(&*partial_sums).enumerate() {
        if *total == 0.0 {
            continue;
        }
        let holds_target = before + total > target;
        let mut running = before;
        for (offset, weight) in block.iter().enumerate().filter(|_| holds_target) {
            running += weight;
            if *weight > 0.0 {
                last = block_index * BLOCK + offset;
                if running > target {
                    return last;
                }
            }
        }
        if holds_target {
            return last;
        }
        before += total;
    }
    // Rounding left the target at the total: the last token that can be drawn.
    weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(last)
}
