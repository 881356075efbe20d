//! A set of tensors by name.

use crate::{Tensor, WeightsError};
use std::collections::BTreeMap;

/// Tensors by name, iterated in name order. Cloning copies no data.
#[derive(Debug, Clone, Default)]
pub struct Weights {
    tensors: BTreeMap<String, Tensor>,
}

impl Weights {
    /// The tensor of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// The tensor of this name; the error lists the most similar names that exist.
    pub fn require(&self, name: &str) -> Result<&Tensor, WeightsError> {
        self.get(name).ok_or_else(|| WeightsError::MissingTensor {
            name: name.into(),
            count: self.len(),
            near: self.near(name),
        })
    }

    /// All tensors in name order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Tensor> {
        self.tensors.values()
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// True if there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The stored bytes of all tensors together.
    pub fn total_bytes(&self) -> u64 {
        self.iter().map(|t| t.stored_bytes() as u64).sum()
    }

    /// Adds a tensor under its own name; returns the one it replaces.
    pub fn insert(&mut self, tensor: Tensor) -> Option<Tensor> {
        self.tensors.insert(tensor.name().into(), tensor)
    }

    fn near(&self, name: &str) -> Vec<String> {
        const SHOWN: usize = 3;
        const LONGEST: usize = 200;
        let mut scored: Vec<(usize, &String)> = self
            .tensors
            .keys()
            .filter(|key| key.len().max(name.len()) <= LONGEST)
            .map(|key| (edit_distance(key.as_bytes(), name.as_bytes()), key))
            .filter(|(distance, _)| *distance <= name.len() / 2)
            .collect();
        scored.sort();
        scored.into_iter().take(SHOWN).map(|(_, key)| key.clone()).collect()
    }
}

impl FromIterator<Tensor> for Weights {
    fn from_iter<I: IntoIterator<Item = Tensor>>(tensors: I) -> Self {
        let tensors = tensors.into_iter().map(|t| (t.name().to_owned(), t)).collect();
        Self { tensors }
    }
}

/// Levenshtein's distance: insertions, deletions and substitutions from `a` to `b`.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_name_lists_its_neighbours() {
        let names = ["blk.0.attn_q.weight", "blk.0.attn_k.weight", "output.weight"];
        let weights: Weights = names.iter().map(|n| Tensor::from_f32(*n, vec![1], &[0.0])).collect();
        let message = weights.require("blk.0.attn_v.weight").unwrap_err().to_string();
        assert!(message.contains("`blk.0.attn_v.weight`"), "{message}");
        assert!(message.contains("`blk.0.attn_k.weight`, `blk.0.attn_q.weight`"), "{message}");
        assert!(!message.contains("output"), "{message}");
        assert_eq!(weights.total_bytes(), 12);
    }
}
