//! Evaluates weight sources.

use crate::PlanError;
use model::{Source, WeightIndex};
use weights::block::mxfp4;
use weights::{DType, Tensor, Weights, WeightsError};

/// Checks that a source exists with the shape the model needs; a vector's shape is `[1, width]`, and any shape with as
/// many values will do for it.
pub fn check(source: &Source, shape: [usize; 2], index: &WeightIndex) -> Result<(), PlanError> {
    let found = shape_of(source, index)?;
    let same_values = || shape[0] == 1 && found[0] * found[1] == shape[1];
    if found == shape || same_values() {
        return Ok(());
    }
    Err(PlanError::BadShape { name: source.to_string(), expected: shape.to_vec(), found: found.to_vec() })
}

/// `[rows, columns]` of a source.
fn shape_of(source: &Source, index: &WeightIndex) -> Result<[usize; 2], PlanError> {
    let misfit = |expected: String, found: [usize; 2]| PlanError::BadSource {
        name: source.to_string(),
        expected,
        found: found.to_vec(),
    };
    let stored = |name: &String| {
        let shape = index.shape(name).ok_or_else(|| PlanError::MissingTensor { name: name.clone() })?;
        let cols = shape.last().copied().unwrap_or(1);
        Ok([shape.iter().product::<usize>() / cols.max(1), cols])
    };
    match source {
        Source::Tensor(name) => stored(name),
        Source::PlusOne(of) | Source::NegExp(of) => shape_of(of, index),
        Source::Rows { of, first, len, every } => {
            let [rows, cols] = shape_of(of, index)?;
            if first + len > *every || rows % every != 0 {
                return Err(misfit(format!("a multiple of {every} rows"), [rows, cols]));
            }
            Ok([rows / every * len, cols])
        }
        Source::Stack(parts) => {
            let mut rows = 0;
            let mut cols = None;
            for part in parts {
                let [r, c] = shape_of(part, index)?;
                rows += r;
                if *cols.get_or_insert(c) != c {
                    return Err(misfit("parts of one width".to_owned(), [r, c]));
                }
            }
            Ok([rows, cols.unwrap_or(0)])
        }
        Source::Transpose { of, count } => {
            let [rows, cols] = shape_of(of, index)?;
            if rows % count != 0 {
                return Err(misfit(format!("{count} matrices"), [rows, cols]));
            }
            Ok([count * cols, rows / count])
        }
        Source::Column(of) => shape_of(of, index).map(|[rows, cols]| [rows * cols, 1]),
        Source::Mxfp4 { blocks, scales } => {
            let ([rows, bytes], [outer, per_row]) = (stored(blocks)?, stored(scales)?);
            if bytes != mxfp4::LEN / 2 || rows != outer * per_row {
                return Err(misfit(
                    format!("{} bytes for each of {} scales", mxfp4::LEN / 2, outer * per_row),
                    [rows, bytes],
                ));
            }
            Ok([outer, per_row * mxfp4::LEN])
        }
    }
}

/// Fails for a type that a device with kernels for [`DType::MATRICES`] cannot compute with.
pub fn check_matrix_type(device: &str, name: &str, dtype: DType) -> Result<(), PlanError> {
    if DType::MATRICES.contains(&dtype) {
        return Ok(());
    }
    let known: Vec<_> = DType::MATRICES.iter().map(|t| t.name()).collect();
    Err(PlanError::UnsupportedType {
        name: name.to_owned(),
        dtype: dtype.name().to_owned(),
        device: device.to_owned(),
        known: known.join(", "),
    })
}

/// The type a source has once it is loaded, given the types of the stored tensors.
pub fn stored_type(source: &Source, dtype: &dyn Fn(&str) -> Option<DType>) -> Result<DType, PlanError> {
    Ok(match source {
        Source::Tensor(name) => dtype(name).ok_or_else(|| PlanError::MissingTensor { name: name.clone() })?,
        Source::PlusOne(_) | Source::NegExp(_) => DType::F32,
        Source::Rows { of, .. } => stored_type(of, dtype)?,
        Source::Stack(parts) => {
            let mut all = parts.iter().map(|p| stored_type(p, dtype)).collect::<Result<Vec<_>, _>>()?;
            all.dedup();
            if all.len() == 1 { all[0] } else { DType::F32 }
        }
        Source::Transpose { of, .. } | Source::Column(of) => {
            let inner = stored_type(of, dtype)?;
            if inner.block_len() == 1 { inner } else { DType::F32 }
        }
        Source::Mxfp4 { .. } => DType::MXFP4,
    })
}

/// A loaded matrix in the type that [`crate::WeightUse::to`] names.
pub fn rounded(tensor: Tensor, to: Option<DType>) -> Result<Tensor, WeightsError> {
    match to {
        Some(to) => tensor.quantised(to),
        None => Ok(tensor),
    }
}

/// The source's values as f32, row by row.
pub fn values(source: &Source, weights: &Weights) -> Result<Vec<f32>, WeightsError> {
    match source {
        Source::PlusOne(of) => Ok(values(of, weights)?.into_iter().map(|w| 1.0 + w).collect()),
        Source::NegExp(of) => Ok(values(of, weights)?.into_iter().map(|w| -w.exp()).collect()),
        _ => stored(source, weights)?.to_f32(),
    }
}

