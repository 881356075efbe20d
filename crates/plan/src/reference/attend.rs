//! `Attend`: `to = softmax(scale · q kᵀ) v` over the visible positions (Vaswani et al. 2017, eq. 1).

/// The stored keys and values of one head, by position.
pub trait Keys {
    /// The key at a position.
    fn key(&self, position: usize) -> &[f32];
    /// The value at a position.
    fn value(&self, position: usize) -> &[f32];
}

/// The positions a row at `position` sees: `(position - window, position]`.
pub fn visible(position: usize, window: Option<usize>) -> std::ops::RangeInclusive<usize> {
    window.map_or(0, |w| (position + 1).saturating_sub(w))..=position
}

/// One query head over the positions it reads; `sink` is a logit without a value that joins the softmax.
pub fn attend(q: &[f32], cache: &impl Keys, positions: &[usize], scale: f32, sink: Option<f32>, to: &mut [f32]) {
    let score = |p: &usize| scale * q.iter().zip(cache.key(*p)).map(|(q, k)| q * k).sum::<f32>();
    let scores: Vec<f32> = positions.iter().map(score).collect();
    let max = scores.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = scores.iter().chain(&sink).map(|s| (s - max).exp()).sum();
    to.fill(0.0);
    for (p, s) in positions.iter().zip(&scores) {
        let weight = (s - max).exp() / sum;
        for (to, v) in to.iter_mut().zip(cache.value(*p)) {
            *to += weight * v;
        }
    }
}
