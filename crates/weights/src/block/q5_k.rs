//! Q5_K: 256 elements in 176 bytes, 8 groups of 32.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`: half |
//! | 2..4 | `dmin`: half |
//! | 4..16 | 6-bit scales and minima, packed as in [`super::q4_k::scales`] |
//! | 16..48 | bit 4 of `q`: bit `g` of byte `l` belongs to element `l` of group `g` |
//! | 48..176 | bits 0..4 of `q`: byte `32p + l` holds element `l` of group `2p` (low nibble) and of group `2p + 1` (high) |
//!
//! `x = (d · scale) · q − dmin · min`

use super::float::half_at;
use super::q4_k;
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 176;
/// Where the packed scales and minima are.
pub const SCALES: Range<usize> = 4..16;
/// Where the fifth bits are.
pub const HIGH_BITS: Range<usize> = 16..48;
/// Where the nibbles are.
pub const QUANTS: Range<usize> = 48..176;

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, mins) = q4_k::scales(block[SCALES].try_into().expect("12 bytes"));
    let (high, quants) = (&block[HIGH_BITS], &block[QUANTS]);
    for (group, out) in out[..LEN].chunks_exact_mut(32).enumerate() {
        let scale = d * f32::from(scales[group]);
        let min = dmin * f32::from(mins[group]);
        for ((out, q), high) in out.iter_mut().zip(&quants[group / 2 * 32..]).zip(high) {
            let q = q >> (group % 2 * 4) & 15 | (high >> group & 1) << 4;
            *out = scale * f32::from(q) - min;
        }
    }
}

/// One block from `f32` so that squared errors, weighted by `w`, add up to little.
///
/// # Panics
/// If `x`, `w` or `block` is shorter than a block.
pub fn quantise(x: &[f32], w: &[f32], block: &mut [u8]) {
    let codes = q4_k::put_lines(x, w, 31.0, block);
    for (byte, pair) in block[QUANTS].chunks_exact_mut(32).zip(codes.chunks_exact(64)) {
        for (l, byte) in byte.iter_mut().enumerate() {
            *byte = pair[l] & 15 | (pair[l + 32] & 15) << 4;
        }
    }
    for (l, byte) in block[HIGH_BITS].iter_mut().enumerate() {
        *byte = (0..8).fold(0, |bits, group| bits | (codes[32 * group + l] >> 4) << group);
    }
}
