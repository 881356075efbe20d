//! The rows of a batch, sequence by sequence.

use plan::{Batch, SequenceArgs};
use std::ops::Range;

/// Rows of one sequence, neighbours in the batch.
#[derive(Clone, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) rows: Range<usize>,
    pub(crate) sequence: SequenceArgs<'a>,
}

pub(crate) fn runs<'a>(batch: &Batch<'a>) -> Vec<Run<'a>> {
    let mut runs: Vec<Run<'a>> = Vec::new();
    let mut last = None;
    for (row, sequence) in batch.sequence.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if last == Some(sequence) => run.rows.end = row + 1,
            _ => runs.push(Run { rows: row..row + 1, sequence: batch.sequences[*sequence as usize] }),
        }
        last = Some(sequence);
    }
    runs
}
