//! `HeadLinear`, `HeadConcat` and `Repeat`: what happens to each head, or to each copy, by itself.

use super::linear;

/// Each head by a matrix of its own: `weight` is `[heads · outputs, inputs]`.
pub fn head_linear(weight: &[f32], heads: usize, x: &[f32], to: &mut [f32]) {
    let (inputs, outputs) = (x.len() / heads, to.len() / heads);
    for (head, to) in to.chunks_mut(outputs).enumerate() {
        linear(&weight[head * outputs * inputs..][..outputs * inputs], None, &x[head * inputs..][..inputs], to);
    }
}

/// Head by head, `a` then `b`.
pub fn head_concat(a: &[f32], b: &[f32], heads: usize, to: &mut [f32]) {
    let (a_dim, b_dim) = (a.len() / heads, b.len() / heads);
    for (head, to) in to.chunks_mut(a_dim + b_dim).enumerate() {
        to[..a_dim].copy_from_slice(&a[head * a_dim..][..a_dim]);
        to[a_dim..].copy_from_slice(&b[head * b_dim..][..b_dim]);
    }
}

/// `x` side by side until `to` is full.
pub fn repeat(x: &[f32], to: &mut [f32]) {
    to.chunks_mut(x.len()).for_each(|to| to.copy_from_slice(x));
}
