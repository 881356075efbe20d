//! The cuts: each sets weights of tokens to zero and leaves one at least.
//!
//! Weights are relative, in order of id; their sum is not 1. A weight of zero is a token already cut.

use crate::arithmetic::{exp_of_non_positive, ln, sum};
use crate::row::Scored;
use foundation::LogitValue;

/// Turns scores into exponents relative to the best one, temperature applied.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) max: f64,
    pub(crate) per_degree: f64,
}

impl Scale {
    #[inline(always)]
    pub(crate) fn exponent(self, score: LogitValue) -> f64 {
        (f64::from(score) - self.max) * self.per_degree
    }
}

/// Sets to zero the weights after the one with which the best reach `top_p` of the total.
///
/// Weights are added up in bins of equal exponent range; only the bin in which the sum crosses
/// is sorted.
pub(crate) fn keep_top_p(scores: &[LogitValue], weights: &mut [f64], top_p: f64, scale: Scale) {
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
        let crosses = *mass > 0.0 && before + mass >= target;
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
    for scored in &ranked {
        let weight = &mut weights[scored.id as usize];
        // With nothing before it, the best token stays whatever top_p is.
        if reached == 0.0 || reached < target {
            reached += *weight;
        } else {
            *weight = 0.0;
        }
    }
}

/// Cuts weights below `min_p` of the greatest.
pub(crate) fn keep_min_p(weights: &mut [f64], min_p: f64) {
    let least = min_p * greatest(weights);
    for weight in weights.iter_mut() {
        *weight = if *weight >= least { *weight } else { 0.0 };
    }
}

/// Locally typical sampling: keeps the tokens whose surprise is nearest to the entropy, the fewest that reach `typical_p`
/// of the mass. Equally near tokens: the more probable first, then the lower id.
///
/// Meister, Pimentel, Wiher, Cotterell, "Locally typical sampling", TACL 2023.
pub(crate) fn keep_typical(weights: &mut [f64], typical_p: f64) {
    let total = sum(weights);
    let ln_total = ln(total);
    // A subnormal weight has no logarithm here, and no part in the mass.
    let surprise = |weight: f64| ln_total - ln(weight);
    let alive = |weight: f64| weight >= f64::MIN_POSITIVE;
    let entropy: f64 = weights.iter().filter(|w| alive(**w)).map(|w| w / total * surprise(*w)).sum();
    let mut ranked: Vec<(f64, f64, usize)> = weights
        .iter()
        .enumerate()
        .filter(|(_, w)| alive(**w))
        .map(|(at, w)| ((surprise(*w) - entropy).abs(), *w, at))
        .collect();
    ranked.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
    let target = typical_p * total;
    let mut reached = 0.0;
    weights.fill(0.0);
    for (_, weight, at) in ranked {
        if reached > 0.0 && reached >= target {
            return;
        }
        weights[at] = weight;
        reached += weight;
    }
}

/// Exclude top choices: where two tokens or more reach `threshold` of the mass, cuts all of them but the least probable
/// (of equals, the one with the highest id).
pub(crate) fn cut_top_choices(weights: &mut [f64], threshold: f64) {
    let least = threshold * sum(weights);
    let reaches = |weight: f64| weight > 0.0 && weight >= least;
    let above = weights.iter().enumerate().filter(|(_, w)| reaches(**w));
    let Some((kept, _)) = above.min_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0))) else {
        return;
    };
    for (at, weight) in weights.iter_mut().enumerate() {
        if at != kept && reaches(*weight) {
            *weight = 0.0;
        }
    }
}

/// Mirostat 2: cuts the tokens whose surprise is above `most` bits; the best stays whatever that is.
///
/// Basu, Ramachandran, Keskar, Varshney, "Mirostat: a neural text decoding algorithm that directly controls perplexity",
/// ICLR 2021.
pub(crate) fn keep_unsurprising(weights: &mut [f64], most: f64) {
    let total = sum(weights);
    let least = total * exp_of_non_positive(-most.max(0.0) * std::f64::consts::LN_2);
    let best = greatest(weights);
    let mut found = false;
    for weight in weights.iter_mut() {
        // Of several best ones that are all too surprising, the first stays.
        let stays = *weight >= least || (best < least && *weight == best && !found);
        found |= stays;
        *weight = if stays { *weight } else { 0.0 };
    }
}

fn greatest(weights: &[f64]) -> f64 {
    let mut lanes = [0f64; 8];
    let chunks = weights.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, weight) in lanes.iter_mut().zip(chunk) {
            *lane = if *weight > *lane { *weight } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(0.0, |max, weight| if *weight > max { *weight } else { max })
}
