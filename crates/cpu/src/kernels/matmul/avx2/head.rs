//! Scales and factors of eight outputs' blocks, with outputs as lanes.

use std::arch::x86_64::*;

use super::super::layout::{Layout, Min, Unit};
use super::super::scalar::halved_power;
use crate::isa::avx2::{eight, load, widen_to_vector};

/// What a 32-element part of eight outputs has beside its codes.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The float scale.
    pub(super) scale: __m256,
    /// The float minimum, signed as it is added.
    pub(super) min: __m256,
    /// Pairs of 16-bit factors of the two halves.
    pub(super) factors: __m256i,
    /// Pairs of 16-bit minima of the two halves.
    pub(super) minima: __m256i,
}

impl Part {
    /// A part of zeros.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn zero() -> Self {
        let (zero, none) = (_mm256_setzero_ps(), _mm256_setzero_si256());
        Self { scale: zero, min: zero, factors: none, minima: none }
    }
}

/// Reads the heads of eight blocks: part `p` of the result is part `p` of each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn read<L: Layout<B>, const B: usize>(blocks: [&[u8; B]; 8]) -> [Part; 8] {
    let heads = eight!(I => L::head(blocks[I]));
    let unit = match L::UNIT {
        Unit::F16 => widen_to_vector(&eight!(I => heads[I].unit)),
        Unit::Exponent => load(&eight!(I => halved_power(heads[I].unit))),
    };
    let mut parts = [Part { scale: unit, ..Part::zero() }; 8];
    if L::MIN != Min::None {
        let min = widen_to_vector(&eight!(I => heads[I].min_unit));
        let signed = if L::PARTS > 1 { negate(min) } else { min };
        for part in &mut parts[..L::PARTS] {
            part.min = signed;
        }
    }
    if L::HALVES {
        for (part, factors) in parts.iter_mut().zip(pairs(eight!(I => heads[I].factors))) {
            part.factors = factors;
        }
        if L::MIN == Min::Halves {
            for (part, minima) in parts.iter_mut().zip(pairs(eight!(I => heads[I].minima))) {
                part.minima = minima;
            }
        }
    } else if L::PARTS > 1 {
        for (part, factor) in parts.iter_mut().zip(floats(eight!(I => heads[I].factors))) {
            part.scale = _mm256_mul_ps(unit, factor);
        }
        if L::MIN == Min::Part {
            for (part, minimum) in parts.iter_mut().zip(floats(eight!(I => heads[I].minima))) {
                part.min = _mm256_mul_ps(part.min, minimum);
            }
        }
    }
    parts
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn negate(values: __m256) -> __m256 {
    _mm256_xor_ps(values, _mm256_set1_ps(-0.0))
}

/// Lane `i` of result `p` is byte `p` of row `i`, as f32.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn floats(rows: [[i8; 16]; 8]) -> [__m256; 8] {
    let [a, b, c, d, e, f, g, h] = eight!(I => {
        let [first, _]: [i64; 2] = bytemuck::cast(rows[I]);
        _mm_cvtsi64_si128(first)
    });
    let (ab, cd) = (_mm_unpacklo_epi8(a, b), _mm_unpacklo_epi8(c, d));
    let (ef, gh) = (_mm_unpacklo_epi8(e, f), _mm_unpacklo_epi8(g, h));
    let (abcd0, abcd4) = (_mm_unpacklo_epi16(ab, cd), _mm_unpackhi_epi16(ab, cd));
    let (efgh0, efgh4) = (_mm_unpacklo_epi16(ef, gh), _mm_unpackhi_epi16(ef, gh));
    let two_parts = [
        _mm_unpacklo_epi32(abcd0, efgh0),
        _mm_unpackhi_epi32(abcd0, efgh0),
        _mm_unpacklo_epi32(abcd4, efgh4),
        _mm_unpackhi_epi32(abcd4, efgh4),
    ];
    eight!(PART => {
        let two = two_parts[PART / 2];
        let bytes = if PART.is_multiple_of(2) {
            two
        } else {
            _mm_unpackhi_epi64(two, two)
        };
        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))
    })
}

/// 32-bit lane `i` of result `p` is bytes `2p` and `2p + 1` of row `i`, as 16-bit integers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pairs(rows: [[i8; 16]; 8]) -> [__m256i; 8] {
    let [a, b, c, d, e, f, g, h] = eight!(I => {
        let [low, high]: [i64; 2] = bytemuck::cast(rows[I]);
        _mm_set_epi64x(high, low)
    });
    let (abcd, efgh) = (merge(a, b, c, d), merge(e, f, g, h));
    eight!(PART => {
        let (first, last) = (abcd[PART / 2], efgh[PART / 2]);
        let eight = if PART.is_multiple_of(2) { _mm_unpacklo_epi64(first, last) } else { _mm_unpackhi_epi64(first, last) };
        _mm256_cvtepi8_epi16(eight)
    })
}

/// Interleaves the 16-bit lanes of four vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn merge(a: __m128i, b: __m128i, c: __m128i, d: __m128i) -> [__m128i; 4] {
    let (ab_lo, ab_hi) = (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b));
    let (cd_lo, cd_hi) = (_mm_unpacklo_epi16(c, d), _mm_unpackhi_epi16(c, d));
    [
        _mm_unpacklo_epi32(ab_lo, cd_lo),
        _mm_unpackhi_epi32(ab_lo, cd_lo),
        _mm_unpacklo_epi32(ab_hi, cd_hi),
        _mm_unpackhi_epi32(ab_hi, cd_hi),
    ]
}
