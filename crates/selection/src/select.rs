//! The chain from a row of logits to one token.

use crate::arithmetic::{exp_of_non_positive, sum};
use crate::chain::Sampler;
use crate::cut::{Scale, cut_top_choices, keep_min_p, keep_top_p, keep_typical, keep_unsurprising};
use crate::error::SelectError;
use crate::history::History;
use crate::philox::{Purpose, draw_for};
use crate::row::{Scored, checked_max, first_of, keep_best};
use crate::shaping::Shaping;
use crate::weigh::prepare;
use foundation::{LogitValue, TokenId};

/// What a choice depends on beside the logits.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The tokens before it.
    pub history: &'a History,
    /// Absolute position of the token to be chosen; with the seed it fixes every random number.
    pub position: u64,
    /// The tokens allowed: token i is, if bit i % 32 of word i / 32 is set. Tokens beyond the last word are not.
    /// `None` allows all.
    pub mask: Option<&'a [u32]>,
}

impl<'a> Step<'a> {
    /// A choice among all tokens.
    pub fn new(history: &'a History, position: u64) -> Self {
        Self { history, position, mask: None }
    }

    /// A choice among the tokens whose bits are set, as [`Step::mask`] says.
    pub fn masked(self, mask: &'a [u32]) -> Self {
        Self { mask: Some(mask), ..self }
    }
}

/// A token with its probability after the chain.
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
    pub(crate) row: Vec<LogitValue>,
    pub(crate) best: Vec<Scored>,
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

/// Chooses a token.
///
/// `logits` is one raw row, `[vocab]`; −∞ masks a token. Tokens of the history without a logit
/// (placeholders beyond the vocabulary) have nothing to penalise and are passed over.
///
/// # Errors
/// A row that is empty, holds NaN or +∞ (masked or not), or in which nothing is left; a bias for a token without a logit.
pub fn select(
    logits: &[LogitValue],
    shaping: &Shaping,
    step: Step<'_>,
    scratch: &mut Scratch,
) -> Result<Candidate, SelectError> {
    match shape(logits, shaping, step, scratch)? {
        Shaped::One(token) => Ok(Candidate { token, probability: 1.0 }),
        Shaped::Many(ids) => {
            let u = draw_for(shaping.options().seed, step.position, Purpose::Token);
            let (index, total) = draw(&scratch.weights, u, &mut scratch.partial_sums);
            let probability = scratch.weights[index] / total;
            Ok(Candidate { token: ids.token(index, scratch), probability })
        }
    }
}

/// The distribution [`select`] draws from, most probable first, ties by id. Probabilities add
/// up to 1.
///
/// # Errors
/// As [`select`].
pub fn shaped_distribution(
    logits: &[LogitValue],
    shaping: &Shaping,
    step: Step<'_>,
    scratch: &mut Scratch,
) -> Result<Vec<Candidate>, SelectError> {
    let ids = match shape(logits, shaping, step, scratch)? {
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

/// What the chain left: one token, or weights in `Scratch::weights` in order of id.
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
    step: Step<'_>,
    scratch: &mut Scratch,
) -> Result<Shaped, SelectError> {
    let Scratch { row: prepared, best, scores, weights, .. } = scratch;
    let row = if prepare(logits, shaping, step, prepared)? { prepared.as_slice() } else { logits };
    let max = checked_max(row, step.position)?;
    if shaping.is_greedy() {
        return Ok(Shaped::One(TokenId(first_of(row, max) as u32)));
    }
    let scale = Scale { max: f64::from(max), per_degree: 1.0 };
    weights.clear();
    let mut candidates = Candidates { row, best, scores, weights, weighed: false, scale, ids: Ids::WholeRow };
    for sampler in shaping.options().samplers.order() {
        candidates.apply(*sampler, shaping, step);
    }
    candidates.weigh();
    Ok(Shaped::Many(candidates.ids))
}

/// The candidates on their way through the chain. Weights are made when a cut first needs them.
struct Candidates<'a> {
    row: &'a [LogitValue],
    best: &'a mut Vec<Scored>,
    /// Scores of `best`, in order of id.
    scores: &'a mut Vec<LogitValue>,
    weights: &'a mut Vec<f64>,
    weighed: bool,
    scale: Scale,
    ids: Ids,
}

