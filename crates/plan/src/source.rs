//! Evaluates weight sources.

use crate::PlanError;
use model::{Source, WeightIndex};
use weights::{Weights, WeightsError};

/// Checks that a source exists with the shape the model needs; a vector's shape is `[1, width]`.
pub fn check(source: &Source, shape: [usize; 2], index: &WeightIndex) -> Result<(), PlanError> {
    match source {
        Source::Tensor(name) => {
            let found = index.shape(name).ok_or_else(|| PlanError::MissingTensor { name: name.clone() })?;
            let fits = match found {
                [width] => shape == [1, *width],
                other => other == shape,
            };
            if fits {
                Ok(())
            } else {
                Err(PlanError::BadShape { name: name.clone(), expected: shape.to_vec(), found: found.to_vec() })
            }
        }
        Source::PlusOne(inner) => check(inner, shape, index),
    }
}

/// The source's values as f32, row by row.
pub fn values(source: &Source, weights: &Weights) -> Result<Vec<f32>, WeightsError> {
    match source {
        Source::Tensor(name) => weights.require(name)?.to_f32(),
        Source::PlusOne(inner) => Ok(values(inner, weights)?.into_iter().map(|w| 1.0 + w).collect()),
    }
}
