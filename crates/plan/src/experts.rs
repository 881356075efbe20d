//! Experts one by one: where a bank of them is kept, and how one's matrix comes from the checkpoint's tensors.

use crate::program::{Program, WeightRole};
use crate::source::{rounded, stored, stored_type};
use crate::step::{Step, WeightId};
use crate::{PlanError, WeightUse};
use model::Source;
use std::time::Duration;
use weights::{DType, Tensor, Weights, WeightsError};

/// Where a bank's experts are while the model is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residency {
    /// In memory, in whatever form the device likes.
    #[default]
    Ram,
    /// In the mapped file; the system's page cache holds what it can of it.
    Mapped,
    /// On disk: read when they are needed, and kept in places of their own as far as there are some.
    Streamed {
        /// Experts of the layer that stay in memory.
        slots: usize,
    },
}

/// The matrices of one layer's experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankUse {
    /// The number in the tensors' names, else how many banks come before.
    pub layer: usize,
    /// How many experts there are.
    pub experts: usize,
    /// How many of them a row uses.
    pub top_k: usize,
    /// Gate, up and down.
    pub weights: [WeightId; 3],
}

impl Program {
    /// The banks of experts, in order of use.
    pub fn banks(&self) -> Vec<BankUse> {
        let mut banks: Vec<BankUse> = Vec::new();
        for step in &self.steps {
            let Step::Experts { bank, route, .. } = step else { continue };
            let WeightRole::Experts(experts) = self.weight(bank.gate).role else { continue };
            let named = |id| self.weight(id).source.tensors().first().and_then(|name| number_in(name));
            banks.push(BankUse {
                layer: named(bank.gate).unwrap_or(banks.len()),
                experts,
                top_k: self.slot(*route).width / 2,
                weights: [bank.gate, bank.up, bank.down],
            });
        }
        banks
    }

    /// Says where a bank's experts are to be kept.
    pub fn keep_experts(&mut self, bank: &BankUse, residency: Residency) {
        for id in bank.weights {
            self.weights[id.0 as usize].residency = residency;
        }
    }
}

fn number_in(name: &str) -> Option<usize> {
    name.split('.').find_map(|part| part.parse().ok())
}

/// How streamed experts have served so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertStats {
    /// Rows that have passed through the model.
    pub rows: u64,
    /// Experts that a layer needed in a run, each once a run.
    pub requests: u64,
    /// Those of them that were in memory.
    pub hits: u64,
    /// Bytes of experts read.
    pub bytes_read: u64,
    /// Time that the computation waited for reads.
    pub exposed: Duration,
    /// The most bytes that experts took at once.
    pub peak_bytes: u64,
}

impl ExpertStats {
    /// Those of two programs together.
    pub fn and(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            requests: self.requests + other.requests,
            hits: self.hits + other.hits,
            bytes_read: self.bytes_read + other.bytes_read,
            exposed: self.exposed + other.exposed,
            peak_bytes: self.peak_bytes + other.peak_bytes,
        }
    }

    /// What came after an earlier look; the peak is that of all time.
    pub fn since(self, earlier: &Self) -> Self {
        Self {
            rows: self.rows - earlier.rows,
            requests: self.requests - earlier.requests,
            hits: self.hits - earlier.hits,
            bytes_read: self.bytes_read - earlier.bytes_read,
            exposed: self.exposed - earlier.exposed,
            peak_bytes: self.peak_bytes,
        }
    }
}

/// The matrix of one expert: its part of the tensors of a bank, and what is made of it.
#[derive(Clone, Debug)]
pub struct ExpertMatrix {
    source: Source,
    tensors: Weights,
    to: Option<DType>,
    rows: usize,
    cols: usize,
}

impl ExpertMatrix {
    /// Expert `expert` of a bank. Fails where one expert's values are not a part of each tensor by itself.
    pub fn new(used: &WeightUse, weights: &Weights, expert: usize) -> Result<Self, PlanError> {
        let WeightRole::Experts(count) = used.role else {
            unreachable!("{} was not lowered as experts", used.source);
        };
        let apart = || PlanError::ExpertsTogether { name: used.source.to_string() };
        let (source, tensors) = match &used.source {
            Source::Stack(parts) if parts.len() == count => {
                let source = parts[expert].clone();
                let tensors = source.tensors().into_iter().map(|name| weights.require(name).cloned());
                let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
                (source, tensors)
            }
            whole => {
                let source = alone(whole, count).ok_or_else(apart)?;
                let mut tensors = Vec::new();
                for name in whole.tensors() {
                    let all = weights.require(name)?;
                    let rows = all.rows() / count;
                    if rows * count != all.rows() {
                        return Err(apart());
                    }
                    tensors.push(all.row_range(expert * rows..(expert + 1) * rows)?);
                }
                (source, tensors)
            }
        };
        Ok(Self {
            source,
            tensors: tensors.into_iter().collect(),
            to: used.to,
            rows: used.shape[0] / count,
            cols: used.shape[1],
        })
    }

    /// The tensors it is made of.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter()
    }

    /// Outputs of the matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of the matrix.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The type of the matrix.
    pub fn dtype(&self) -> Result<DType, PlanError> {
        match self.to {
            Some(to) => Ok(to),
            None => stored_type(&self.source, &|name| self.tensors.get(name).map(Tensor::dtype)),
        }
    }

    /// The matrix where it is rows of a file as they are: nothing needs to be made of them.
    pub fn as_stored(&self) -> Option<Tensor> {
        let plain = self.to.is_none() && is_rows(&self.source, &self.tensors);
        plain.then(|| stored(&self.source, &self.tensors).ok()).flatten().filter(|t| t.file_range().is_some())
    }

    /// The matrix made of the tensors' bytes: `tensors` are those of [`ExpertMatrix::tensors`], read anew.
    pub fn made_of(&self, tensors: Weights) -> Result<Tensor, WeightsError> {
        rounded(stored(&self.source, &tensors)?, self.to)
    }

    /// The matrix made of the mapped tensors.
    pub fn load(&self) -> Result<Tensor, WeightsError> {
        self.made_of(self.tensors.clone())
    }
}

/// The expression of one of `count` experts over its own parts of the tensors, if each expert has its own.
fn alone(source: &Source, count: usize) -> Option<Source> {
    let within = |of: &Source| alone(of, count).map(Box::new);
    Some(match source {
        Source::Tensor(_) | Source::Mxfp4 { .. } => source.clone(),
        Source::PlusOne(of) => Source::PlusOne(within(of)?),
        Source::NegExp(of) => Source::NegExp(within(of)?),
        Source::Column(of) => Source::Column(within(of)?),
        Source::Rows { of, first, len, every } => {
            Source::Rows { of: within(of)?, first: *first, len: *len, every: *every }
        }
        Source::Transpose { of, count: matrices } if matrices.is_multiple_of(count) => {
            Source::Transpose { of: within(of)?, count: matrices / count }
        }
        Source::Transpose { .. } | Source::Stack(_) => return None,
    })
}

/// Whether a source is neighbouring rows of one tensor.
fn is_rows(source: &Source, tensors: &Weights) -> bool {
    match source {
        Source::Tensor(_) => true,
        Source::Rows { of, every, .. } => {
            matches!(&**of, Source::Tensor(name) if tensors.get(name).is_some_and(|t| t.rows() == *every))
        }
        _ => false,
    }
}
