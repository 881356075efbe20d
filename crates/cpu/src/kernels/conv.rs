//! The depthwise causal convolution before a recurrence: one fma chain a channel over the taps, oldest first.

use super::math::silu;
use crate::isa::{Isa, Kernel, Widen};

/// `out = silu(Σ over taps weight[tap] · rows(tap))`, lane by lane; `weight` is `[taps, channels]`.
///
/// # Panics
/// If a row has not as many channels as `out`.
pub fn conv<'a>(isa: Isa, weight: &[f32], rows: impl Fn(usize) -> &'a [f32], out: &mut [f32]) {
    out.fill(0.0);
    for (tap, weight) in weight.chunks_exact(out.len()).enumerate() {
        let row = rows(tap);
        assert_eq!(row.len(), out.len(), "a row has a value for each channel");
        isa.run(Tap { weight, row, out });
    }
    isa.run(Finish(out));
}

struct Tap<'a> {
    weight: &'a [f32],
    row: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Tap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Widen>(self, _: W) {
        for ((out, w), x) in self.out.iter_mut().zip(self.weight).zip(self.row) {
            *out = w.mul_add(*x, *out);
        }
    }
}

struct Finish<'a>(&'a mut [f32]);

impl Kernel for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Widen>(self, _: W) {
        self.0.iter_mut().for_each(|x| *x = silu(*x));
    }
}
