//! Q4_0: 32 elements in 18 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`: half |
//! | 2..18 | 4-bit `q`: byte `j` holds element `j` (low nibble) and `j + 16` (high) |
//!
//! `x = d · (q − 8)`

use super::float::half_at;
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 18;
/// Where the nibbles are.
pub const QUANTS: Range<usize> = 2..18;

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    let (low, high) = out[..LEN].split_at_mut(LEN / 2);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(&block[QUANTS]) {
        *low = d * f32::from((byte & 15) as i8 - 8);
        *high = d * f32::from((byte >> 4) as i8 - 8);
    }
}
