//! Float products with AVX2: sixteen outputs are widened and transposed into a panel, outputs as lanes; each accumulator is one
//! ascending chain.

use std::arch::x86_64::*;
use std::ops::Range;

use weights::DType;

use super::super::Matrix;
use super::super::float::{CHUNK, elements, widen};
use crate::isa::Avx2;
use crate::isa::avx2::{eight, load, load16, load32, prefetch, store, transpose};
use crate::pool::TileMut;

/// Outputs in a panel, as vectors of eight.
const VECTORS: usize = 2;

/// Activation rows that share a panel: their accumulators wait on the stack.
const ROWS: usize = 192;

/// Activation rows computed together.
const GROUP: usize = 6;

type Panel = [[__m256; VECTORS]; CHUNK];
type Acc = [[f32; 8]; VECTORS];

pub(in super::super) fn matmul(_: Avx2, w: &Matrix<'_>, outputs: Range<usize>, x: &[f32], out: &mut TileMut<'_>) {
    // SAFETY: the token proves that the features are there.
    unsafe { with_features(w, outputs, x, out) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn with_features(w: &Matrix<'_>, outputs: Range<usize>, x: &[f32], out: &mut TileMut<'_>) {
    let mut panel: Panel = [[_mm256_setzero_ps(); VECTORS]; CHUNK];
    let mut acc = [[[0.0; 8]; VECTORS]; ROWS];
    for first in outputs.clone().step_by(8 * VECTORS) {
        let column = first - outputs.start;
        for first_row in (0..out.rows()).step_by(ROWS) {
            let acc = &mut acc[..ROWS.min(out.rows() - first_row)];
            acc.fill([[0.0; 8]; VECTORS]);
            let x = &x[first_row * w.cols..][..acc.len() * w.cols];
            for start in (0..w.cols).step_by(CHUNK) {
                let range = start..w.cols.min(start + CHUNK);
                fill(&mut panel, w, first..outputs.end, range.clone());
                multiply(&panel[..range.len()], x, w.cols, start, acc);
            }
            for (row, acc) in acc.iter().enumerate() {
                let out = &mut out.row_mut(first_row + row)[column..];
                for (out, value) in out.iter_mut().zip(acc.as_flattened()) {
                    *out = *value;
                }
            }
        }
    }
}

/// Widens elements `range` of the first sixteen outputs; past the last output, that one again.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fill(panel: &mut Panel, w: &Matrix<'_>, outputs: Range<usize>, range: Range<usize>) {
    for vector in 0..VECTORS {
        let rows: [&[u8]; 8] = std::array::from_fn(|i| {
            let output = (outputs.start + 8 * vector + i).min(outputs.end - 1);
            elements(w, output, range.start, range.len())
        });
        match w.dtype {
            DType::F32 => transpose_into::<F32, 32>(panel, vector, rows, range.len()),
            DType::F16 => transpose_into::<F16, 16>(panel, vector, rows, range.len()),
            DType::BF16 => transpose_into::<Bf16, 16>(panel, vector, rows, range.len()),
            dtype => {
                let mut widened = [[0_f32; CHUNK]; 8];
                for (to, from) in widened.iter_mut().zip(rows) {
                    widen(dtype, from, &mut to[..range.len()]);
                }
                let rows = widened.each_ref().map(|row| bytemuck::cast_slice(&row[..range.len()]));
                transpose_into::<F32, 32>(panel, vector, rows, range.len());
            }
        }
    }
}

/// A float type of which eight elements take `N` bytes.
trait Float<const N: usize> {
    /// Reads eight elements as f32.
    ///
    /// # Safety
    /// The machine must have AVX2 and F16C.
    unsafe fn read(bytes: &[u8; N]) -> __m256;
}

struct F32;
struct F16;
struct Bf16;

impl Float<32> for F32 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn read(bytes: &[u8; 32]) -> __m256 {
        _mm256_castsi256_ps(load32(bytes))
    }
}

impl Float<16> for F16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn read(bytes: &[u8; 16]) -> __m256 {
        _mm256_cvtph_ps(load16(bytes))
    }
}

impl Float<16> for Bf16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn read(bytes: &[u8; 16]) -> __m256 {
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load16(bytes))))
    }
}

/// Reads eight elements of each row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn turn<F: Float<N>, const N: usize>(rows: [&[u8; N]; 8]) -> [__m256; 8] {
    // SAFETY: this function has the features that `read` asks for.
    let turned = transpose(eight!(I => _mm256_castps_si256(unsafe { F::read(rows[I]) })));
    eight!(I => _mm256_castsi256_ps(turned[I]))
}

/// Widens rows and stores them by element.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn transpose_into<F: Float<N>, const N: usize>(panel: &mut Panel, vector: usize, rows: [&[u8]; 8], count: usize) {
    let whole = eight!(I => &rows[I].as_chunks::<N>().0[..count / 8]);
    let (eights, tail) = panel[..count].as_chunks_mut::<8>();
    for (number, to) in eights.iter_mut().enumerate() {
        // Each row is read a chunk at a time, too briefly for the hardware to follow: fetch the row's next chunk meanwhile.
        if (number * N).is_multiple_of(64) {
            for row in rows {
                prefetch(row, row.len() + number * N..row.len() + number * N + 1);
            }
        }
        for (to, from) in to.iter_mut().zip(turn::<F, N>(eight!(I => &whole[I][number]))) {
            to[vector] = from;
        }
    }
    if !tail.is_empty() {
        let mut padded = [[0; N]; 8];
        for (to, from) in padded.iter_mut().zip(rows) {
            let from = from.as_chunks::<N>().1;
            to[..from.len()].copy_from_slice(from);
        }
        for (to, from) in tail.iter_mut().zip(turn::<F, N>(padded.each_ref())) {
            to[vector] = from;
        }
    }
}

/// Adds the panel's products to the accumulators of all rows of `x`, from element `start` of `width` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn multiply(panel: &[[__m256; VECTORS]], x: &[f32], width: usize, start: usize, acc: &mut [Acc]) {
    let mut x = &x[start..];
    let (groups, rest) = acc.as_chunks_mut::<GROUP>();
    for acc in groups {
        group::<GROUP>(panel, x, width, acc);
        x = x.get(GROUP * width..).unwrap_or_default();
    }
    let (pairs, last) = rest.as_chunks_mut::<2>();
    for acc in pairs {
        group::<2>(panel, x, width, acc);
        x = x.get(2 * width..).unwrap_or_default();
    }
    if let Some(acc) = last.first_chunk_mut() {
        group::<1>(panel, x, width, acc);
    }
}

/// As [`multiply`], for the first `R` rows.
#[target_feature(enable = "avx2,fma,f16c")]
fn group<const R: usize>(panel: &[[__m256; VECTORS]], x: &[f32], width: usize, acc: &mut [Acc; R]) {
    let mut rows = [x; R];
    let mut sums = [[_mm256_setzero_ps(); VECTORS]; R];
    for (number, (row, (sums, acc))) in rows.iter_mut().zip(sums.iter_mut().zip(&*acc)).enumerate() {
        *row = &x[number * width..][..panel.len()];
        for (sum, acc) in sums.iter_mut().zip(acc) {
            *sum = load(acc);
        }
    }
    for (index, w) in panel.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(&rows) {
            let x = _mm256_set1_ps(row[index]);
            for (sum, w) in sums.iter_mut().zip(w) {
                *sum = _mm256_fmadd_ps(*w, x, *sum);
            }
        }
    }
    for (acc, sum) in acc.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
        *acc = store(*sum);
    }
}
