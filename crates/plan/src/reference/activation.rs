//! `GatedAct`: `to = activation(gate) · up`.

use model::Activation;

/// `x · sigmoid(x)`.
pub fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// The tanh form of GELU (Hendrycks & Gimpel 2016): `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
pub fn gelu_tanh(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

/// `to[i] = activation(gate[i]) · up[i]`.
pub fn gated(activation: Activation, gate: &[f32], up: &[f32], to: &mut [f32]) {
    for ((to, g), u) in to.iter_mut().zip(gate).zip(up) {
        *to = match activation {
            Activation::Silu => silu(*g),
            Activation::GeluTanh => gelu_tanh(*g),
        } * u;
    }
}
