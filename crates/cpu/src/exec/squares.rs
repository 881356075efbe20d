//! What matrices are multiplied with, column by column: the mean of its square says how much an error in that column counts.

use super::Compiled;
use plan::{Program, WeightId, WeightRole};
use std::collections::BTreeMap;

/// Sums over the rows that a matrix, or each of several experts', was multiplied with.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSquares {
    /// `[matrices, columns]`: the sum of the squares.
    pub sums: Vec<f64>,
    /// `[matrices]`: rows.
    pub rows: Vec<u64>,
}

impl ColumnSquares {
    fn new(program: &Program, weight: WeightId) -> Self {
        let used = program.weight(weight);
        let matrices = if let WeightRole::Experts(count) = used.role { count } else { 1 };
        Self { sums: vec![0.0; matrices * used.shape[1]], rows: vec![0; matrices] }
    }

    fn add(&mut self, matrix: usize, values: &[f32]) {
        let cols = self.sums.len() / self.rows.len();
        let sums = &mut self.sums[matrix * cols..][..cols];
        for row in values.chunks_exact(cols) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x) * f64::from(*x));
            self.rows[matrix] += 1;
        }
    }
}

/// The sums of a program's matrices.
#[derive(Debug, Default)]
pub(super) struct Squares {
    pub(super) of: BTreeMap<u32, ColumnSquares>,
}

impl Compiled {
    /// Adds rows that matrix `matrix` of a weight is multiplied with, if somebody wants to know.
    pub(super) fn observe(&self, weight: WeightId, matrix: usize, values: &[f32]) {
        let Some(squares) = &self.squares else { return };
        let mut squares = squares.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let sums = squares.of.entry(weight.0).or_insert_with(|| ColumnSquares::new(&self.program, weight));
        sums.add(matrix, values);
    }
}
