//! `Linear`: `to = weight · x + bias`.

/// One row: `weight` is `[to.len(), x.len()]`.
pub fn linear(weight: &[f32], bias: Option<&[f32]>, x: &[f32], to: &mut [f32]) {
    for (o, to) in to.iter_mut().enumerate() {
        let row = &weight[o * x.len()..][..x.len()];
        let dot: f32 = row.iter().zip(x).map(|(w, x)| w * x).sum();
        *to = dot + bias.map_or(0.0, |b| b[o]);
    }
}
