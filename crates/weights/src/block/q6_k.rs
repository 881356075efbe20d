//! Q6_K: 256 elements in 210 bytes, 16 groups of 16.
//!
//! | bytes | content |
//! |---|---|
//! | 0..128 | bits 0..4 of `q`: byte `64h + l` holds element `l` (low nibble) and `l + 64` (high) of half `h` |
//! | 128..192 | bits 4..6 of `q`: byte `32h + l` holds, from its low bits up, element `l` of the four 32-element runs of half `h` |
//! | 192..208 | scales: a signed byte a group |
//! | 208..210 | `d`: half |
//!
//! `x = (d · scale) · (q − 32)`

use super::float::{half_at, put_half};
use super::q2_k::put_pairs;
use super::search::{self, Line};
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 210;
/// Where the lower four bits are.
pub const QUANTS: Range<usize> = 0..128;
/// Where the upper two bits are.
pub const HIGH_BITS: Range<usize> = 128..192;
/// Where the signed scales are.
pub const SCALES: Range<usize> = 192..208;
/// Where `d` is.
pub const D: usize = 208;

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, D);
    let (low, high, scales) = (&block[QUANTS], &block[HIGH_BITS], &block[SCALES]);
    for (group, out) in out[..LEN].chunks_exact_mut(16).enumerate() {
        let scale = d * f32::from(scales[group] as i8);
        let (half, run, within) = (group / 8, group / 2 % 4, group % 2 * 16);
        let low = &low[half * 64 + run % 2 * 32 + within..];
        let high = &high[half * 32 + within..];
        for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
            let q = low >> (run / 2 * 4) & 15 | (high >> (run * 2) & 3) << 4;
            *out = scale * f32::from(q as i8 - 32);
        }
    }
}

/// One block from `f32` so that squared errors, weighted by `w`, add up to little.
///
/// # Panics
/// If `x`, `w` or `block` is shorter than a block.
pub fn quantise(x: &[f32], w: &[f32], block: &mut [u8]) {
    let x = &x[..LEN];
    let scales: [f32; 16] = search::each(x, &w[..LEN], |x, w| search::scale(x, w, -32.0, 31.0));
    let (d, scales) = search::signed(&scales, -128.0, 127.0);
    put_half(block, D, d);
    for (byte, scale) in block[SCALES].iter_mut().zip(scales) {
        *byte = scale as u8;
    }
    let codes = search::codes(x, 16, 63.0, |g| Line::around(d * f32::from(scales[g]), 32.0));
    for (out, codes) in block[QUANTS].chunks_exact_mut(64).zip(codes.chunks_exact(128)) {
        for (l, byte) in out.iter_mut().enumerate() {
            *byte = codes[l] & 15 | (codes[l + 64] & 15) << 4;
        }
    }
    put_pairs(&codes.map(|q| q >> 4), &mut block[HIGH_BITS]);
}
