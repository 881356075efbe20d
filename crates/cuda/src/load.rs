//! Weights as the device keeps them: matrices in their stored blocks, vectors as f32.

use crate::driver::At;
use crate::layout::Layout;
use crate::{CudaError, driver::Memory};
use plan::{PlanError, Program, WeightRole, WeightUse, bank, check_matrix_type, rounded, stored, values};
use std::mem::size_of;
use weights::{DType, Tensor, Weights};

/// One weight on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) at: At,
    /// Of a matrix; vectors are f32.
    pub(crate) dtype: DType,
    /// Values in a row; a vector is one row, whatever its shape.
    pub(crate) cols: usize,
    /// Bytes of a row.
    pub(crate) row: usize,
}

/// Where each weight of a program lies; the same before and after it is loaded.
pub(crate) fn layout(program: &Program, weights: &Weights, to: &mut Layout) -> Result<Vec<usize>, PlanError> {
    program.weights.iter().map(|used| Ok(to.take(bytes(used, weights)?))).collect()
}

/// The type a weight is kept in.
fn kept_type(used: &WeightUse, weights: &Weights) -> Result<DType, PlanError> {
    if used.role == WeightRole::Vector {
        return Ok(DType::F32);
    }
    let dtype = used.loaded_type(&|name| weights.get(name).map(Tensor::dtype))?;
    check_matrix_type(crate::DEVICE_NAME, &used.source.to_string(), dtype)?;
    Ok(dtype)
}

/// Bytes a weight takes.
fn bytes(used: &WeightUse, weights: &Weights) -> Result<usize, PlanError> {
    let (rows, cols) = (used.shape[0], used.shape[1]);
    Ok(row_bytes(kept_type(used, weights)?, rows, cols).1)
}

/// Bytes of a row and of all. A matrix whose rows are no whole blocks is refused when it is read.
fn row_bytes(dtype: DType, rows: usize, cols: usize) -> (usize, usize) {
    let row = dtype.bytes_for(cols).unwrap_or(cols * size_of::<f32>());
    (row, rows * row)
}

/// Loads a weight to its place.
pub(crate) fn load(used: &WeightUse, weights: &Weights, to: &Memory, offset: usize) -> Result<Stored, PlanError> {
    let dtype = kept_type(used, weights)?;
    let [rows, cols] = if used.role == WeightRole::Vector { [1, used.shape[0] * used.shape[1]] } else { used.shape };
    let (row, all) = row_bytes(dtype, rows, cols);
    let misfit = |found: usize| PlanError::BadSource {
        name: used.source.to_string(),
        expected: format!("{all} bytes of {dtype}"),
        found: vec![found],
    };
    let mut end = offset;
    let mut put = |bytes: &[u8]| -> Result<(), PlanError> {
        if end + bytes.len() > offset + all {
            return Err(misfit(end + bytes.len() - offset));
        }
        to.write(end, bytes).map_err(refused)?;
        end += bytes.len();
        Ok(())
    };
    let mut tensor = |tensor: &Tensor| {
        if tensor.dtype() == dtype {
            put(tensor.bytes())
        } else {
            // Experts of several types, which the sum counted as f32.
            put(bytemuck::cast_slice(&tensor.to_f32()?))
        }
    };
    match used.role {
        WeightRole::Vector => put(bytemuck::cast_slice(&values(&used.source, weights)?))?,
        WeightRole::Matrix | WeightRole::Table => tensor(&rounded(stored(&used.source, weights)?, used.to)?)?,
        WeightRole::Experts(count) => {
            for expert in bank(&used.source, weights, count)? {
                tensor(&rounded(expert, used.to)?)?;
            }
        }
    }
    if end - offset != all {
        return Err(misfit(end - offset));
    }
    Ok(Stored { at: to.at(offset), dtype, cols, row })
}

/// A failure of the GPU while a program is made.
pub(crate) fn refused(error: CudaError) -> PlanError {
    PlanError::Device { device: crate::DEVICE_NAME.to_owned(), what: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::{Layout, layout};
    use plan::lower;
    use testkit::{Model, families};

    /// Every weight of every family has a type there are kernels for, and a place of its own.
    #[test]
    fn every_weight_has_a_place() {
        for golden in families() {
            let model = Model::open(&golden.path());
            let program = lower(&model.spec, &model.index).unwrap_or_else(|e| panic!("{e}"));
            let mut all = Layout::default();
            let places = layout(&program, &model.weights, &mut all).unwrap_or_else(|e| panic!("{}: {e}", golden.file));
            assert_eq!(places.len(), program.weights.len());
            assert!(places.is_sorted() && places.iter().all(|at| at % Layout::ALIGN == 0 && *at <= all.bytes()));
        }
    }
}
