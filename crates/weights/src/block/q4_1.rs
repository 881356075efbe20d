//! Q4_1: 32 elements in 20 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`: half |
//! | 2..4 | `m`: half |
//! | 4..20 | 4-bit `q`: byte `j` holds element `j` (low nibble) and `j + 16` (high) |
//!
//! `x = d · q + m`

use super::float::{half_at, put_half};
use super::search::{self, Line};
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 20;
/// Where the nibbles are.
pub const QUANTS: Range<usize> = 4..20;

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    let (low, high) = out[..LEN].split_at_mut(LEN / 2);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(&block[QUANTS]) {
        *low = d * f32::from(byte & 15) + m;
        *high = d * f32::from(byte >> 4) + m;
    }
}

/// One block from `f32` so that squared errors, weighted by `w`, add up to little.
///
/// # Panics
/// If `x`, `w` or `block` is shorter than a block.
pub fn quantise(x: &[f32], w: &[f32], block: &mut [u8]) {
    let line = put_line(x, w, 15.0, block);
    let codes = std::array::from_fn(|i| line.code(x[i], 15.0) as u8);
    search::nibbles(&codes, &mut block[QUANTS]);
}

/// Stores `d` and `m` of the best line through 32 values and gives the line as stored.
pub(super) fn put_line(x: &[f32], w: &[f32], top: f32, block: &mut [u8]) -> Line {
    let Line { scale, floor } = search::line(&x[..LEN], &w[..LEN], top, f32::INFINITY);
    put_half(block, 0, scale);
    put_half(block, 2, floor);
    Line { scale: half_at(block, 0), floor: half_at(block, 2) }
}
