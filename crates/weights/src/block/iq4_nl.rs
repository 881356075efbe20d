//! IQ4_NL: 32 elements in 18 bytes, 4-bit indices into a fixed codebook.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`: half |
//! | 2..18 | 4-bit `q`: byte `j` holds element `j` (low nibble) and `j + 16` (high) |
//!
//! `x = d · CODEBOOK[q]`

use super::float::{half_at, put_half};
use super::search;
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 18;
/// Where the nibbles are.
pub const QUANTS: Range<usize> = 2..18;
/// The value of each index.
pub const CODEBOOK: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    scaled(half_at(block, 0), &CODEBOOK, &block[QUANTS], &mut out[..LEN]);
}

/// `scale · codebook[nibble]` for 16 bytes: low nibbles first, then high ones.
pub(super) fn scaled(scale: f32, codebook: &[i8; 16], nibbles: &[u8], out: &mut [f32]) {
    let (low, high) = out.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(nibbles) {
        *low = scale * f32::from(codebook[usize::from(byte & 15)]);
        *high = scale * f32::from(codebook[usize::from(byte >> 4)]);
    }
}

/// One block from `f32` so that squared errors, weighted by `w`, add up to little.
///
/// # Panics
/// If `x`, `w` or `block` is shorter than a block.
pub fn quantise(x: &[f32], w: &[f32], block: &mut [u8]) {
    put_half(block, 0, search::codebook_scale(&x[..LEN], &w[..LEN], &CODEBOOK));
    let scale = half_at(block, 0);
    put_indices(x, scale, &mut block[QUANTS]);
}

/// The nibbles of 32 values under a scale.
pub(super) fn put_indices(x: &[f32], scale: f32, nibbles: &mut [u8]) {
    let inverse = search::inverse(scale);
    search::nibbles(&std::array::from_fn(|i| search::nearest_index(&CODEBOOK, x[i] * inverse) as u8), nibbles);
}
