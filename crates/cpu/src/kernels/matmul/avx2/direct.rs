//! A few activation rows: each code vector is one output's, and eight sums across lanes end a part.

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::Matrix;
use super::super::layout::Layout;
use super::codes::Codes;
use super::head::{self, Part};
use super::{add_part, eight_rows};
use crate::isa::avx2::{eight, load32, prefetch, store, sum_each};
use crate::kernels::activation::{Activations, Block, PLANES};
use crate::pool::TileMut;

/// Products of `R` activation rows.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn matmul<L: Codes<B>, const B: usize, const R: usize>(
    w: &Matrix<'_>,
    outputs: Range<usize>,
    x: &Activations,
    out: &mut TileMut<'_>,
) {
    let activations: [[&[Block]; PLANES]; R] = std::array::from_fn(|row| std::array::from_fn(|p| x.plane(p, row)));
    for first in outputs.clone().step_by(8) {
        // Short rows give the hardware no stream to follow, so the next outputs are fetched meanwhile.
        let next = w.bytes.get((first + 8) * w.row_bytes()..).unwrap_or_default();
        let acc = eight_outputs::<L, B, R>(eight_rows(w, first, outputs.end - 1), activations, next);
        let column = first - outputs.start;
        for (row, acc) in acc.into_iter().enumerate() {
            let out = &mut out.row_mut(row)[column..];
            let count = out.len().min(8);
            out[..count].copy_from_slice(&store(acc)[..count]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn eight_outputs<L: Codes<B>, const B: usize, const R: usize>(
    rows: [&[[u8; B]]; 8],
    activations: [[&[Block]; PLANES]; R],
    next: &[u8],
) -> [__m256; R] {
    let mut acc = [_mm256_setzero_ps(); R];
    let count = rows[0].len();
    let rows = eight!(I => &rows[I][..count]);
    for number in 0..count {
        let blocks = eight!(I => &rows[I][number]);
        prefetch(next, 8 * B * number..8 * B * (number + 1));
        let parts = head::read::<L, B>(blocks);
        for (index, part) in parts[..L::PARTS].iter().enumerate() {
            // SAFETY: this function has the features that `unpack` asks for.
            let codes = eight!(I => unsafe { L::unpack(blocks[I], index) });
            for (acc, planes) in acc.iter_mut().zip(&activations) {
                for plane in &planes[..L::PLANES] {
                    let a = &plane[number * L::PARTS + index];
                    let sum = dot::<L, B>(codes, part, load32(bytemuck::cast_ref(&a.codes)));
                    *acc = add_part::<L, B>(*acc, sum, part, a);
                }
            }
        }
    }
    acc
}

/// Lane `i`: the sum of code · factor · activation of output `i`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot<L: Layout<B>, const B: usize>(codes: [__m256i; 8], part: &Part, a: __m256i) -> __m256i {
    let ones = _mm256_set1_epi16(1);
    // Puts the two halves' factors of the output in lane 0 of a vector where the halves of the codes are.
    let spread =
        _mm256_setr_epi64x(0x0100_0100_0100_0100, 0x0100_0100_0100_0100, 0x0302_0302_0302_0302, 0x0302_0302_0302_0302);
    let mut sums = [_mm256_setzero_si256(); 8];
    for (output, (sum, codes)) in sums.iter_mut().zip(codes).enumerate() {
        let pairs = match L::GREATEST {
            Some(_) => _mm256_maddubs_epi16(codes, a),
            None => _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(a, codes)),
        };
        let factors = if L::HALVES {
            let own = _mm256_permutevar8x32_epi32(part.factors, _mm256_set1_epi32(output as i32));
            _mm256_shuffle_epi8(own, spread)
        } else {
            ones
        };
        *sum = _mm256_madd_epi16(pairs, factors);
    }
    sum_each(sums)
}
