//! `Route` and `Experts`: a mixture of experts (Shazeer et al. 2017).

use super::activation::sigmoid;
use model::{Routing, Score};

/// The chosen experts of one row with their weights, by rank; ties go to the lower number.
///
/// `choice_bias` joins the scores for the choice only; `expert_scale` multiplies the final weights.
pub fn route(
    logits: &[f32],
    routing: &Routing,
    choice_bias: Option<&[f32]>,
    expert_scale: Option<&[f32]>,
) -> Vec<(usize, f32)> {
    let scores: Vec<f32> = match routing.score {
        Score::Softmax => softmax(logits),
        Score::Sigmoid => logits.iter().map(|z| sigmoid(*z)).collect(),
        Score::SoftmaxOfChosen => logits.to_vec(),
    };
    let mut merit: Vec<f32> = scores.iter().enumerate().map(|(e, s)| s + choice_bias.map_or(0.0, |b| b[e])).collect();
    if let Some(groups) = routing.groups {
        let size = merit.len() / groups.count;
        let best: Vec<f32> = merit.chunks(size).map(|g| g.iter().copied().fold(f32::NEG_INFINITY, f32::max)).collect();
        let stay = largest(&best, groups.chosen);
        for (group, merit) in merit.chunks_mut(size).enumerate().filter(|(group, _)| !stay.contains(group)) {
            debug_assert!(group < groups.count);
            merit.fill(f32::NEG_INFINITY);
        }
    }
    let chosen = largest(&merit, routing.top_k);
    let mut weights: Vec<f32> = chosen.iter().map(|e| scores[*e]).collect();
    if routing.score == Score::SoftmaxOfChosen {
        weights = softmax(&weights);
    }
    let sum: f32 = if routing.renormalise { weights.iter().sum() } else { 1.0 };
    let scaled = |(e, w): (usize, f32)| (e, w / sum * routing.scale * expert_scale.map_or(1.0, |s| s[e]));
    chosen.into_iter().zip(weights).map(scaled).collect()
}

/// The places of the `count` largest values, largest first; ties go to the lower place.
pub fn largest(values: &[f32], count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..values.len()).collect();
    places.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
    places.truncate(count);
    places
}

fn softmax(logits: &[f32]) -> Vec<f32> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = logits.iter().map(|z| (z - max).exp()).sum();
    logits.iter().map(|z| (z - max).exp() / sum).collect()
}
