//! Feeds sequences of plain ids to a compiled program.

use foundation::TokenId;
use plan::{Device, Exec, ExecError, Feed, Limits, Program, ProgramId, SequenceId, Sequences, Want, lower_for};
use testkit::Model;
use weights::Weights;

/// The only program of a [`Driver`].
pub const TRUNK: ProgramId = ProgramId(0);

/// One program with its sequences.
#[derive(Debug)]
pub struct Driver<E> {
    /// The sequences, for what is not said with ids.
    pub sequences: Sequences<E>,
}

impl<E: Exec> Driver<E> {
    /// Lowers a model for a device and compiles it.
    ///
    /// # Panics
    /// If the device refuses it.
    pub fn of_model<D: Device<Exec = E>>(device: &D, model: &Model, limits: Limits) -> Self {
        let program = lower_for(&device.caps(), &model.spec, &model.index).unwrap_or_else(|e| panic!("{e}"));
        Self::of_program(device, program, &model.weights, limits)
    }

    /// Compiles a program.
    ///
    /// # Panics
    /// If the device refuses it.
    pub fn of_program<D: Device<Exec = E>>(device: &D, program: Program, weights: &Weights, limits: Limits) -> Self {
        let exec = device.compile(vec![program], weights, limits).unwrap_or_else(|e| panic!("{e}"));
        Self { sequences: Sequences::new(exec) }
    }

    /// Width of a row of logits.
    pub fn vocab(&self) -> usize {
        self.sequences.exec().vocab(TRUNK)
    }

    /// Appends ids to one sequence in one run and returns the wanted rows' logits.
    ///
    /// # Panics
    /// If the run fails.
    pub fn feed(&mut self, sequence: SequenceId, ids: &[u32], want: Want) -> Vec<f32> {
        self.feed_together(&[(sequence, ids, want)]).unwrap_or_else(|e| panic!("{e}")).swap_remove(0)
    }

    /// Appends ids to several sequences in one run; the logits of each.
    pub fn feed_together(&mut self, feeds: &[(SequenceId, &[u32], Want)]) -> Result<Vec<Vec<f32>>, ExecError> {
        let ids: Vec<Vec<TokenId>> =
            feeds.iter().map(|(_, ids, _)| ids.iter().copied().map(TokenId).collect()).collect();
        let given: Vec<_> = feeds
            .iter()
            .zip(&ids)
            .map(|((sequence, _, want), tokens)| Feed { sequence: *sequence, tokens, want: *want })
            .collect();
        let sizes: Vec<_> = given.iter().map(|f| f.want.rows(f.tokens.len()) * self.vocab()).collect();
        let mut logits = vec![0.0; sizes.iter().sum()];
        self.sequences.run(TRUNK, &given, &mut logits)?;
        let mut rest = logits.as_slice();
        let cut = |size| {
            let (one, later) = rest.split_at(size);
            rest = later;
            one.to_vec()
        };
        Ok(sizes.into_iter().map(cut).collect())
    }

    /// Appends ids to a sequence in chunks and returns every row's logits.
    ///
    /// # Panics
    /// If a run fails.
    pub fn feed_in(&mut self, sequence: SequenceId, ids: &[u32], chunk: usize) -> Vec<f32> {
        ids.chunks(chunk).flat_map(|ids| self.feed(sequence, ids, Want::All)).collect()
    }

    /// Every row's logits of a fresh sequence, fed in chunks.
    ///
    /// # Panics
    /// If a run fails.
    pub fn logits(&mut self, ids: &[u32], chunk: usize) -> Vec<f32> {
        let sequence = self.sequences.open();
        let logits = self.feed_in(sequence, ids, chunk);
        self.sequences.close(sequence).unwrap_or_else(|e| panic!("{e}"));
        logits
    }
}
