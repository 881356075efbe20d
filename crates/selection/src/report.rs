//! Log-probabilities for reports: the model's, of the raw logits before penalties, temperature and cuts; and those after
//! the chain.

use foundation::{LogitValue, TokenId};

use crate::arithmetic::{exp_of_non_positive, ln, sum};
use crate::error::SelectError;
use crate::row::{Scored, checked_max, keep_best};
use crate::select::{Candidate, Scratch, Step, shaped_distribution};
use crate::shaping::Shaping;

/// The least log-probability reported, so that every number is finite.
pub const LOGPROB_FLOOR: f64 = -9999.0;

/// A token and the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProb {
    /// The token.
    pub token: TokenId,
    /// Natural logarithm, from [`LOGPROB_FLOOR`] to 0.
    pub logprob: f64,
}

/// The chosen token beside the best ones.
#[derive(Clone, Debug, PartialEq)]
pub struct LogProbs {
    /// The chosen token, also when it is not among the best.
    pub chosen: LogProb,
    /// The best tokens, most probable first, ties by id.
    pub top: Vec<LogProb>,
}

/// The log-probability of each of `ids` under the softmax of `logits`, `[vocab]`.
///
/// # Errors
/// As [`select`](crate::select), and an id without a logit.
pub fn log_softmax(logits: &[LogitValue], ids: &[TokenId], position: u64) -> Result<Vec<f64>, SelectError> {
    let normaliser = Normaliser::of(logits, position)?;
    ids.iter().map(|id| normaliser.logprob(logits, *id)).collect()
}

/// The log-probability of the chosen token and of the `top` best, under the softmax of the raw logits.
///
/// # Errors
/// As [`log_softmax`].
pub fn logprobs(logits: &[LogitValue], chosen: TokenId, top: usize, position: u64) -> Result<LogProbs, SelectError> {
    let normaliser = Normaliser::of(logits, position)?;
    let report = |token| normaliser.logprob(logits, token).map(|logprob| LogProb { token, logprob });
    let mut best = Vec::new();
    if top > 0 {
        keep_best(logits, top, &mut best);
        best.sort_unstable_by(Scored::best_first);
    }
    Ok(LogProbs {
        chosen: report(chosen)?,
        top: best.iter().map(|scored| report(TokenId(scored.id))).collect::<Result<_, _>>()?,
    })
}

/// The log-probability of the chosen token and of the `top` best in the distribution that was drawn from.
///
/// # Errors
/// As [`select`](crate::select).
pub fn shaped_logprobs(
    logits: &[LogitValue],
    shaping: &Shaping,
    step: Step<'_>,
    (chosen, top): (Candidate, usize),
    scratch: &mut Scratch,
) -> Result<LogProbs, SelectError> {
    let report = |c: &Candidate| LogProb { token: c.token, logprob: ln(c.probability).clamp(LOGPROB_FLOOR, 0.0) };
    let all = if top > 0 { shaped_distribution(logits, shaping, step, scratch)? } else { Vec::new() };
    Ok(LogProbs { chosen: report(&chosen), top: all.iter().take(top).map(report).collect() })
}

/// log Σ exp(logit), as the greatest logit and the rest.
struct Normaliser {
    max: f64,
    ln_sum: f64,
}

impl Normaliser {
    fn of(logits: &[LogitValue], position: u64) -> Result<Self, SelectError> {
        const BLOCK: usize = 256;
        let max = f64::from(checked_max(logits, position)?);
        let mut total = 0.0;
        for block in logits.chunks(BLOCK) {
            let mut weights = [0f64; BLOCK];
            for (weight, logit) in weights.iter_mut().zip(block) {
                *weight = exp_of_non_positive(f64::from(*logit) - max);
            }
            total += sum(&weights);
        }
        Ok(Self { max, ln_sum: ln(total) })
    }

    fn logprob(&self, logits: &[LogitValue], id: TokenId) -> Result<f64, SelectError> {
        let logit = logits.get(id.index()).ok_or(SelectError::NoSuchToken { id, len: logits.len() })?;
        Ok(((f64::from(*logit) - self.max) - self.ln_sum).clamp(LOGPROB_FLOOR, 0.0))
    }
}
