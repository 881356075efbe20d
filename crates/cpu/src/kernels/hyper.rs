//! Reading and writing several residual streams.

use super::math::{add_scaled, sigmoid};
use crate::isa::{Isa, Kernel, Widen};

/// `out = mean over streams of sigmoid(gate) · x`: a chain over the streams in order.
pub fn hyper_mix(isa: Isa, x: &[f32], gate: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    let width = out.len();
    let share = width as f32 / x.len() as f32;
    for (x, gate) in x.chunks_exact(width).zip(gate.chunks_exact(width)) {
        isa.run(Stream { x, gate, out });
    }
    super::math::scale(isa, out, share);
}

struct Stream<'a> {
    x: &'a [f32],
    gate: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Stream<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Widen>(self, _: W) {
        for ((out, x), gate) in self.out.iter_mut().zip(self.x).zip(self.gate) {
            *out = sigmoid(*gate).mul_add(*x, *out);
        }
    }
}

/// `into[c] += 2 sigmoid(inject[c] / streams) · x`.
pub fn hyper_add(isa: Isa, into: &mut [f32], x: &[f32], inject: &[f32]) {
    for (stream, inject_c) in into.chunks_exact_mut(x.len()).zip(inject) {
        add_scaled(isa, stream, x, 2.0 * sigmoid(inject_c / inject.len() as f32));
    }
}
