//! Q8_0: 32 elements in 34 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`: half |
//! | 2..34 | `q`: signed bytes in element order |
//!
//! `x = d · q`

use super::float::{half_at, put_half};
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 34;
/// Where the signed bytes are.
pub const QUANTS: Range<usize> = 2..34;

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (out, q) in out[..LEN].iter_mut().zip(&block[QUANTS]) {
        *out = d * f32::from(*q as i8);
    }
}

/// One block from `f32`: `d = max |x| / 127` before it is rounded to half, `q = x / d` to nearest, ties away from zero.
///
/// # Panics
/// If `x` or `block` is shorter than a block.
pub fn quantise(x: &[f32], block: &mut [u8]) {
    let d = x[..LEN].iter().fold(0.0, |max: f32, x| max.max(x.abs())) / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    put_half(block, 0, d);
    for (q, x) in block[QUANTS].iter_mut().zip(x) {
        *q = (x * inverse).round() as i8 as u8;
    }
}
