//! Plain floats, little-endian: F32 (4 bytes), F16 (IEEE binary16, 2 bytes), BF16 (upper half of F32, 2 bytes),
//! F64 (8 bytes).

use half::{bf16, f16};

/// The binary16 number at byte `at` of a block, as `f32` (exact).
pub fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Stores `x` at byte `at` of a block as the nearest binary16 number.
pub(super) fn put_half(block: &mut [u8], at: usize, x: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(x).to_le_bytes());
}

/// F32 bytes to `out`; the lengths agree.
pub fn f32s(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, f32::from_le_bytes);
}

/// F16 bytes to `out`, exact; the lengths agree.
pub fn f16s(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| f16::from_le_bytes(b).to_f32());
}

/// BF16 bytes to `out`, exact; the lengths agree.
pub fn bf16s(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| bf16::from_le_bytes(b).to_f32());
}

/// F64 bytes to `out`, rounded to nearest; the lengths agree.
pub fn f64s(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| f64::from_le_bytes(b) as f32);
}

fn each<const N: usize>(bytes: &[u8], out: &mut [f32], convert: impl Fn([u8; N]) -> f32) {
    for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *out = convert(*bytes);
    }
}
