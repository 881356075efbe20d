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

use super::float::{half_at, put_half};
use super::iq4_nl::{CODEBOOK, put_indices, scaled};
use super::search;
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

/// Packs scales as [`scales`] reads them.
pub fn pack_scales(scales: &[i8; 8]) -> [u8; 6] {
    let code = |g: usize| (scales[g] + 32) as u8;
    let high = (0..8).fold(0u16, |bits, g| bits | u16::from(code(g) >> 4) << (2 * g)).to_le_bytes();
    std::array::from_fn(|i| match i {
        0..2 => high[i],
        _ => code(2 * i - 4) & 15 | code(2 * i - 3) << 4,
    })
}

/// One block from `f32` so that squared errors, weighted by `w`, add up to little.
///
/// # Panics
/// If `x`, `w` or `block` is shorter than a block.
pub fn quantise(x: &[f32], w: &[f32], block: &mut [u8]) {
    let x = &x[..LEN];
    let scales: [f32; 8] = search::each(x, &w[..LEN], |x, w| search::codebook_scale(x, w, &CODEBOOK));
    let (d, scales) = search::signed(&scales, -32.0, 31.0);
    put_half(block, 0, d);
    block[SCALES].copy_from_slice(&pack_scales(&scales));
    let groups = x.chunks_exact(32).zip(block[QUANTS].chunks_exact_mut(16));
    for ((x, nibbles), scale) in groups.zip(scales) {
        put_indices(x, d * f32::from(scale), nibbles);
    }
}
