//! MXFP4 as GGUF stores it: 32 elements in 17 bytes, 4-bit floats (E2M1) with a power of two.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | `e`: E8M0, the scale is 2^(e − 127) |
//! | 1..17 | 4-bit `q`: byte `j` holds element `j` (low nibble) and `j + 16` (high) |
//!
//! `x = half_scale(e) · DOUBLED[q]`: the codebook is doubled to be integer, the scale halved for it.
//! (OCP Microscaling Formats 1.0 gives `e = 255` the meaning NaN; ggml reads it as 2^128, and so does this.)

use super::iq4_nl::scaled;
use super::search;
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 17;
/// Where the nibbles are.
pub const QUANTS: Range<usize> = 1..17;
/// Twice the value of each E2M1 code; code 8 is minus zero and reads as zero.
pub const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half of the E8M0 scale: 2^(e − 128), exact (subnormal for `e` below 2).
pub fn half_scale(e: u8) -> f32 {
    match e {
        0 | 1 => f32::from_bits(0x0020_0000 << e),
        _ => f32::from_bits(u32::from(e - 1) << 23),
    }
}

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    scaled(half_scale(block[0]), &DOUBLED, &block[QUANTS], &mut out[..LEN]);
}

/// One block from `f32`: of the powers of two around the one whose largest code is nearest to the largest value, the one
/// whose squared errors, weighted by `w`, add up to least, the smaller of equals.
///
/// # Panics
/// If `x`, `w` or `block` is shorter than a block.
pub fn quantise(x: &[f32], w: &[f32], block: &mut [u8]) {
    let (x, w) = (&x[..LEN], &w[..LEN]);
    let most = search::farthest(x).abs();
    if most == 0.0 {
        return block[..BYTES].fill(0);
    }
    // The largest code is 6 and the second largest 4: 2^2.
    let usual = (most.to_bits() >> 23) as i32 - 2;
    let mut best = (f32::INFINITY, 0, [0; LEN]);
    for e in usual - 1..=usual + 1 {
        let e = e.clamp(0, 254) as u8;
        let half_scale = half_scale(e);
        let codes: [u8; LEN] = std::array::from_fn(|i| code(x[i] / half_scale));
        let off = |i: usize| half_scale * f32::from(DOUBLED[usize::from(codes[i])]) - x[i];
        let error = (0..LEN).map(|i| w[i] * off(i) * off(i)).sum();
        if error < best.0 {
            best = (error, e, codes);
        }
    }
    block[0] = best.1;
    search::nibbles(&best.2, &mut block[QUANTS]);
}

/// The code whose doubled value is nearest to `x`, the one nearer to zero of two.
fn code(x: f32) -> u8 {
    let size = x.abs();
    let index = DOUBLED[..8].windows(2).filter(|pair| size + size > f32::from(pair[0] + pair[1])).count() as u8;
    if x < 0.0 && index > 0 { index | 8 } else { index }
}