/// The source as a matrix in the type it is stored in where rows only move, and without a copy where they are
/// neighbours; as f32 where values change.
pub fn stored(source: &Source, weights: &Weights) -> Result<Tensor, WeightsError> {
    match source {
        Source::Tensor(name) => Ok(weights.require(name)?.clone()),
        Source::PlusOne(of) | Source::NegExp(of) => {
            let shape = stored(of, weights)?.shape().to_vec();
            Ok(Tensor::from_f32(source.to_string(), shape, &values(source, weights)?))
        }
        Source::Rows { of, first, len, every } => {
            let of = stored(of, weights)?;
            if *every == of.rows() {
                return of.row_range(*first..first + len);
            }
            let ranges = (0..of.rows() / every).map(|group| group * every + first..group * every + first + len);
            stack(source, ranges.map(|r| of.row_range(r)).collect::<Result<_, _>>()?)
        }
        Source::Stack(parts) => stack(source, parts.iter().map(|p| stored(p, weights)).collect::<Result<_, _>>()?),
        Source::Transpose { of, count } => transpose(source, &stored(of, weights)?, *count),
        Source::Column(of) => {
            let of = stored(of, weights)?;
            if of.dtype().block_len() == 1 {
                return Tensor::from_bytes(source.to_string(), of.dtype(), vec![of.elements(), 1], of.bytes().to_vec());
            }
            Ok(Tensor::from_f32(source.to_string(), vec![of.elements(), 1], &of.to_f32()?))
        }
        Source::Mxfp4 { blocks, scales } => pack_mxfp4(source, weights.require(blocks)?, weights.require(scales)?),
    }
}

/// The matrices of `count` experts, each without a copy where its rows are neighbours in the file.
pub fn bank(source: &Source, weights: &Weights, count: usize) -> Result<Vec<Tensor>, WeightsError> {
    let slices = |of: &Tensor, first: usize, len: usize, every: usize| {
        (0..count).map(|e| of.row_range(e * every + first..e * every + first + len)).collect()
    };
    match source {
        Source::Stack(parts) if parts.len() == count => parts.iter().map(|p| stored(p, weights)).collect(),
        Source::Rows { of, first, len, every } => {
            let whole = stored(of, weights)?;
            if whole.rows() == count * every {
                return slices(&whole, *first, *len, *every);
            }
            let all = stored(source, weights)?;
            slices(&all, 0, all.rows() / count, all.rows() / count)
        }
        _ => {
            let all = stored(source, weights)?;
            slices(&all, 0, all.rows() / count, all.rows() / count)
        }
    }
}

/// Matrices of one width one above the other: their bytes where the types agree, else as f32.
fn stack(source: &Source, parts: Vec<Tensor>) -> Result<Tensor, WeightsError> {
    let Some(first) = parts.first() else {
        return Ok(Tensor::from_f32(source.to_string(), vec![0, 0], &[]));
    };
    let shape = vec![parts.iter().map(Tensor::rows).sum(), first.cols()];
    if parts.iter().all(|p| p.dtype() == first.dtype()) {
        let bytes = parts.iter().flat_map(Tensor::bytes).copied().collect();
        return Tensor::from_bytes(source.to_string(), first.dtype(), shape, bytes);
    }
    let mut all = Vec::new();
    for part in &parts {
        all.extend(part.to_f32()?);
    }
    Ok(Tensor::from_f32(source.to_string(), shape, &all))
}

/// Each of `count` matrices transposed, in its own type where elements stand alone.
fn transpose(source: &Source, of: &Tensor, count: usize) -> Result<Tensor, WeightsError> {
    if of.dtype().block_len() != 1 {
        let plain = Tensor::from_f32(source.to_string(), vec![of.rows(), of.cols()], &of.to_f32()?);
        return transpose(source, &plain, count);
    }
    let (rows, cols, size) = (of.rows() / count, of.cols(), of.dtype().block_bytes());
    let mut bytes = Vec::with_capacity(of.bytes().len());
    for matrix in of.bytes().chunks_exact(rows * cols * size) {
        for col in 0..cols {
            for row in matrix.chunks_exact(cols * size) {
                bytes.extend_from_slice(&row[col * size..][..size]);
            }
        }
    }
    Tensor::from_bytes(source.to_string(), of.dtype(), vec![count * cols, rows], bytes)
}

/// Codes as neighbours and scales apart → blocks of a scale and codes half a block apart.
fn pack_mxfp4(source: &Source, blocks: &Tensor, scales: &Tensor) -> Result<Tensor, WeightsError> {
    const HALF: usize = mxfp4::LEN / 2;
    let mut bytes = Vec::with_capacity(scales.elements() * mxfp4::BYTES);
    for (codes, scale) in blocks.bytes().as_chunks::<HALF>().0.iter().zip(scales.bytes()) {
        let code = |i: usize| codes[i / 2] >> (4 * (i % 2)) & 15;
        bytes.push(*scale);
        bytes.extend((0..HALF).map(|i| code(i) | code(i + HALF) << 4));
    }
    let shape = vec![scales.rows(), scales.cols() * mxfp4::LEN];
    Tensor::from_bytes(source.to_string(), DType::MXFP4, shape, bytes)
}
