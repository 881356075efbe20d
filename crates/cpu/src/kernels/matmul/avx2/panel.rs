//! Many activation rows: eight outputs' codes are unpacked once and transposed, four consecutive codes of an output in a 32-bit
//! lane, so that broadcasting four activations multiplies them for all eight outputs.

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::Matrix;
use super::super::layout::Layout;
use super::codes::Codes;
use super::head::{self, Part};
use super::{add_part, eight_rows};
use crate::isa::avx2::{eight, load, store, transpose};
use crate::kernels::activation::{Activations, Block, PLANES};
use crate::pool::TileMut;

/// Parts in a panel: with their activations they stay in the first cache.
const PARTS: usize = 32;

/// Activation rows that share a panel: their accumulators wait on the stack.
const ROWS: usize = 256;

/// Activation rows computed together.
const GROUP: usize = 4;

/// A run of parts of eight outputs.
struct Panel {
    codes: [[__m256i; 8]; PARTS],
    parts: [Part; PARTS],
}

/// Products of any number of activation rows.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn matmul<L: Codes<B>, const B: usize>(
    w: &Matrix<'_>,
    outputs: Range<usize>,
    x: &Activations,
    out: &mut TileMut<'_>,
) {
    let mut panel = Panel { codes: [[_mm256_setzero_si256(); 8]; PARTS], parts: [Part::zero(); PARTS] };
    let mut acc = [[0.0; 8]; ROWS];
    for first in outputs.clone().step_by(8) {
        let blocks = eight_rows::<B>(w, first, outputs.end - 1);
        let column = first - outputs.start;
        for first_row in (0..x.rows()).step_by(ROWS) {
            let acc = &mut acc[..ROWS.min(x.rows() - first_row)];
            acc.fill([0.0; 8]);
            for start in (0..blocks[0].len()).step_by(PARTS / L::PARTS) {
                let count = fill::<L, B>(&mut panel, eight!(I => &blocks[I][start..]));
                multiply::<L, B>(&panel, start * L::PARTS..start * L::PARTS + count, x, first_row, acc);
            }
            for (row, acc) in acc.iter().enumerate() {
                let out = &mut out.row_mut(first_row + row)[column..];
                let count = out.len().min(8);
                out[..count].copy_from_slice(&acc[..count]);
            }
        }
    }
}

/// Unpacks as many blocks as fit; returns the number of parts.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fill<L: Codes<B>, const B: usize>(panel: &mut Panel, rows: [&[[u8; B]]; 8]) -> usize {
    let count = rows[0].len().min(PARTS / L::PARTS);
    let rows = eight!(I => &rows[I][..count]);
    let all_codes = panel.codes.chunks_exact_mut(L::PARTS);
    let all_parts = panel.parts.chunks_exact_mut(L::PARTS);
    for (number, (to_codes, to_parts)) in (0..count).zip(all_codes.zip(all_parts)) {
        let blocks = eight!(I => &rows[I][number]);
        to_parts.copy_from_slice(&head::read::<L, B>(blocks)[..L::PARTS]);
        for (part, to) in to_codes.iter_mut().enumerate() {
            // SAFETY: this function has the features that `unpack` asks for.
            *to = transpose(eight!(I => unsafe { L::unpack(blocks[I], part) }));
        }
    }
    count * L::PARTS
}

/// Adds the panel's products to the accumulators of the rows from `first_row` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn multiply<L: Layout<B>, const B: usize>(
    panel: &Panel,
    range: Range<usize>,
    x: &Activations,
    first_row: usize,
    acc: &mut [[f32; 8]],
) {
    let (groups, rest) = acc.as_chunks_mut::<GROUP>();
    let mut row = first_row;
    for acc in groups {
        group::<L, B, GROUP>(panel, activations(x, row, &range), acc);
        row += GROUP;
    }
    let (pairs, last) = rest.as_chunks_mut::<2>();
    for acc in pairs {
        group::<L, B, 2>(panel, activations(x, row, &range), acc);
        row += 2;
    }
    if let Some(acc) = last.first_chunk_mut() {
        group::<L, B, 1>(panel, activations(x, row, &range), acc);
    }
}

/// Some parts of `R` rows, plane by plane.
fn activations<'a, const R: usize>(
    x: &'a Activations,
    first: usize,
    range: &Range<usize>,
) -> [[&'a [Block]; R]; PLANES] {
    let of_plane = |plane, row| x.plane(plane, first + row).get(range.clone()).unwrap_or_default();
    std::array::from_fn(|plane| std::array::from_fn(|row| of_plane(plane, row)))
}

/// Steps of four codes whose pair sums fit 16 bits together.
const fn steps<L: Layout<B>, const B: usize>() -> usize {
    let most = if L::HALVES { 4 } else { 8 };
    let mut steps = 1;
    if let Some(greatest) = L::GREATEST {
        while steps < most && 2 * steps as i32 * 2 * 127 * greatest as i32 <= i16::MAX as i32 {
            steps *= 2;
        }
    }
    steps
}

#[target_feature(enable = "avx2,fma,f16c")]
fn group<L: Layout<B>, const B: usize, const R: usize>(
    panel: &Panel,
    planes: [[&[Block]; R]; PLANES],
    acc: &mut [[f32; 8]; R],
) {
    let steps = const { steps::<L, B>() };
    let count = planes[0][0].len();
    let mut sums = [_mm256_setzero_ps(); R];
    for (sum, acc) in sums.iter_mut().zip(&*acc) {
        *sum = load(acc);
    }
    let parts = panel.codes.iter().zip(&panel.parts).take(count).enumerate();
    for ((index, (codes, part)), rows) in
        parts.flat_map(|part| planes[..L::PLANES].iter().map(move |rows| (part, rows)))
    {
        let mut totals = [_mm256_setzero_si256(); R];
        for (run, codes) in codes.chunks_exact(steps).enumerate() {
            let mut pairs = [_mm256_setzero_si256(); R];
            for (step, codes) in codes.iter().enumerate() {
                for (pairs, row) in pairs.iter_mut().zip(rows) {
                    let four = bytemuck::cast_ref::<_, [[i8; 4]; 8]>(&row[index].codes)[run * steps + step];
                    let four = _mm256_set1_epi32(bytemuck::cast(four));
                    let product = match L::GREATEST {
                        Some(_) => _mm256_maddubs_epi16(*codes, four),
                        None => _mm256_maddubs_epi16(_mm256_abs_epi8(*codes), _mm256_sign_epi8(four, *codes)),
                    };
                    *pairs = _mm256_add_epi16(*pairs, product);
                }
            }
            let factors = if L::HALVES { half_factors(part, run * steps / 4) } else { _mm256_set1_epi16(1) };
            for (total, pairs) in totals.iter_mut().zip(pairs) {
                *total = _mm256_add_epi32(*total, _mm256_madd_epi16(pairs, factors));
            }
        }
        for ((sum, total), row) in sums.iter_mut().zip(totals).zip(rows) {
            *sum = add_part::<L, B>(*sum, total, part, &row[index]);
        }
    }
    for (acc, sum) in acc.iter_mut().zip(sums) {
        *acc = store(sum);
    }
}

/// The factors of one half, twice in each 32-bit lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn half_factors(part: &Part, half: usize) -> __m256i {
    let first =
        _mm256_setr_epi64x(0x0504_0504_0100_0100, 0x0d0c_0d0c_0908_0908, 0x0504_0504_0100_0100, 0x0d0c_0d0c_0908_0908);
    let both = _mm256_add_epi8(first, _mm256_set1_epi8(2 * half as i8));
    _mm256_shuffle_epi8(part.factors, both)
}
