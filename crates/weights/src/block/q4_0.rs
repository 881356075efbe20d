//! Q4_0: 32 elements in 18 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`: half |
//! | 2..18 | 4-bit `q`: byte `j` holds element `j` (low nibble) and `j + 16` (high) |
//!
//! `x = d · (q − 8)`

use super::float::{half_at, put_half};
use super::search;
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 18;
/// Where the nibbles are.
pub const QUANTS: Range<usize> = 2..18;

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    let (low, high) = out[..LEN].split_at_mut(LEN / 2);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(&block[QUANTS]) {
        *low = d * f32::from((byte & 15) as i8 - 8);
        *high = d * f32::from((byte >> 4) as i8 - 8);
    }
}

/// One block from `f32`: the value farthest from zero, the first of equals, becomes `q = 0`, so that `d` is a minus
/// eighth of it before it is rounded to half; `q = ⌊x / d + 8.5⌋`, at most 15.
///
/// # Panics
/// If `x` or `block` is shorter than a block.
pub fn quantise(x: &[f32], block: &mut [u8]) {
    let x = &x[..LEN];
    let farthest = x.iter().fold(0.0, |far: f32, x| if x.abs() > far.abs() { *x } else { far });
    let d = farthest / -8.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    put_half(block, 0, d);
    let code = |x: f32| ((x * inverse + 8.5) as u8).min(15);
    let (low, high) = x.split_at(LEN / 2);
    for (byte, (low, high)) in block[QUANTS].iter_mut().zip(low.iter().zip(high)) {
        *byte = code(*low) | code(*high) << 4;
    }
}

/// One block from `f32` so that squared errors, weighted by `w`, add up to little.
///
/// # Panics
/// If `x`, `w` or `block` is shorter than a block.
pub fn quantise_weighted(x: &[f32], w: &[f32], block: &mut [u8]) {
    put_half(block, 0, search::scale(&x[..LEN], &w[..LEN], -8.0, 7.0));
    let inverse = search::inverse(half_at(block, 0));
    let codes = std::array::from_fn(|i| (search::nearest((x[i] * inverse).clamp(-8.0, 7.0)) + 8.0) as u8);
    search::nibbles(&codes, &mut block[QUANTS]);
}
