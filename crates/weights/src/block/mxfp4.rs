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
