//! A real model behind the producer contract: one sequence at a time over any device's compiled program.
//!
//! Pasts that were left for another prompt are kept as long as there is room, so that several conversations may take turns.

use crate::capture::{Captured, Recorder};
use crate::prefix_cache::{Begun, PrefixCache, PrefixStatus};
use crate::producer::{LogitProducer, Want, check_feed, common};
use crate::{ProducerError, RuntimeError};
use foundation::{LogitValue, TokenId};
use plan::{Exec, ExpertStats, Feed, Opened, Outputs, ProgramId, Saved, SequenceId, Sequences};

/// The compiled trunk of a model, one sequence of it, and pasts it may come back to.
#[derive(Debug)]
pub struct RealForwardRunner<E> {
    sequences: Sequences<E>,
    sequence: SequenceId,
    fed: Vec<TokenId>,
    context: usize,
    vocab: usize,
    /// Empty beside a recorder: what is captured is of one past.
    prefixes: PrefixCache,
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
        let prefixes = PrefixCache::default();
        Self { sequences, sequence, fed: Vec::new(), context, vocab, prefixes, recorder: None }
    }

    /// Keeps pasts for later prompts, those that an earlier process saved among them; and says which were not taken.
    pub fn keeping(mut self, prefixes: PrefixCache) -> (Self, Option<String>) {
        self.prefixes = prefixes;
        let note = self.prefixes.restore(&mut self.sequences);
        (self, note)
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

    /// Where the present sequence can go back to.
    fn restorable(&self, to: usize) -> usize {
        match self.sequences.restorable(self.sequence, to) {
            Ok(position) => position,
            Err(error) => unreachable!("the runner's own sequence is open: {error}"),
        }
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
        match &mut self.recorder {
            Some(recorder) => {
                self.sequences.run_tapped(TRUNK, &[feed], Outputs { logits, taps: recorder.buffers() })?;
                recorder.take(tokens.len());
            }
            None => self.prefixes.run(&mut self.sequences, TRUNK, &[feed], logits)?,
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

    fn resume(&mut self, prompt: &[TokenId]) -> usize {
        self.begin(prompt, &[]).reused
    }

    fn begin(&mut self, prompt: &[TokenId], marks: &[usize]) -> Begun {
        // The present past stays: by itself if the prompt goes on from it, else among those kept.
        self.keep();
        let known = common(&self.fed, prompt);
        let own = self.restorable(known);
        let (kept, elsewhere) = self.prefixes.look(&self.sequences, prompt);
        let opened = if kept > own {
            let opened = self.prefixes.fork(&mut self.sequences, prompt);
            let before = std::mem::replace(&mut self.sequence, opened.sequence);
            if let Err(error) = self.sequences.close(before) {
                unreachable!("the runner's own sequence is open: {error}");
            }
            self.fed = prompt[..opened.reused].to_vec();
            opened
        } else {
            let reused = self.rewind(known);
            Opened { sequence: self.sequence, reused, known: known.max(elsewhere) }
        };
        self.prefixes.begun(&self.sequences, &opened, prompt, marks)
    }

    fn keep(&mut self) {
        if !self.fed.is_empty() {
            self.prefixes.keep(&mut self.sequences, self.sequence, &self.fed);
        }
    }

    fn look(&self, prompt: &[TokenId]) -> (usize, usize) {
        let known = common(&self.fed, prompt);
        let (kept, elsewhere) = self.prefixes.look(&self.sequences, prompt);
        (kept.max(self.restorable(known)), known.max(elsewhere))
    }

    fn prefix_status(&self) -> PrefixStatus {
        self.prefixes.status()
    }

    fn save_prefixes(&mut self) -> Result<Option<Saved>, RuntimeError> {
        self.keep();
        self.prefixes.save(&self.sequences)
    }

    fn forget_prefixes(&mut self) {
        self.prefixes.clear(&mut self.sequences);
    }

    fn expert_stats(&self) -> Option<ExpertStats> {
        self.sequences.exec().expert_stats()
    }
}
