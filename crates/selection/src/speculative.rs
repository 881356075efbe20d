//! Accepting drafted tokens so that the tokens kept are distributed as the target's own.
//!
//! Leviathan, Kalman, Matias, "Fast inference from transformers via speculative decoding", ICML 2023.

use crate::philox::{Purpose, draw_for};
use crate::select::Candidate;
use foundation::TokenId;

/// Below this the two distributions are the same but for rounding.
const NO_MASS: f64 = 1e-12;

/// What becomes of a drafted token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays.
    Accepted,
    /// This token comes instead, and what was drafted after it is void.
    Replaced(TokenId),
}

/// Where the random numbers of a verdict come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The sequence's seed.
    pub seed: u64,
    /// The token's absolute position.
    pub position: u64,
}

/// Keeps `drafted` with probability min(1, p/q), else draws from the [`residual`].
///
/// `target` and `draft` are what [`shaped_distribution`](crate::shaped_distribution) gave for this position, and `drafted`
/// was drawn from `draft`. The draws are independent of the one that [`select`](crate::select) makes at the position.
pub fn verify(target: &[Candidate], draft: &[Candidate], drafted: TokenId, draw: Draw) -> Verdict {
    let (p, q) = (probability(target, drafted), probability(draft, drafted));
    if draw_for(draw.seed, draw.position, Purpose::Acceptance) * q < p {
        return Verdict::Accepted;
    }
    let u = draw_for(draw.seed, draw.position, Purpose::Replacement);
    let left = residual(target, draft);
    let mut running = 0.0;
    let passes = |candidate: &&Candidate| {
        running += candidate.probability;
        running > u
    };
    // Rounding may leave the sum below the draw: then the last one.
    let token = left.iter().find(passes).or(left.last()).map_or(drafted, |candidate| candidate.token);
    Verdict::Replaced(token)
}

/// max(0, p − q), made to add up to 1, in order of id; the target itself where nothing is left.
pub fn residual(target: &[Candidate], draft: &[Candidate]) -> Vec<Candidate> {
    let mut draft = draft.to_vec();
    draft.sort_unstable_by_key(|candidate| candidate.token);
    let q = |token| draft.binary_search_by_key(&token, |c| c.token).map_or(0.0, |at| draft[at].probability);
    let mut left: Vec<Candidate> = target
        .iter()
        .map(|c| Candidate { token: c.token, probability: c.probability - q(c.token) })
        .filter(|c| c.probability > 0.0)
        .collect();
    left.sort_unstable_by_key(|candidate| candidate.token);
    let mass: f64 = left.iter().map(|c| c.probability).sum();
    if mass <= NO_MASS {
        let mut all = target.to_vec();
        all.sort_unstable_by_key(|candidate| candidate.token);
        return all;
    }
    left.iter_mut().for_each(|c| c.probability /= mass);
    left
}

fn probability(distribution: &[Candidate], token: TokenId) -> f64 {
    distribution.iter().find(|candidate| candidate.token == token).map_or(0.0, |candidate| candidate.probability)
}
