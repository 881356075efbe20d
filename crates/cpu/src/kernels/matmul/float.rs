//! Products with float weights, and with formats that have no integer kernel: `acc = fma(w[k], x[k], acc)` for ascending k, one
//! chain an output.

use std::ops::Range;

use weights::DType;

use super::Matrix;
use crate::isa::Isa;
use crate::pool::TileMut;

/// Elements widened at a time: a multiple of every block length.
pub(super) const CHUNK: usize = 256;

pub(super) fn matmul(isa: Isa, w: &Matrix<'_>, outputs: Range<usize>, x: &[f32], out: &mut TileMut<'_>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(token) = isa.avx2() {
        return super::avx2::float::matmul(token, w, outputs, x, out);
    }
    let _ = isa;
    scalar(w, outputs, x, out);
}

fn scalar(w: &Matrix<'_>, outputs: Range<usize>, x: &[f32], out: &mut TileMut<'_>) {
    let mut widened = [0.0; CHUNK];
    for (column, output) in outputs.enumerate() {
        for row in 0..out.rows() {
            out.row_mut(row)[column] = 0.0;
        }
        for start in (0..w.cols).step_by(CHUNK) {
            let widened = &mut widened[..CHUNK.min(w.cols - start)];
            widen(w.dtype, elements(w, output, start, widened.len()), widened);
            for row in 0..out.rows() {
                let x = &x[row * w.cols + start..][..widened.len()];
                let acc = &mut out.row_mut(row)[column];
                *acc = widened.iter().zip(x).fold(*acc, |acc, (w, x)| w.mul_add(*x, acc));
            }
        }
    }
}

/// The stored bytes of `count` elements of an output, from a block boundary on.
pub(super) fn elements<'a>(w: &Matrix<'a>, output: usize, start: usize, count: usize) -> &'a [u8] {
    let bytes = |elements: usize| elements / w.dtype.block_len() * w.dtype.block_bytes();
    &w.row(output)[bytes(start)..][..bytes(count)]
}

/// Exact conversion to f32.
pub(super) fn widen(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        DType::F32 => {
            for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *out = f32::from_le_bytes(*bytes);
            }
        }
        DType::F16 => {
            for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *out = half::f16::from_le_bytes(*bytes).to_f32_const();
            }
        }
        DType::BF16 => {
            for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *out = half::bf16::from_le_bytes(*bytes).to_f32_const();
            }
        }
        _ => weights::block::dequantise(dtype, bytes, out).expect("whole blocks of a type that can be converted"),
    }
}
