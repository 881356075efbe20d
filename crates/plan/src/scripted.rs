//! A device without weights: prepared rows, a virtual clock, injected faults.
//!
//! Loops, schedulers, streaming and stops are tested on it. The n-th wanted row of a sequence yields the
//! script's n-th row; feeding a position again after a rewind forgets the rows answered from there on.

use crate::ExecError;
use crate::blocks::BlockId;
use crate::device::{Batch, Exec, Limits, Outputs, StateCopy};
use crate::kv::{KvType, KvTypes};
use crate::program::{ProgramId, Tap};
use foundation::TokenId;
use std::collections::BTreeMap;
use std::time::Duration;

/// A run that fails instead of answering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The run, counted from 0.
    pub run: usize,
    /// Text of the error.
    pub what: String,
}

/// What a [`ScriptedExec`] answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// Width of a row of logits.
    pub vocab: usize,
    /// Answers in order, each `vocab` wide.
    pub rows: Vec<Vec<f32>>,
    /// Runs that fail.
    pub faults: Vec<Fault>,
    /// Virtual time a row without logits takes.
    pub prefill_cost: Duration,
    /// Virtual time a row with logits takes.
    pub decode_cost: Duration,
}

impl Script {
    /// A script whose n-th answer favours `ids[n]`: 10 there, 0 elsewhere.
    pub fn of_ids(vocab: usize, ids: &[TokenId]) -> Self {
        let row = |id: &TokenId| (0..vocab).map(|i| if i == id.index() { 10.0 } else { 0.0 }).collect();
        Self {
            vocab,
            rows: ids.iter().map(row).collect(),
            faults: Vec::new(),
            prefill_cost: Duration::ZERO,
            decode_cost: Duration::ZERO,
        }
    }
}

/// Answers by a [`Script`].
#[derive(Debug)]
pub struct ScriptedExec {
    script: Script,
    limits: Limits,
    clock: Duration,
    runs: usize,
    rows: usize,
    /// Positions whose rows were wanted, by the sequence's first block, with the index of the answer.
    answered: BTreeMap<BlockId, BTreeMap<u32, usize>>,
}

impl ScriptedExec {
    /// A device with room for `blocks` blocks of (imaginary) cache.
    pub fn new(script: Script, blocks: usize) -> Self {
        let rows = 1 << 20;
        let limits =
            Limits { rows, wanted: rows, blocks, sequences: 1, kv: KvTypes::both(KvType::F32), state_slots: 0 };
        Self { script, limits, clock: Duration::ZERO, runs: 0, rows: 0, answered: BTreeMap::new() }
    }

    /// Behaves like a recurrent model with `slots` copies of its state: it rewinds only to positions kept.
    pub fn with_state_slots(mut self, slots: usize) -> Self {
        self.limits.state_slots = slots;
        self
    }

    /// Virtual time spent so far.
    pub fn clock(&self) -> Duration {
        self.clock
    }

    /// Rows computed so far.
    pub fn rows_run(&self) -> usize {
        self.rows
    }
}

impl Exec for ScriptedExec {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn has_fixed_states(&self) -> bool {
        self.limits.state_slots > 0
    }

    fn vocab(&self, _: ProgramId) -> usize {
        self.script.vocab
    }

    fn taps(&self, _: ProgramId) -> &[Tap] {
        &[]
    }

    fn run(&mut self, _: ProgramId, batch: &Batch<'_>, outputs: &mut Outputs<'_>) -> Result<(), ExecError> {
        batch.check(&self.limits, self.script.vocab, outputs.logits.len())?;
        let run = self.runs;
        self.runs += 1;
        if let Some(fault) = self.script.faults.iter().find(|f| f.run == run) {
            return Err(ExecError::Injected { run, what: fault.what.clone() });
        }
        let mut out = outputs.logits.chunks_exact_mut(self.script.vocab);
        let mut wanted = batch.wanted.iter().peekable();
        for (row, (&position, &sequence)) in batch.positions.iter().zip(batch.sequence).enumerate() {
            let answered = self.answered.entry(batch.sequences[sequence as usize].blocks(None)[0]).or_default();
            answered.split_off(&position);
            if wanted.next_if(|w| **w as usize == row).is_none() {
                self.clock += self.script.prefill_cost;
                continue;
            }
            let index = answered.len();
            let prepared = self.script.rows.len();
            let answer = self.script.rows.get(index).ok_or(ExecError::ScriptExhausted { row: index, prepared })?;
            if let Some(out) = out.next() {
                out.copy_from_slice(answer);
            }
            answered.insert(position, index);
            self.clock += self.script.decode_cost;
        }
        self.rows += batch.tokens.len();
        Ok(())
    }

    fn copy_states(&mut self, copies: &[StateCopy]) -> Result<(), ExecError> {
        for copy in copies {
            if let StateCopy::Block { from, to, .. } = copy
                && let Some(answered) = self.answered.get(from).cloned()
            {
                self.answered.insert(*to, answered);
            }
        }
        Ok(())
    }
}
