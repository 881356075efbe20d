//! Q5_0: 32 elements in 22 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`: half |
//! | 2..6 | bit 4 of `q`: bit `i` of the 32-bit word belongs to element `i` |
//! | 6..22 | bits 0..4 of `q`: byte `j` holds element `j` (low nibble) and `j + 16` (high) |
//!
//! `x = d · (q − 16)`

use super::float::{half_at, put_half};
use super::search;
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 22;
/// Where the fifth bits are.
pub const HIGH_BITS: Range<usize> = 2..6;
/// Where the nibbles are.
pub const QUANTS: Range<usize> = 6..22;

/// The 32 values of five bits, from the word of fifth bits and the nibbles.
pub fn quants(high_bits: [u8; 4], nibbles: &[u8; 16]) -> [u8; 32] {
    let high = u32::from_le_bytes(high_bits);
    std::array::from_fn(|i| {
        let nibble = if i < 16 { nibbles[i] & 15 } else { nibbles[i - 16] >> 4 };
        nibble | ((high >> i & 1) as u8) << 4
    })
}

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    let high_bits = block[HIGH_BITS].try_into().expect("4 bytes");
    let nibbles = block[QUANTS].try_into().expect("16 bytes");
    for (out, q) in out[..LEN].iter_mut().zip(quants(high_bits, nibbles)) {
        *out = d * f32::from(q as i8 - 16);
    }
}

/// One block from `f32` so that squared errors, weighted by `w`, add up to little.
///
/// # Panics
/// If `x`, `w` or `block` is shorter than a block.
pub fn quantise(x: &[f32], w: &[f32], block: &mut [u8]) {
    put_half(block, 0, search::scale(&x[..LEN], &w[..LEN], -16.0, 15.0));
    let inverse = search::inverse(half_at(block, 0));
    let codes = std::array::from_fn(|i| (search::nearest((x[i] * inverse).clamp(-16.0, 15.0)) + 16.0) as u8);
    block[HIGH_BITS].copy_from_slice(&high_bits(&codes));
    search::nibbles(&codes, &mut block[QUANTS]);
}

/// The word of fifth bits of 32 codes.
pub(super) fn high_bits(codes: &[u8; 32]) -> [u8; 4] {
    let word = codes.iter().enumerate().fold(0u32, |word, (i, q)| word | u32::from(q >> 4 & 1) << i);
    word.to_le_bytes()
}
