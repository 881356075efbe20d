//! IQ3_S: 256 elements in 110 bytes, 8 groups of 32; four magnitudes at a time come from a fixed grid.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`: half |
//! | 2..66 | low eight bits of the grid indices: byte `i` for elements `4i..4i + 4` |
//! | 66..74 | bit 8 of the indices: bit `i % 8` of byte `i / 8` |
//! | 74..106 | signs: bit `e % 8` of byte `e / 8` set means element `e` is negative |
//! | 106..110 | scales: nibble `g % 2` of byte `g / 2` |
//!
//! `x = (d · (1 + 2 · scale)) · grid · sign`

use super::float::half_at;
pub use super::iq3_s_grid::GRID;
use std::ops::Range;

/// Elements in a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 110;
/// Where the low bits of the indices are.
pub const QUANTS: Range<usize> = 2..66;
/// Where the ninth bits of the indices are.
pub const HIGH_BITS: Range<usize> = 66..74;
/// Where the signs are.
pub const SIGNS: Range<usize> = 74..106;
/// Where the scales are.
pub const SCALES: Range<usize> = 106..110;

/// One block to `f32`.
///
/// # Panics
/// If `block` or `out` is shorter than a block.
pub fn dequantise(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    let (quants, high, signs, scales) = (&block[QUANTS], &block[HIGH_BITS], &block[SIGNS], &block[SCALES]);
    for (i, out) in out[..LEN].chunks_exact_mut(4).enumerate() {
        let group = i / 8;
        let scale = d * f32::from(1 + 2 * (scales[group / 2] >> (group % 2 * 4) & 15));
        let index = usize::from(quants[i]) | usize::from(high[i / 8] >> (i % 8) & 1) << 8;
        let signs = signs[i / 2] >> (i % 2 * 4);
        for (j, (out, magnitude)) in out.iter_mut().zip(GRID[index].to_le_bytes()).enumerate() {
            let value = scale * f32::from(magnitude);
            *out = if signs >> j & 1 == 1 { -value } else { value };
        }
    }
}
