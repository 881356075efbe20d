//! Collects the importance of columns: runs a model over a text and sums up what its matrices are multiplied with.

use crate::{Importance, PackError};
use cpu::{ColumnSquares, CpuDevice};
use foundation::TokenId;
use model::Source;
use plan::{Device, ExecError, Feed, KvType, KvTypes, Limits, ProgramId, Sequences, Want, WeightRole, WeightUse};
use runtime::{ModelFiles, OpenOptions};
use std::collections::BTreeMap;

/// The only program of a text model.
const TRUNK: ProgramId = ProgramId(0);

/// Rows fed at once.
const CHUNK: usize = 256;

impl Importance {
    /// Runs a model as it is stored over windows of `window` tokens, each from an empty context, and sums up the squares of what
    /// its matrices are multiplied with. `on_window` is told how many windows are done.
    ///
    /// Matrices that are stored in another order than they are used in have no importance, and are never rounded either.
    ///
    /// # Errors
    /// If the model cannot be run, or there is not one token.
    pub fn collect(
        files: &ModelFiles,
        tokens: &[TokenId],
        (window, threads): (usize, Option<usize>),
        on_window: &mut dyn FnMut(usize),
    ) -> Result<Self, PackError> {
        if tokens.is_empty() || window == 0 {
            let reason = "importance is collected over at least one token".to_owned();
            return Err(PackError::BadValue { found: format!("{} tokens", tokens.len()), reason });
        }
        let device = CpuDevice::new(threads);
        let program = files.program(&OpenOptions::default())?;
        let limits = Limits::for_context(window, CHUNK.min(window), KvTypes::both(KvType::F16));
        let mut exec = device.compile(vec![program], &files.weights, limits)?;
        exec.observe_columns(TRUNK);
        let mut sequences = Sequences::new(exec);
        for (done, window) in tokens.chunks(window).enumerate() {
            let sequence = sequences.open();
            for tokens in window.chunks(CHUNK) {
                let feed = Feed { sequence, tokens, want: Want::Nothing };
                sequences.run(TRUNK, &[feed], &mut []).map_err(failed)?;
            }
            sequences.close(sequence).map_err(failed)?;
            on_window(done + 1);
        }
        let mut sums: BTreeMap<String, ColumnSquares> = BTreeMap::new();
        for (used, found) in sequences.exec().column_squares(TRUNK) {
            add(&mut sums, &used, found);
        }
        Ok(Self::of_sums(sums))
    }
}

fn failed(error: ExecError) -> PackError {
    PackError::Run(Box::new(error))
}

/// Adds what a weight was multiplied with to the tensors whose rows it is; those of several weights (fused projections) were
/// multiplied with the same.
fn add(sums: &mut BTreeMap<String, ColumnSquares>, used: &WeightUse, found: ColumnSquares) {
    let mut put = |name: &str, found: ColumnSquares| match sums.get_mut(name) {
        Some(before) if before.sums.len() == found.sums.len() => {
            before.sums.iter_mut().zip(&found.sums).for_each(|(sum, more)| *sum += more);
            before.rows.iter_mut().zip(&found.rows).for_each(|(rows, more)| *rows += more);
        }
        Some(_) => {}
        None => {
            sums.insert(name.to_owned(), found);
        }
    };
    match (&used.source, used.role) {
        (Source::Stack(parts), WeightRole::Experts(count)) if parts.len() == count => {
            let cols = found.sums.len() / count;
            for (expert, part) in parts.iter().enumerate().filter(|(_, part)| rows_of(part)) {
                let sums = found.sums[expert * cols..][..cols].to_vec();
                let one = ColumnSquares { sums, rows: vec![found.rows[expert]] };
                part.tensors().into_iter().for_each(|name| put(name, one.clone()));
            }
        }
        (source, _) if rows_of(source) => source.tensors().into_iter().for_each(|name| put(name, found.clone())),
        _ => {}
    }
}

/// Whether a source is rows of tensors as they are stored.
fn rows_of(source: &Source) -> bool {
    match source {
        Source::Tensor(_) => true,
        Source::Rows { of, .. } => rows_of(of),
        Source::Stack(parts) => parts.iter().all(rows_of),
        _ => false,
    }
}
