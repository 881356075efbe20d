//! Q8_0: 32 elements in 34 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`: half |
//! | 2..34 | `q`: signed bytes in element order |
//!
//! `x = d · q`

use super::float::half_at;
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 34;
/// Where the signed bytes are.
pub const QUANTS: Range<usize> = 2..34;

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (out, q) in out[..LEN].iter_mut().zip(&block[QUANTS]) {
        *out = d * f32::from(*q as i8);
    }
}
