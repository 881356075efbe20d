//! Weights as the device keeps them: matrices in their stored blocks over the mapped file, vectors as f32.

use crate::kernels::matmul::Matrix;
use plan::{
    ExpertMatrix, PlanError, Residency, WeightRole, WeightUse, bank, check_matrix_type, rounded, stored, values,
};
use std::mem::size_of;
use weights::{Tensor, Weights};

/// One weight, ready to use.
#[derive(Debug)]
pub(crate) enum Stored {
    Vector(Vec<f32>),
    Matrix(Tensor),
    /// One matrix an expert.
    Experts(Vec<Tensor>),
    /// Matrices that [`streaming::Streams`] has.
    Streamed,
}

impl Stored {
    pub(crate) fn load(used: &WeightUse, weights: &Weights) -> Result<Self, PlanError> {
        match used.role {
            WeightRole::Vector => Ok(Self::Vector(values(&used.source, weights)?)),
            WeightRole::Matrix | WeightRole::Table => {
                Ok(Self::Matrix(readable(rounded(stored(&used.source, weights)?, used.to)?)?))
            }
            WeightRole::Experts(count) if matches!(used.residency, Residency::Streamed { .. }) => {
                for expert in 0..count {
                    let dtype = ExpertMatrix::new(used, weights, expert)?.dtype()?;
                    check_matrix_type(crate::DEVICE_NAME, &used.source.to_string(), dtype)?;
                }
                Ok(Self::Streamed)
            }
            WeightRole::Experts(count) if used.residency == Residency::Mapped => {
                let mapped = |expert| {
                    let tensor = ExpertMatrix::new(used, weights, expert)?.as_stored();
                    tensor.ok_or_else(|| PlanError::ExpertsNotMapped { name: used.source.to_string() })
                };
                let experts = (0..count).map(|expert| readable(mapped(expert)?));
                Ok(Self::Experts(experts.collect::<Result<_, _>>()?))
            }
            WeightRole::Experts(count) => {
                let experts = bank(&used.source, weights, count)?.into_iter().map(|e| readable(rounded(e, used.to)?));
                Ok(Self::Experts(experts.collect::<Result<_, _>>()?))
            }
        }
    }

    /// Bytes the weight will take by itself: none where experts stay in files.
    pub(crate) fn bytes(used: &WeightUse, weights: &Weights) -> Result<u64, PlanError> {
        if used.residency != Residency::Ram {
            return Ok(0);
        }
        let values = used.shape[0] * used.shape[1];
        if used.role == WeightRole::Vector {
            return Ok((values * size_of::<f32>()) as u64);
        }
        let dtype = used.loaded_type(&|name| weights.get(name).map(Tensor::dtype))?;
        Ok(dtype.bytes_for(values).unwrap_or(values * size_of::<f32>()) as u64)
    }

    pub(crate) fn vector(&self) -> &[f32] {
        match self {
            Self::Vector(v) => v,
            other => unreachable!("{other:?} was not lowered as a vector"),
        }
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        match self {
            Self::Matrix(tensor) => tensor,
            other => unreachable!("{other:?} was not lowered as a matrix"),
        }
    }

    pub(crate) fn expert(&self, expert: usize) -> &Tensor {
        match self {
            Self::Experts(experts) => &experts[expert],
            other => unreachable!("{other:?} was not lowered as experts"),
        }
    }

    pub(crate) fn matrix(&self) -> Matrix<'_> {
        matrix_of(self.tensor())
    }
}

/// A tensor as the kernels take it.
pub(crate) fn matrix_of(tensor: &Tensor) -> Matrix<'_> {
    Matrix { dtype: tensor.dtype(), rows: tensor.rows(), cols: tensor.cols(), bytes: tensor.bytes() }
}

/// Fails for types without a kernel.
fn readable(tensor: Tensor) -> Result<Tensor, PlanError> {
    check_matrix_type(crate::DEVICE_NAME, tensor.name(), tensor.dtype())?;
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use super::Stored;
    use plan::{lower, quantise};
    use testkit::{Model, families};

    /// What is announced before loading is what loading takes, for every weight of every family.
    #[test]
    fn bytes_are_known_before_loading() {
        for golden in families() {
            let model = Model::open(&golden.path());
            let plain = lower(&model.spec, &model.index).unwrap_or_else(|e| panic!("{e}"));
            let mut rounded = plain.clone();
            let rounds = quantise(&mut rounded, &model.index, weights::DType::Q8_0).is_ok();
            assert!(rounds || golden.file.contains("gguf"), "{}/{}", golden.model, golden.file);
            for used in plain.weights.iter().chain(&rounded.weights) {
                let announced = Stored::bytes(used, &model.weights).unwrap_or_else(|e| panic!("{e}"));
                let taken = match Stored::load(used, &model.weights).unwrap_or_else(|e| panic!("{e}")) {
                    Stored::Vector(values) => 4 * values.len(),
                    Stored::Matrix(tensor) => tensor.bytes().len(),
                    Stored::Experts(tensors) => tensors.iter().map(|t| t.bytes().len()).sum(),
                    Stored::Streamed => unreachable!("nothing was to be streamed"),
                };
                assert_eq!(announced, taken as u64, "{}/{}: {}", golden.model, golden.file, used.source);
            }
        }
    }

    /// Experts that lie one after the other in the file are read where they are.
    #[test]
    fn neighbouring_experts_are_not_copied() {
        for (name, file) in
            [("qwen3_moe", "model.gguf"), ("qwen3_moe", "model.safetensors"), ("gemma4_moe", "model.gguf")]
        {
            let golden = families().into_iter().find(|g| (g.model, g.file) == (name, file)).expect("a golden model");
            let model = Model::open(&golden.path());
            let program = lower(&model.spec, &model.index).unwrap_or_else(|e| panic!("{e}"));
            let mapped: Vec<_> = model.weights.iter().map(|t| t.bytes().as_ptr_range()).collect();
            for used in &program.weights {
                if let Stored::Experts(experts) = Stored::load(used, &model.weights).unwrap_or_else(|e| panic!("{e}")) {
                    let inside = |at: *const u8| mapped.iter().any(|range| range.contains(&at));
                    assert!(experts.iter().all(|t| inside(t.bytes().as_ptr())), "{name}/{file}: {}", used.source);
                }
            }
        }
    }
}
