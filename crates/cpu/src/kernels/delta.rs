//! The gated delta rule for one value head: chains over the key channels, lanes over the value channels.

use super::math::{exp, scale, sigmoid, sum_of_squares};
use crate::isa::{Isa, Kernel, Widen};

/// Added to the sum of squares before q and k are scaled to unit length.
const EPS: f32 = 1e-6;

/// Beyond this `ln(1 + eˣ)` is `x`.
const LINEAR: f32 = 20.0;

/// How much of the state stays: `exp(a · softplus(x))`.
pub fn keep(a: f32, x: f32) -> f32 {
    exp(a * if x > LINEAR { x } else { exp(x).ln_1p() })
}

/// How much of the difference is written.
pub fn strength(beta: f32) -> f32 {
    sigmoid(beta)
}

/// Scales `x` to this length.
pub fn to_length(isa: Isa, x: &mut [f32], length: f32) {
    let factor = length / (sum_of_squares(isa, x) + EPS).sqrt();
    scale(isa, x, factor);
}

/// One row of one head.
#[derive(Debug)]
pub struct Row<'a> {
    /// The query, `[k_dim]`.
    pub q: &'a [f32],
    /// The key, `[k_dim]`.
    pub k: &'a [f32],
    /// The value, `[v_dim]`.
    pub v: &'a [f32],
    /// From [`keep`].
    pub keep: f32,
    /// From [`strength`].
    pub strength: f32,
}

/// `S *= keep`; `S += k ⊗ strength (v - Sᵀk)`; `out = Sᵀq`. `state` is `[k_dim][v_dim]`, `scratch` is `[v_dim]`.
pub fn delta(isa: Isa, row: &Row<'_>, state: &mut [f32], scratch: &mut [f32], out: &mut [f32]) {
    isa.run(Delta { row, state, scratch, out });
}

struct Delta<'a> {
    row: &'a Row<'a>,
    state: &'a mut [f32],
    scratch: &'a mut [f32],
    out: &'a mut [f32],
}

impl Kernel for Delta<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Widen>(self, _: W) {
        let Self { row, state, scratch, out } = self;
        let width = out.len();
        scratch.fill(0.0);
        for (s, k) in state.chunks_exact_mut(width).zip(row.k) {
            for (s, sum) in s.iter_mut().zip(scratch.iter_mut()) {
                *s *= row.keep;
                *sum = s.mul_add(*k, *sum);
            }
        }
        for (change, v) in scratch.iter_mut().zip(row.v) {
            *change = (v - *change) * row.strength;
        }
        out.fill(0.0);
        for ((s, k), q) in state.chunks_exact_mut(width).zip(row.k).zip(row.q) {
            for ((s, change), out) in s.iter_mut().zip(scratch.iter()).zip(out.iter_mut()) {
                *s = k.mul_add(*change, *s);
                *out = s.mul_add(*q, *out);
            }
        }
    }
}
