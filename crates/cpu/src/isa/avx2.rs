//! Pieces the AVX2 kernels share: checked loads, f16 conversion, an 8×8 transpose and an eight-way horizontal sum.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{Avx2, Kernel};

/// An array of eight values of an expression in its index. Unlike `array::from_fn` and `map`, it calls no closure: one with
/// target features is not always inlined into library functions, which have none.
macro_rules! eight {
    ($i:ident => $value:expr) => {
        [
            {
                const $i: usize = 0;
                $value
            },
            {
                const $i: usize = 1;
                $value
            },
            {
                const $i: usize = 2;
                $value
            },
            {
                const $i: usize = 3;
                $value
            },
            {
                const $i: usize = 4;
                $value
            },
            {
                const $i: usize = 5;
                $value
            },
            {
                const $i: usize = 6;
                $value
            },
            {
                const $i: usize = 7;
                $value
            },
        ]
    };
}
pub(crate) use eight;

/// Runs a computation compiled with AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn run<K: Kernel>(kernel: K, token: Avx2) -> K::Output {
    kernel.run(token)
}

/// Exact f16 → f32 conversion of eight bit patterns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn widen(bits: &[u16; 8]) -> [f32; 8] {
    store(widen_to_vector(bits))
}

/// Exact f16 → f32 conversion, left in a register.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn widen_to_vector(bits: &[u16; 8]) -> __m256 {
    // SAFETY: the array has the 16 bytes that the unaligned load reads.
    let bits = unsafe { _mm_loadu_si128(bits.as_ptr().cast()) };
    _mm256_cvtph_ps(bits)
}

/// Values of a table at eight places below 16.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn look_up(table: &[f32; 16], places: &[u8; 8]) -> [f32; 8] {
    // SAFETY: the arrays have the 8 and 64 bytes that the unaligned loads read.
    let (places, low, high) = unsafe {
        let places = _mm_loadl_epi64(places.as_ptr().cast());
        (places, _mm256_loadu_ps(table.as_ptr()), _mm256_loadu_ps(table.as_ptr().add(8)))
    };
    let places = _mm256_cvtepu8_epi32(places);
    // The permutation reads the lowest three bits of a place, the blend the fourth one moved to the sign.
    let (low, high) = (_mm256_permutevar8x32_ps(low, places), _mm256_permutevar8x32_ps(high, places));
    store(_mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(places))))
}

/// Asks for the cache lines of a range of bytes, or of what there is of it.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn prefetch(bytes: &[u8], range: std::ops::Range<usize>) {
    for at in range.step_by(64) {
        // Not an unsafe function in every supported compiler.
        #[allow(unused_unsafe)]
        // SAFETY: a prefetch has no effect but on caches, whatever the address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(at).cast())
        };
    }
}

/// Loads 32 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn load32(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the array has the 32 bytes that the unaligned load reads.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Loads 16 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn load16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the array has the 16 bytes that the unaligned load reads.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Loads eight floats.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn load(values: &[f32; 8]) -> __m256 {
    // SAFETY: the array has the 32 bytes that the unaligned load reads.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

/// The eight lanes as an array.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn store(vector: __m256) -> [f32; 8] {
    let mut lanes = [0.0; 8];
    // SAFETY: the array has the 32 bytes that the unaligned store writes.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), vector) };
    lanes
}

/// Transposes an 8×8 matrix of 32-bit lanes: lane `i` of result `j` is lane `j` of row `i`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn transpose(rows: [__m256i; 8]) -> [__m256i; 8] {
    let [a, b, c, d, e, f, g, h] = rows;
    let (ab_lo, ab_hi) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (cd_lo, cd_hi) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    let (ef_lo, ef_hi) = (_mm256_unpacklo_epi32(e, f), _mm256_unpackhi_epi32(e, f));
    let (gh_lo, gh_hi) = (_mm256_unpacklo_epi32(g, h), _mm256_unpackhi_epi32(g, h));
    let (abcd0, abcd1) = (_mm256_unpacklo_epi64(ab_lo, cd_lo), _mm256_unpackhi_epi64(ab_lo, cd_lo));
    let (abcd2, abcd3) = (_mm256_unpacklo_epi64(ab_hi, cd_hi), _mm256_unpackhi_epi64(ab_hi, cd_hi));
    let (efgh0, efgh1) = (_mm256_unpacklo_epi64(ef_lo, gh_lo), _mm256_unpackhi_epi64(ef_lo, gh_lo));
    let (efgh2, efgh3) = (_mm256_unpacklo_epi64(ef_hi, gh_hi), _mm256_unpackhi_epi64(ef_hi, gh_hi));
    [
        _mm256_permute2x128_si256::<0x20>(abcd0, efgh0),
        _mm256_permute2x128_si256::<0x20>(abcd1, efgh1),
        _mm256_permute2x128_si256::<0x20>(abcd2, efgh2),
        _mm256_permute2x128_si256::<0x20>(abcd3, efgh3),
        _mm256_permute2x128_si256::<0x31>(abcd0, efgh0),
        _mm256_permute2x128_si256::<0x31>(abcd1, efgh1),
        _mm256_permute2x128_si256::<0x31>(abcd2, efgh2),
        _mm256_permute2x128_si256::<0x31>(abcd3, efgh3),
    ]
}

/// Lane `i` of the result is the sum of the eight lanes of vector `i`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn sum_each(vectors: [__m256i; 8]) -> __m256i {
    let [a, b, c, d, e, f, g, h] = vectors;
    let abcd = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    let efgh = _mm256_hadd_epi32(_mm256_hadd_epi32(e, f), _mm256_hadd_epi32(g, h));
    _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(abcd, efgh), _mm256_permute2x128_si256::<0x31>(abcd, efgh))
}
