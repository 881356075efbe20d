//! Q3_K: 256 elements in 110 bytes, 16 groups of 16.
//!
//! | bytes | content |
//! |---|---|
//! | 0..32 | bit 2 of `q`: bit `r` of byte `l` belongs to element `l` of the 32-element run `r` |
//! | 32..96 | bits 0..2 of `q`: byte `32h + l` holds, from its low bits up, element `l` of the four runs of half `h` |
//! | 96..108 | 6-bit scales, see [`scales`] |
//! | 108..110 | `d`: half |
//!
//! `x = (d · scale) · (q − 4)`

use super::float::{half_at, put_half};
use super::q2_k::put_pairs;
use super::search::{self, Line};
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 110;
/// Where the third bits are.
pub const HIGH_BITS: Range<usize> = 0..32;
/// Where the lower two bits are.
pub const QUANTS: Range<usize> = 32..96;
/// Where the packed scales are.
pub const SCALES: Range<usize> = 96..108;
/// Where `d` is.
pub const D: usize = 108;

/// The scales of the 16 groups, −32..32. Low four bits of scale `i`: nibble `i / 8` of byte `i % 8`; its high two
/// bits: bits `2(i / 4)..` of byte `8 + i % 4`.
pub fn scales(packed: &[u8; 12]) -> [i8; 16] {
    std::array::from_fn(|i| {
        let low = packed[i % 8] >> (i / 8 * 4) & 15;
        let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        (low | high << 4) as i8 - 32
    })
}

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, D);
    let scales = scales(block[SCALES].try_into().expect("12 bytes"));
    let (high, quants) = (&block[HIGH_BITS], &block[QUANTS]);
    for (group, out) in out[..LEN].chunks_exact_mut(16).enumerate() {
        let scale = d * f32::from(scales[group]);
        let (run, within) = (group / 2, group % 2 * 16);
        let quants = &quants[run / 4 * 32 + within..][..16];
        for ((out, q), high) in out.iter_mut().zip(quants).zip(&high[within..]) {
            let q = q >> (run % 4 * 2) & 3 | (high >> run & 1) << 2;
            *out = scale * f32::from(q as i8 - 4);
        }
    }
}

/// Packs scales as [`scales`] reads them.
pub fn pack_scales(scales: &[i8; 16]) -> [u8; 12] {
    let code = |i: usize| (scales[i] + 32) as u8;
    std::array::from_fn(|i| match i {
        0..8 => code(i) & 15 | code(i + 8) << 4,
        _ => (0..4).fold(0, |bits, k| bits | code(4 * k + i - 8) >> 4 << (2 * k)),
    })
}

/// One block from `f32` so that squared errors, weighted by `w`, add up to little.
///
/// # Panics
/// If `x`, `w` or `block` is shorter than a block.
pub fn quantise(x: &[f32], w: &[f32], block: &mut [u8]) {
    let x = &x[..LEN];
    let scales: [f32; 16] = search::each(x, &w[..LEN], |x, w| search::scale(x, w, -4.0, 3.0));
    let (d, scales) = search::signed(&scales, -32.0, 31.0);
    put_half(block, D, d);
    block[SCALES].copy_from_slice(&pack_scales(&scales));
    let codes = search::codes(x, 16, 7.0, |g| Line::around(d * f32::from(scales[g]), 4.0));
    put_pairs(&codes, &mut block[QUANTS]);
    for (l, byte) in block[HIGH_BITS].iter_mut().enumerate() {
        *byte = (0..8).fold(0, |bits, run| bits | (codes[32 * run + l] >> 2) << run);
    }
}
