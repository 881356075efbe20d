//! Q5_1: 32 elements in 24 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`: half |
//! | 2..4 | `m`: half |
//! | 4..8 | bit 4 of `q`: bit `i` of the 32-bit word belongs to element `i` |
//! | 8..24 | bits 0..4 of `q`: byte `j` holds element `j` (low nibble) and `j + 16` (high) |
//!
//! `x = d · q + m`

use super::float::half_at;
use super::q4_1::put_line;
use super::q5_0::{high_bits, quants};
use super::search;
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 24;
/// Where the fifth bits are.
pub const HIGH_BITS: Range<usize> = 4..8;
/// Where the nibbles are.
pub const QUANTS: Range<usize> = 8..24;

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    let high_bits = block[HIGH_BITS].try_into().expect("4 bytes");
    let nibbles = block[QUANTS].try_into().expect("16 bytes");
    for (out, q) in out[..LEN].iter_mut().zip(quants(high_bits, nibbles)) {
        *out = d * f32::from(q) + m;
    }
}

/// One block from `f32` so that squared errors, weighted by `w`, add up to little.
///
/// # Panics
/// If `x`, `w` or `block` is shorter than a block.
pub fn quantise(x: &[f32], w: &[f32], block: &mut [u8]) {
    let line = put_line(x, w, 31.0, block);
    let codes = std::array::from_fn(|i| line.code(x[i], 31.0) as u8);
    block[HIGH_BITS].copy_from_slice(&high_bits(&codes));
    search::nibbles(&codes, &mut block[QUANTS]);
}
