//! Q2_K: 256 elements in 84 bytes, 16 groups of 16.
//!
//! | bytes | content |
//! |---|---|
//! | 0..16 | group `g`: scale (low nibble) and minimum (high nibble) |
//! | 16..80 | 2-bit `q`: byte `32h + l` holds, from its low bits up, element `l` of the four 32-element runs of half `h` |
//! | 80..82 | `d`: half |
//! | 82..84 | `dmin`: half |
//!
//! `x = (d · scale) · q − dmin · min`

use super::float::{half_at, put_half};
use super::search::{self, Line};
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 84;
/// Where the scales and minima are, one byte a group of 16.
pub const SCALES: Range<usize> = 0..16;
/// Where the 2-bit values are.
pub const QUANTS: Range<usize> = 16..80;
/// Where `d` is; `dmin` follows.
pub const D: usize = 80;

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, D), half_at(block, D + 2));
    let (scales, quants) = (&block[SCALES], &block[QUANTS]);
    for (group, out) in out[..LEN].chunks_exact_mut(16).enumerate() {
        let scale = d * f32::from(scales[group] & 15);
        let min = dmin * f32::from(scales[group] >> 4);
        let (run, within) = (group / 2, group % 2 * 16);
        let quants = &quants[run / 4 * 32 + within..][..16];
        for (out, q) in out.iter_mut().zip(quants) {
            *out = scale * f32::from(q >> (run % 4 * 2) & 3) - min;
        }
    }
}

/// One block from `f32` so that squared errors, weighted by `w`, add up to little.
///
/// # Panics
/// If `x`, `w` or `block` is shorter than a block.
pub fn quantise(x: &[f32], w: &[f32], block: &mut [u8]) {
    let (x, w) = (&x[..LEN], &w[..LEN]);
    let lines: [Line; 16] = search::each(x, w, |x, w| search::line(x, w, 3.0, 0.0));
    let (d, scales) = search::unsigned(&lines.map(|line| line.scale), w, 15.0);
    let (dmin, mins) = search::unsigned(&lines.map(|line| -line.floor), w, 15.0);
    put_half(block, D, d);
    put_half(block, D + 2, dmin);
    for (byte, (scale, min)) in block[SCALES].iter_mut().zip(scales.iter().zip(&mins)) {
        *byte = scale | min << 4;
    }
    let stored = |g: usize| Line { scale: d * f32::from(scales[g]), floor: -dmin * f32::from(mins[g]) };
    put_pairs(&search::codes(x, 16, 3.0, stored), &mut block[QUANTS]);
}

/// Two bits of 256 codes in 64 bytes: the four 32-element runs of a half share its bytes.
pub(super) fn put_pairs(codes: &[u8; LEN], out: &mut [u8]) {
    for (out, codes) in out.chunks_exact_mut(32).zip(codes.chunks_exact(128)) {
        for (l, byte) in out.iter_mut().enumerate() {
            *byte = (0..4).fold(0, |bits, run| bits | (codes[32 * run + l] & 3) << (2 * run));
        }
    }
}
