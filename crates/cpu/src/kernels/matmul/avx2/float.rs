//! Float products with AVX2: sixteen outputs are widened and transposed into a panel, outputs as lanes; each accumulator is one
//! ascending chain.

use std::arch::x86_64::*;
use std::ops::Range;

use weights::DType;

use super::super::Matrix;
use super::super::float::{CHUNK, elements, widen};
use crate::isa::Avx2;
use crate::isa::avx2::{load, load16, load32, store, transpose};
use crate::pool::TileMut;

/// Outputs in a panel, as vectors of eight.
const VECTORS: usize = 2;

/// Activation rows that share a panel: their accumulators wait on the stack.
const ROWS: usize = 192;

/// Activation rows computed together.
const GROUP: usize = 6;

type Panel = [[__m256; VECTORS]; CHUNK];
type Acc = [[f32; 8]; VECTORS];

pub(in super::super) fn matmul(
    _: Avx2,
    w: &Matrix<'_>,
    outputs: Range<usize>,
    x: &[f32],
    out: &mut TileMut<'_>,
) {
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
            DType::F32 => transpose_into(panel, vector, rows, range.len(), |bytes: &[u8; 32]| {
                _mm256_castsi256_ps(load32(bytes))
            }),
            DType::F16 => transpose_into(panel, vector, rows, range.len(), |bytes: &[u8; 16]| {
                _mm256_cvtph_ps(load16(bytes))
            }),
            DType::BF16 => transpose_into(panel, vector, rows, range.len(), |bytes: &[u8; 16]| {
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load16(
                    bytes,
                ))))
            }),
            dtype => {
                let mut widened = [[0_f32; CHUNK]; 8];
                for (to, from) in widened.iter_mut().zip(rows) {
                    widen(dtype, from, &mut to[..range.len()]);
                }
                let rows = widened
                    .each_ref()
                    .map(|row| bytemuck::cast_slice(&row[..range.len()]));
                transpose_into(panel, vector, rows, range.len(), |bytes: &[u8; 32]| {
                    _mm256_castsi256_ps(load32(bytes))
                });
            }
        }
    }
}

/// Reads eight elements of each row at a time (`N` bytes) and stores them by element.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn transpose_into<const N: usize>(
    panel: &mut Panel,
    vector: usize,
    rows: [&[u8]; 8],
    count: usize,
    read: impl Fn(&[u8; N]) -> __m256,
) {
    let turn =
        |eight: [&[u8; N]; 8]| transpose(eight.map(|bytes| _mm256_castps_si256(read(bytes))));
    let whole = rows.map(|row| &row.as_chunks::<N>().0[..count / 8]);
    let (eights, tail) = panel[..count].as_chunks_mut::<8>();
    for (number, to) in eights.iter_mut().enumerate() {
        for (to, from) in to.iter_mut().zip(turn(whole.map(|row| &row[number]))) {
            to[vector] = _mm256_castsi256_ps(from);
        }
    }
    if !tail.is_empty() {
        let mut padded = [[0; N]; 8];
        for (to, from) in padded.iter_mut().zip(rows) {
            let from = from.as_chunks::<N>().1;
            to[..from.len()].copy_from_slice(from);
        }
        for (to, from) in tail.iter_mut().zip(turn(padded.each_ref())) {
            to[vector] = _mm256_castsi256_ps(from);
        }
    }
}

/// Adds the panel's products to the accumulators of all rows of `x`, from element `start` of `width` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn multiply(panel: &[[__m256; VECTORS]], x: &[f32], width: usize, start: usize, acc: &mut [Acc]) {
    let row = |row: usize| &x[row * width + start..][..panel.len()];
    let (groups, rest) = acc.as_chunks_mut::<GROUP>();
    let done = groups.len() * GROUP;
    for (number, acc) in groups.iter_mut().enumerate() {
        group::<GROUP>(panel, std::array::from_fn(|i| row(number * GROUP + i)), acc);
    }
    let (pairs, last) = rest.as_chunks_mut::<2>();
    let odd = done + pairs.len() * 2;
    for (number, acc) in pairs.iter_mut().enumerate() {
        group::<2>(
            panel,
            std::array::from_fn(|i| row(done + number * 2 + i)),
            acc,
        );
    }
    if let Some(acc) = last.first_chunk_mut() {
        group::<1>(panel, [row(odd)], acc);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn group<const R: usize>(panel: &[[__m256; VECTORS]], rows: [&[f32]; R], acc: &mut [Acc; R]) {
    let rows = rows.map(|row| &row[..panel.len()]);
    let mut sums = acc.map(|acc| acc.map(|acc| load(&acc)));
    for (index, w) in panel.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(rows) {
            let x = _mm256_set1_ps(row[index]);
            for (sum, w) in sums.iter_mut().zip(w) {
                *sum = _mm256_fmadd_ps(*w, x, *sum);
            }
        }
    }
    *acc = sums.map(|sums| sums.map(|sum| store(sum)));
}
