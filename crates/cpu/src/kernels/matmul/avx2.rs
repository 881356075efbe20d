//! The integer formats' products with AVX2, eight outputs at a time.
//!
//! Few activation rows: codes are unpacked in registers, multiplied, and summed across lanes ([`direct`]). Many rows: they are
//! unpacked once into a panel whose lanes are outputs ([`panel`]), so that nothing is summed across lanes.
#![allow(unsafe_code)]

mod codes;
mod direct;
pub(super) mod float;
mod head;
mod panel;

use std::arch::x86_64::*;
use std::ops::Range;

use super::Matrix;
use super::layout::{Layout, Min};
use crate::isa::Avx2;
use crate::isa::avx2::eight;
use crate::kernels::activation::{Activations, Block};
use crate::pool::TileMut;
use codes::Codes;
use head::Part;

/// Row counts from which a panel is worth its making.
const PANEL_ROWS: usize = 4;

pub(super) fn matmul<L: Codes<B>, const B: usize>(
    _: Avx2,
    w: &Matrix<'_>,
    outputs: Range<usize>,
    x: &Activations,
    out: &mut TileMut<'_>,
) {
    // SAFETY: the token proves that the features are there.
    unsafe {
        match x.rows() {
            0 => (),
            1 => direct::matmul::<L, B, 1>(w, outputs, x, out),
            2 => direct::matmul::<L, B, 2>(w, outputs, x, out),
            3 => direct::matmul::<L, B, 3>(w, outputs, x, out),
            PANEL_ROWS.. => panel::matmul::<L, B>(w, outputs, x, out),
        }
    }
}

/// The blocks of eight outputs from `first` on; past the last output, that one again.
#[inline]
fn eight_rows<'a, const B: usize>(w: &Matrix<'a>, first: usize, last: usize) -> [&'a [[u8; B]]; 8] {
    eight!(I => w.row((first + I).min(last)).as_chunks::<B>().0)
}

/// Ends a part: takes the offset from the sums of `code · factor · a`, and adds the part to the accumulators.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_part<L: Layout<B>, const B: usize>(acc: __m256, sum: __m256i, part: &Part, a: &Block) -> __m256 {
    let half_sums = _mm256_set1_epi32(bytemuck::cast(a.sums));
    let sum = match L::OFFSET {
        0 => sum,
        offset if L::HALVES => {
            let offset = _mm256_mullo_epi16(part.factors, _mm256_set1_epi16(offset));
            _mm256_sub_epi32(sum, _mm256_madd_epi16(offset, half_sums))
        }
        offset => _mm256_sub_epi32(sum, _mm256_madd_epi16(_mm256_set1_epi16(offset), half_sums)),
    };
    let a_scale = _mm256_set1_ps(a.scale);
    let acc = _mm256_fmadd_ps(_mm256_mul_ps(part.scale, a_scale), _mm256_cvtepi32_ps(sum), acc);
    match L::MIN {
        Min::None => acc,
        Min::Part => _mm256_fmadd_ps(part.min, _mm256_set1_ps(a.scaled_sum), acc),
        Min::Halves => {
            let sum = _mm256_cvtepi32_ps(_mm256_madd_epi16(part.minima, half_sums));
            _mm256_fmadd_ps(_mm256_mul_ps(part.min, a_scale), sum, acc)
        }
    }
}
