//! The codes of a part as one vector, in order: byte `i` is code `i`.

use std::arch::x86_64::*;

use super::super::layout::{self, Layout, bytes_at};
use crate::isa::avx2::{load16, load32};

/// A layout whose codes can be unpacked with AVX2.
pub(in super::super) trait Codes<const B: usize>: Layout<B> {
    /// As [`Layout::codes`].
    ///
    /// # Safety
    /// The machine must have AVX2.
    unsafe fn unpack(block: &[u8; B], part: usize) -> __m256i;
}

macro_rules! codes {
    ($layout:ident, $bytes:literal, |$block:ident, $part:ident| $body:expr) => {
        impl Codes<$bytes> for layout::$layout {
            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn unpack($block: &[u8; $bytes], $part: usize) -> __m256i {
                let _ = $part;
                $body
            }
        }
    };
}

codes!(Q4_0, 18, |block, part| split_nibbles(bytes_at(block, 2)));
codes!(Q4_1, 20, |block, part| split_nibbles(bytes_at(block, 4)));
codes!(Q5_0, 22, |block, part| with_fifth_bits(bytes_at(block, 2), bytes_at(block, 6)));
codes!(Q5_1, 24, |block, part| with_fifth_bits(bytes_at(block, 4), bytes_at(block, 8)));
codes!(Q8_0, 34, |block, part| load32(bytes_at(block, 2)));
codes!(Iq4Nl, 18, |block, part| look_up(&layout::IQ4, split_nibbles(bytes_at(block, 2))));
codes!(Iq4Xs, 136, |block, part| look_up(&layout::IQ4, split_nibbles(bytes_at(block, 8 + 16 * part))));
codes!(Mxfp4, 17, |block, part| look_up(&layout::FP4, split_nibbles(bytes_at(block, 1))));
codes!(Q2K, 84, |block, part| bits::<3>(load32(bytes_at(block, 16 + part / 4 * 32)), part % 4 * 2));
codes!(Q3K, 110, |block, part| {
    let low = bits::<3>(load32(bytes_at(block, 32 + part / 4 * 32)), part % 4 * 2);
    _mm256_or_si256(low, _mm256_slli_epi16::<2>(bits::<1>(load32(bytes_at(block, 0)), part)))
});
codes!(Q4K, 144, |block, part| bits::<15>(load32(bytes_at(block, 16 + part / 2 * 32)), part % 2 * 4));
codes!(Q5K, 176, |block, part| {
    let low = bits::<15>(load32(bytes_at(block, 48 + part / 2 * 32)), part % 2 * 4);
    _mm256_or_si256(low, _mm256_slli_epi16::<4>(bits::<1>(load32(bytes_at(block, 16)), part)))
});
codes!(Q6K, 210, |block, part| {
    let low = bits::<15>(load32(bytes_at(block, part / 4 * 64 + part % 2 * 32)), part % 4 / 2 * 4);
    let high = bits::<3>(load32(bytes_at(block, 128 + part / 4 * 32)), part % 4 * 2);
    _mm256_or_si256(low, _mm256_slli_epi16::<4>(high))
});

/// The bits of each byte from `shift` on that `MASK` keeps; the mask must not reach past the byte.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn bits<const MASK: i8>(bytes: __m256i, shift: usize) -> __m256i {
    let shifted = _mm256_srl_epi16(bytes, _mm_cvtsi32_si128(shift as i32));
    _mm256_and_si256(shifted, _mm256_set1_epi8(MASK))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn split_nibbles(packed: &[u8; 16]) -> __m256i {
    let packed = load16(packed);
    let both = _mm256_set_m128i(_mm_srli_epi16::<4>(packed), packed);
    _mm256_and_si256(both, _mm256_set1_epi8(15))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn with_fifth_bits(fifth: &[u8; 4], packed: &[u8; 16]) -> __m256i {
    let fifth = _mm256_set1_epi32(i32::from_le_bytes(*fifth));
    let spread = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let selected = _mm256_and_si256(_mm256_shuffle_epi8(fifth, spread), bit);
    let set = _mm256_and_si256(_mm256_cmpeq_epi8(selected, bit), _mm256_set1_epi8(16));
    _mm256_or_si256(split_nibbles(packed), set)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn look_up(table: &[i8; 16], nibbles: __m256i) -> __m256i {
    let table = _mm256_broadcastsi128_si256(load16(bytemuck::cast_ref(table)));
    _mm256_shuffle_epi8(table, nibbles)
}
