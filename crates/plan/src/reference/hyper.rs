//! `HyperMix`, `HyperAdd`: reading and writing several residual streams.

use super::activation::sigmoid;

/// `to = mean over streams of sigmoid(gate) · x`.
pub fn hyper_mix(x: &[f32], gate: &[f32], to: &mut [f32]) {
    let (width, streams) = (to.len(), x.len() / to.len());
    for (i, to) in to.iter_mut().enumerate() {
        let sum: f32 = (0..streams).map(|c| sigmoid(gate[c * width + i]) * x[c * width + i]).sum();
        *to = sum / streams as f32;
    }
}

/// `into[c] += 2 sigmoid(inject[c] / streams) · x`.
pub fn hyper_add(into: &mut [f32], x: &[f32], inject: &[f32]) {
    for (stream, inject_c) in into.chunks_mut(x.len()).zip(inject) {
        let strength = 2.0 * sigmoid(inject_c / inject.len() as f32);
        stream.iter_mut().zip(x).for_each(|(s, x)| *s += strength * x);
    }
}
