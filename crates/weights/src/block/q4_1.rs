//! Q4_1: 32 elements in 20 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`: half |
//! | 2..4 | `m`: half |
//! | 4..20 | 4-bit `q`: byte `j` holds element `j` (low nibble) and `j + 16` (high) |
//!
//! `x = d · q + m`

use super::float::half_at;
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
