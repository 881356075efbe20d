//! A real model behind the producer contract: one sequence over any device's compiled program.

use crate::ProducerError;
use crate::capture::{Captured, Recorder};
use crate::producer::{LogitProducer, Want, check_feed};
use foundation::{LogitValue, TokenId};
use plan::{Exec, Feed, Outputs, ProgramId, SequenceId, Sequences};

/// The compiled trunk of a model and one sequence of it.
#[derive(Debug)]
pub struct RealForwardRunner<E> {
    sequences: Sequences<E>,
    sequence: SequenceId,
    fed: Vec<TokenId>,
    context: usize,
    vocab: usize,
    recorder: Option<Recorder>,
}

/// The only program of a text model.
const TRUNK: ProgramId = ProgramId(0);

impl<E: Exec> RealForwardRunner<E> {
    /// Runs program 0 of `exec` for sequences of up to `context` tokens.
    pub fn new(exec: E, context: usize) -> Self {
        let vocab = exec.vocab(TRUNK);
        let mut sequences = Sequences::new(exec);
        let sequence = sequences.open();
        Self { sequences, sequence, fed: Vec::new(), context, vocab, recorder: None }
    }

    /// Keeps what the program's taps show.
    pub(crate) fn recorded_by(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// The device's side.
    pub fn exec(&self) -> &E {
        self.sequences.exec()
    }

    /// All sequences of the device, of which this drives one.
    pub(crate) fn sequences(&mut self) -> &mut Sequences<E> {
        &mut self.sequences
    }

    /// The sequence driven.
    pub(crate) fn sequence(&self) -> SequenceId {
        self.sequence
    }

    /// Goes on with another sequence of the same device, fed with `fed`; returns the one driven so far.
    pub(crate) fn exchange(&mut self, sequence: SequenceId, fed: Vec<TokenId>) -> (SequenceId, Vec<TokenId>) {
        (std::mem::replace(&mut self.sequence, sequence), std::mem::replace(&mut self.fed, fed))
    }
}

impl<E: Exec> LogitProducer for RealForwardRunner<E> {
    fn vocab(&self) -> usize {
        self.vocab
    }

    fn position(&self) -> usize {
        self.fed.len()
    }

    fn context(&self) -> usize {
        self.context
    }

    fn fed(&self) -> &[TokenId] {
        &self.fed
    }

    fn produce(&mut self, tokens: &[TokenId], want: Want, logits: &mut [LogitValue]) -> Result<(), ProducerError> {
        check_feed(self, tokens, want, logits)?;
        let feed = Feed { sequence: self.sequence, tokens, want };
        let taps = self.recorder.as_mut().map(Recorder::buffers).unwrap_or_default();
        self.sequences.run_tapped(TRUNK, &[feed], Outputs { logits, taps })?;
        if let Some(recorder) = &mut self.recorder {
            recorder.take(tokens.len());
        }
        self.fed.extend_from_slice(tokens);
        Ok(())
    }

    fn captured(&self) -> &[Captured] {
        self.recorder.as_ref().map(Recorder::captured).unwrap_or_default()
    }

    fn rewind(&mut self, to: usize) -> usize {
        match self.sequences.rewind(self.sequence, to) {
            Ok(position) => {
                self.fed.truncate(position);
                if let Some(recorder) = &mut self.recorder {
                    recorder.rewind(position);
                }
                position
            }
            Err(error) => unreachable!("the runner's own sequence is open: {error}"),
        }
    }
}
