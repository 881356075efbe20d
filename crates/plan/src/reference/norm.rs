//! `Norm` and `HeadNorm`: `to = x · rsqrt(mean(x²) + eps) · weight` (RMSNorm, Zhang & Sennrich 2019).

/// One row, or one head of a row; without weights they are all one.
pub fn norm(x: &[f32], weight: Option<&[f32]>, eps: f32, to: &mut [f32]) {
    let mean_square = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let scale = 1.0 / (mean_square + eps).sqrt();
    for (i, (to, x)) in to.iter_mut().zip(x).enumerate() {
        *to = x * scale * weight.map_or(1.0, |w| w[i]);
    }
}

/// Every head of a row in place; the weights are those of one head, or of all.
pub fn head_norm(row: &mut [f32], weight: Option<&[f32]>, heads: usize, eps: f32) {
    let dim = row.len() / heads;
    for (head, x) in row.chunks_mut(dim).enumerate() {
        let own = weight.map(|w| if w.len() == dim { w } else { &w[head * dim..][..dim] });
        let before = x.to_vec();
        norm(&before, own, eps, x);
    }
}
