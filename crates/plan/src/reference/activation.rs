//! Pointwise functions: `GatedAct`, `Silu`, `MulSigmoid`, `Softcap`.

use model::Activation;

/// `1 / (1 + e⁻ˣ)`.
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `x · sigmoid(x)`.
pub fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// The tanh form of GELU (Hendrycks & Gimpel 2016): `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
pub fn gelu_tanh(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

/// GELU itself: `0.5 x (1 + erf(x / √2))`.
pub fn gelu_erf(x: f32) -> f32 {
    (0.5 * x as f64 * (1.0 + erf(x as f64 * std::f64::consts::FRAC_1_SQRT_2))) as f32
}

/// The error function by its Maclaurin series, or its continued fraction for larger arguments.
fn erf(x: f64) -> f64 {
    let square = x * x;
    if x.abs() < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..100 {
            term *= -square / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..60).rev().fold(0.0, |f, k| k as f64 / 2.0 / (x.abs() + f));
    let rest = (-square).exp() / (x.abs() + fraction) * std::f64::consts::FRAC_2_SQRT_PI / 2.0;
    (1.0 - rest).copysign(x)
}

/// `to[i]` = gate and up joined.
pub fn gated(activation: Activation, gate: &[f32], up: &[f32], to: &mut [f32]) {
    for ((to, g), u) in to.iter_mut().zip(gate).zip(up) {
        *to = match activation {
            Activation::Silu => silu(*g) * u,
            Activation::GeluTanh => gelu_tanh(*g) * u,
            Activation::GeluErf => gelu_erf(*g) * u,
            Activation::Clamped { limit, alpha } => {
                let (g, u) = (g.min(limit), u.clamp(-limit, limit));
                (u + 1.0) * g * sigmoid(alpha * g)
            }
        };
    }
}

/// Multiplies neighbouring channels by the sigmoid of the gate they share.
pub fn mul_sigmoid(x: &mut [f32], gate: &[f32]) {
    let width = x.len() / gate.len();
    for (channels, g) in x.chunks_mut(width).zip(gate) {
        channels.iter_mut().for_each(|x| *x *= sigmoid(*g));
    }
}
