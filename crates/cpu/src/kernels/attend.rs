//! Attention over one block of keys by the query heads that share it, and the merge of blocks.
//!
//! Each block yields (max, sum, output) from zero: scores are one fma chain over the channels, weights are
//! `exp(scale · score - max)`, their sum and the output are chains over the positions in order. [`merge`] joins
//! blocks in order of position. The same two functions serve one row or many, so decode and prefill agree bit
//! for bit.

use super::attention::{KEYS, Stored, add_weighted, scores};
use super::math::exp;
use crate::isa::{Isa, Kernel, Widen};

/// One head's block of cache.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// `[k_dim][KEYS]`.
    pub keys: Stored<'a>,
    /// `[KEYS][v_dim]`.
    pub values: Stored<'a>,
    /// Channels of a value.
    pub v_dim: usize,
}

/// What some blocks contribute to one query head, beside its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Extent {
    /// The largest score.
    pub max: f32,
    /// Sum of `exp(score - max)`.
    pub sum: f32,
}

/// The contribution of a block to the query heads `q`, `[heads, k_dim]`.
///
/// `visible` has a bit for each place in the block the query sees, at least one. `weights` is scratch of `[heads, KEYS]`;
/// `extents` receives one entry a head and `output`, `[heads, v_dim]`, the weighted values.
pub fn contribution(
    isa: Isa,
    (q, scale): (&[f32], f32),
    block: Block<'_>,
    visible: u32,
    weights: &mut [f32],
    (extents, output): (&mut [Extent], &mut [f32]),
) {
    scores(isa, q, block.keys, weights);
    for (weights, extent) in weights.as_chunks_mut::<KEYS>().0.iter_mut().zip(extents) {
        *extent = isa.run(Softmax { weights, scale, visible });
    }
    output.fill(0.0);
    let end = (u32::BITS - visible.leading_zeros()) as usize;
    add_weighted(isa, weights, block.values.first(end * block.v_dim), block.v_dim, output);
}

/// Turns scores into weights; places outside `visible` get 0.
struct Softmax<'a> {
    weights: &'a mut [f32; KEYS],
    scale: f32,
    visible: u32,
}

impl Kernel for Softmax<'_> {
    type Output = Extent;

    #[inline(always)]
    fn run<W: Widen>(self, _: W) -> Extent {
        let mut max = f32::NEG_INFINITY;
        for (place, w) in self.weights.iter_mut().enumerate() {
            let seen = self.visible >> place & 1 == 1;
            *w = if seen { *w * self.scale } else { f32::NEG_INFINITY };
            max = if *w > max { *w } else { max };
        }
        for w in self.weights.iter_mut() {
            *w = exp(*w - max);
        }
        // Hidden places hold `exp(-inf)`, which is 0 and changes no sum.
        let sum = self.weights.iter().fold(0.0, |sum, w| sum + w);
        Extent { max, sum }
    }
}

/// Adds a later block's contribution to an earlier one's.
pub fn merge(isa: Isa, into: (&mut Extent, &mut [f32]), extent: Extent, output: &[f32]) {
    struct Merge<'a>(&'a mut Extent, &'a mut [f32], Extent, &'a [f32]);
    impl Kernel for Merge<'_> {
        type Output = ();
        #[inline(always)]
        fn run<W: Widen>(self, _: W) {
            let Merge(into, out, extent, output) = self;
            let max = if extent.max > into.max { extent.max } else { into.max };
            let (a, b) = (exp(into.max - max), exp(extent.max - max));
            *into = Extent { max, sum: b.mul_add(extent.sum, a * into.sum) };
            for (x, y) in out.iter_mut().zip(output) {
                *x = b.mul_add(*y, a * *x);
            }
        }
    }
    isa.run(Merge(into.0, into.1, extent, output));
}

/// Turns a head's weighted values into their average, with `sink` a logit that joins the softmax and has no value.
pub fn finish(out: &mut [f32], state: Extent, sink: Option<f32>) {
    let scale = match sink {
        None => 1.0 / state.sum,
        Some(sink) => {
            let max = if sink > state.max { sink } else { state.max };
            let shrink = exp(state.max - max);
            shrink / shrink.mul_add(state.sum, exp(sink - max))
        }
    };
    out.iter_mut().for_each(|x| *x *= scale);
}
