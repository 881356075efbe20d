//! Q4_K: 256 elements in 144 bytes, 8 groups of 32.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`: half |
//! | 2..4 | `dmin`: half |
//! | 4..16 | 6-bit scales and minima, see [`scales`] |
//! | 16..144 | 4-bit `q`: byte `32p + l` holds element `l` of group `2p` (low nibble) and of group `2p + 1` (high) |
//!
//! `x = (d · scale) · q − dmin · min`

use super::float::{half_at, put_half};
use super::search::{self, Line};
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 144;
/// Where the packed scales and minima are.
pub const SCALES: Range<usize> = 4..16;
/// Where the nibbles are.
pub const QUANTS: Range<usize> = 16..144;

/// The scales and the minima of the eight groups, 0..64. For groups 0..4 they are the low six bits of bytes `g` and
/// `g + 4`; for groups 4..8 the nibbles of byte `g + 4`, with the high two bits of bytes `g − 4` and `g` above them.
pub fn scales(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for i in 0..4 {
        scales[i] = packed[i] & 63;
        mins[i] = packed[i + 4] & 63;
        scales[i + 4] = packed[i + 8] & 15 | packed[i] >> 6 << 4;
        mins[i + 4] = packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4;
    }
    (scales, mins)
}

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, mins) = scales(block[SCALES].try_into().expect("12 bytes"));
    let quants = &block[QUANTS];
    for (group, out) in out[..LEN].chunks_exact_mut(32).enumerate() {
        let scale = d * f32::from(scales[group]);
        let min = dmin * f32::from(mins[group]);
        for (out, q) in out.iter_mut().zip(&quants[group / 2 * 32..]) {
            *out = scale * f32::from(q >> (group % 2 * 4) & 15) - min;
        }
    }
}

/// Packs scales and minima as [`scales`] reads them.
pub fn pack_scales(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    std::array::from_fn(|i| match i {
        0..4 => scales[i] & 63 | scales[i + 4] >> 4 << 6,
        4..8 => mins[i - 4] & 63 | mins[i] >> 4 << 6,
        _ => scales[i - 4] & 15 | mins[i - 4] << 4,
    })
}

/// One block from `f32` so that squared errors, weighted by `w`, add up to little.
///
/// # Panics
/// If `x`, `w` or `block` is shorter than a block.
pub fn quantise(x: &[f32], w: &[f32], block: &mut [u8]) {
    let codes = put_lines(x, w, 15.0, block);
    for (byte, pair) in block[QUANTS].chunks_exact_mut(32).zip(codes.chunks_exact(64)) {
        for (l, byte) in byte.iter_mut().enumerate() {
            *byte = pair[l] | pair[l + 32] << 4;
        }
    }
}

/// Stores `d`, `dmin`, scales and minima of eight groups of 32 and gives the codes, 0 to `top`.
pub(super) fn put_lines(x: &[f32], w: &[f32], top: f32, block: &mut [u8]) -> [u8; LEN] {
    let (x, w) = (&x[..LEN], &w[..LEN]);
    let lines: [Line; 8] = search::each(x, w, |x, w| search::line(x, w, top, 0.0));
    let (d, scales) = search::unsigned(&lines.map(|line| line.scale), w, 63.0);
    let (dmin, mins) = search::unsigned(&lines.map(|line| -line.floor), w, 63.0);
    put_half(block, 0, d);
    put_half(block, 2, dmin);
    block[SCALES].copy_from_slice(&pack_scales(&scales, &mins));
    let stored = |g: usize| Line { scale: d * f32::from(scales[g]), floor: -dmin * f32::from(mins[g]) };
    search::codes(x, 32, top, stored)
}