impl Candidates<'_> {
    fn apply(&mut self, sampler: Sampler, shaping: &Shaping, step: Step<'_>) {
        let o = shaping.options();
        match sampler {
            // They changed the row before anything was cut.
            Sampler::Penalties | Sampler::Dry => {}
            Sampler::Temperature => self.set_temperature(f64::from(o.temperature)),
            Sampler::TopK if o.top_k > 0 => self.keep_top_k(o.top_k),
            Sampler::TopP if o.top_p < 1.0 => {
                self.weigh();
                let scores = match self.ids {
                    Ids::WholeRow => self.row,
                    Ids::Best => self.scores.as_slice(),
                };
                keep_top_p(scores, self.weights, f64::from(o.top_p), self.scale);
            }
            Sampler::MinP if o.min_p > 0.0 => {
                self.weigh();
                keep_min_p(self.weights, f64::from(o.min_p));
            }
            Sampler::TypicalP if o.typical_p < 1.0 => {
                self.weigh();
                keep_typical(self.weights, f64::from(o.typical_p));
            }
            Sampler::Xtc if shaping.has_xtc() => {
                let u = draw_for(o.seed, step.position, Purpose::Xtc);
                if u < f64::from(o.xtc_probability) {
                    self.weigh();
                    cut_top_choices(self.weights, f64::from(o.xtc_threshold));
                }
            }
            Sampler::Mirostat => {
                if let Some(mirostat) = o.mirostat {
                    self.weigh();
                    keep_unsurprising(self.weights, step.history.most_surprise(mirostat));
                }
            }
            Sampler::TopK | Sampler::TopP | Sampler::MinP | Sampler::TypicalP | Sampler::Xtc => {}
        }
    }

    /// Makes the weights, if they are not there.
    fn weigh(&mut self) {
        if self.weighed {
            return;
        }
        let scores = match self.ids {
            Ids::WholeRow => self.row,
            Ids::Best => self.scores.as_slice(),
        };
        self.weights.resize(scores.len(), 0.0);
        for (weight, score) in self.weights.iter_mut().zip(scores) {
            *weight = exp_of_non_positive(self.scale.exponent(*score));
        }
        self.weighed = true;
    }

    /// Divides the scores; what was cut stays cut.
    fn set_temperature(&mut self, temperature: f64) {
        self.scale.per_degree = 1.0 / temperature;
        if !self.weighed {
            return;
        }
        let scores = match self.ids {
            Ids::WholeRow => self.row,
            Ids::Best => self.scores.as_slice(),
        };
        // The best that is left weighs 1, so that the coldest temperature leaves it.
        let left = scores.iter().zip(&*self.weights).filter(|(_, weight)| **weight > 0.0);
        self.scale.max = f64::from(left.fold(f32::NEG_INFINITY, |max, (score, _)| max.max(*score)));
        for (weight, score) in self.weights.iter_mut().zip(scores) {
            *weight = if *weight > 0.0 { exp_of_non_positive(self.scale.exponent(*score)) } else { 0.0 };
        }
    }

    fn keep_top_k(&mut self, k: usize) {
        if self.weighed {
            self.keep_top_k_of_left(k);
        } else if k < self.row.len() {
            keep_best(self.row, k, self.best);
            self.best.sort_unstable_by_key(|scored| scored.id);
            self.scores.clear();
            self.scores.extend(self.best.iter().map(|scored| scored.score));
            self.ids = Ids::Best;
        }
    }

    /// The k best of what earlier cuts left.
    fn keep_top_k_of_left(&mut self, k: usize) {
        let mut left: Vec<(usize, f64)> = self.weights.iter().copied().enumerate().filter(|(_, w)| *w > 0.0).collect();
        if k >= left.len() {
            return;
        }
        left.select_nth_unstable_by(k, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        left[k..].iter().for_each(|(at, _)| self.weights[*at] = 0.0);
    }
}

/// The index at which the running sum of the weights passes `u` of the total, never one of
/// weight zero; and the total.
fn draw(weights: &[f64], u: f64, partial_sums: &mut Vec<f64>) -> (usize, f64) {
    const BLOCK: usize = 256;
    partial_sums.clear();
    partial_sums.extend(weights.chunks(BLOCK).map(sum));
    let total: f64 = partial_sums.iter().sum();
    let target = u * total;
    let mut before = 0.0;
    let mut last = 0;
    for (block_index, (block, block_total)) in weights.chunks(BLOCK).zip(&*partial_sums).enumerate() {
        if *block_total == 0.0 {
            continue;
        }
        let holds_target = before + block_total > target;
        let mut running = before;
        for (offset, weight) in block.iter().enumerate().filter(|_| holds_target) {
            running += weight;
            if *weight > 0.0 {
                last = block_index * BLOCK + offset;
                if running > target {
                    return (last, total);
                }
            }
        }
        if holds_target {
            return (last, total);
        }
        before += block_total;
    }
    // Rounding left the target at the total: the last token that can be drawn.
    (weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(last), total)
}
