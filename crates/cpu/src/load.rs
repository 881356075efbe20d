//! Weights as the device keeps them: matrices in their stored blocks over the mapped file, vectors as f32.

use crate::kernels::matmul::Matrix;
use model::Source;
use plan::{PlanError, WeightRole, WeightUse, values};
use std::mem::size_of;
use weights::{DType, Tensor, Weights};

/// Types the matrix kernels read.
const MATRIX_TYPES: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2K,
    DType::Q3K,
    DType::Q4K,
    DType::Q5K,
    DType::Q6K,
    DType::IQ4NL,
    DType::IQ4XS,
    DType::IQ3S,
    DType::MXFP4,
];

/// One weight, ready to use.
#[derive(Debug)]
pub(crate) enum Stored {
    Vector(Vec<f32>),
    Matrix(Tensor),
}

impl Stored {
    pub(crate) fn load(used: &WeightUse, weights: &Weights) -> Result<Self, PlanError> {
        if used.role == WeightRole::Vector {
            return Ok(Self::Vector(values(&used.source, weights)?));
        }
        let tensor = match &used.source {
            Source::Tensor(name) => weights.require(name)?.clone(),
            computed => Tensor::from_f32(
                computed.to_string(),
                used.shape.to_vec(),
                &values(computed, weights)?,
            ),
        };
        if MATRIX_TYPES.contains(&tensor.dtype()) {
            return Ok(Self::Matrix(tensor));
        }
        let known: Vec<_> = MATRIX_TYPES.iter().map(|t| t.name()).collect();
        Err(PlanError::UnsupportedType {
            name: tensor.name().to_owned(),
            dtype: tensor.dtype().name().to_owned(),
            device: crate::DEVICE_NAME.to_owned(),
            known: known.join(", "),
        })
    }

    /// Bytes the weight will take.
    pub(crate) fn bytes(used: &WeightUse, weights: &Weights) -> Result<u64, PlanError> {
        Ok(match &used.source {
            Source::Tensor(name) if used.role != WeightRole::Vector => {
                weights.require(name)?.bytes().len() as u64
            }
            _ => (used.shape[0] * used.shape[1] * size_of::<f32>()) as u64,
        })
    }

    pub(crate) fn vector(&self) -> &[f32] {
        match self {
            Self::Vector(v) => v,
            Self::Matrix(t) => unreachable!("{} was lowered as a matrix", t.name()),
        }
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        match self {
            Self::Matrix(tensor) => tensor,
            Self::Vector(_) => unreachable!("a vector was lowered as such"),
        }
    }

    pub(crate) fn matrix(&self) -> Matrix<'_> {
        let tensor = self.tensor();
        Matrix {
            dtype: tensor.dtype(),
            rows: tensor.rows(),
            cols: tensor.cols(),
            bytes: tensor.bytes(),
        }
    }
}
