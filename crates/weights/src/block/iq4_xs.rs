//! IQ4_XS: 256 elements in 136 bytes, 8 groups of 32 with the codebook of IQ4_NL.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`: half |
//! | 2..4 | high two bits of the scales: bits `2g..` of the 16-bit word |
//! | 4..8 | low four bits of the scales: nibble `g % 2` of byte `g / 2` |
//! | 8..136 | 4-bit `q`: byte `16g + j` holds element `j` (low nibble) and `j + 16` (high) of group `g` |
//!
//! `x = (d · (scale − 32)) · CODEBOOK[q]`

use super::float::half_at;
use super::iq4_nl::{CODEBOOK, scaled};
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 136;
/// Where the packed scales are.
pub const SCALES: Range<usize> = 2..8;
/// Where the nibbles are.
pub const QUANTS: Range<usize> = 8..136;

/// The scales of the eight groups, −32..32.
pub fn scales(packed: &[u8; 6]) -> [i8; 8] {
    let high = u16::from_le_bytes([packed[0], packed[1]]);
    std::array::from_fn(|g| {
        let low = packed[2 + g / 2] >> (g % 2 * 4) & 15;
        (low | ((high >> (2 * g) & 3) as u8) << 4) as i8 - 32
    })
}

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    let scales = scales(block[SCALES].try_into().expect("6 bytes"));
    let groups = out[..LEN].chunks_exact_mut(32).zip(block[QUANTS].chunks_exact(16));
    for ((out, nibbles), scale) in groups.zip(scales) {
        scaled(d * f32::from(scale), &CODEBOOK, nibbles, out);
    }
}
