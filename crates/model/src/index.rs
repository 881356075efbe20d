//! The names, types and shapes of a checkpoint's tensors, without their values.

use std::collections::BTreeMap;
use weights::{DType, Weights};

/// Canonical tensor names with their types and shapes (outermost dimension first).
#[derive(Clone, Debug, Default)]
pub struct WeightIndex {
    entries: BTreeMap<String, (DType, Vec<usize>)>,
}

impl WeightIndex {
    /// The index of a set of tensors that already carry canonical names.
    pub fn of(weights: &Weights) -> Self {
        let entries = weights.iter().map(|t| (t.name().to_owned(), (t.dtype(), t.shape().to_vec()))).collect();
        Self { entries }
    }

    /// Whether the checkpoint holds a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The tensor's shape, outermost dimension first.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.entries.get(name).map(|(_, shape)| shape.as_slice())
    }

    /// The tensor's storage type.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.entries.get(name).map(|(dtype, _)| *dtype)
    }

    /// Every name, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }
}
