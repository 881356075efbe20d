//! `Delta`: the gated delta rule (Yang et al. 2024, "Gated Delta Networks", eq. 10).

use super::activation::sigmoid;
use crate::step::DeltaShape;

/// Added to the sum of squares before q and k are scaled to unit length.
const EPS: f32 = 1e-6;

/// The gates of one row, `[v_heads]` each.
#[derive(Clone, Copy, Debug)]
pub struct Gates<'a> {
    /// Before the sigmoid.
    pub beta: &'a [f32],
    /// Before bias and softplus.
    pub decay: &'a [f32],
    /// A negative rate.
    pub a: &'a [f32],
    /// Joins `decay`.
    pub dt_bias: &'a [f32],
}

/// One row: `qkv` is `[k_heads · k_dim | k_heads · k_dim | v_heads · v_dim]`, `state` is `[v_heads][k_dim][v_dim]`.
pub fn delta(qkv: &[f32], gates: Gates<'_>, shape: &DeltaShape, state: &mut [f32], to: &mut [f32]) {
    let &DeltaShape { k_heads, k_dim, v_dim, .. } = shape;
    let (queries, rest) = qkv.split_at(k_heads * k_dim);
    let (keys, values) = rest.split_at(k_heads * k_dim);
    for (head, (state, to)) in state.chunks_mut(k_dim * v_dim).zip(to.chunks_mut(v_dim)).enumerate() {
        let key_head = shape.key_head(head) * k_dim;
        let q = unit(&queries[key_head..][..k_dim], (k_dim as f32).powf(-0.5));
        let k = unit(&keys[key_head..][..k_dim], 1.0);
        let v = &values[head * v_dim..][..v_dim];
        let softplus = softplus(gates.decay[head] + gates.dt_bias[head]);
        let (keep, beta) = ((gates.a[head] * softplus).exp(), sigmoid(gates.beta[head]));
        state.iter_mut().for_each(|s| *s *= keep);
        for (c, to) in to.iter_mut().enumerate() {
            let column = |i: usize| i * v_dim + c;
            let remembered: f32 = (0..k_dim).map(|i| state[column(i)] * k[i]).sum();
            let change = (v[c] - remembered) * beta;
            (0..k_dim).for_each(|i| state[column(i)] += k[i] * change);
            *to = (0..k_dim).map(|i| state[column(i)] * q[i]).sum();
        }
    }
}

/// `ln(1 + eˣ)`.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

fn unit(x: &[f32], length: f32) -> Vec<f32> {
    let scale = length / (x.iter().map(|x| x * x).sum::<f32>() + EPS).sqrt();
    x.iter().map(|x| x * scale).collect()
}
