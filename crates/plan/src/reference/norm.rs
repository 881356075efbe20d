//! `Norm` and `HeadNorm`: `to = x · rsqrt(mean(x²) + eps) · weight` (RMSNorm, Zhang & Sennrich 2019).

/// One row, or one head of a row.
pub fn norm(x: &[f32], weight: &[f32], eps: f32, to: &mut [f32]) {
    let mean_square = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let scale = 1.0 / (mean_square + eps).sqrt();
    for ((to, x), w) in to.iter_mut().zip(x).zip(weight) {
        *to = x * scale * w;
    }
}
