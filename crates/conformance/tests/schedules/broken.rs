//! A device that is told the wrong blocks now and then.

use plan::{Batch, Exec, ExecError, Limits, Outputs, ProgramId, SequenceArgs, StateCopy, Table, Tap};

/// Exchanges the first and the last block of a sequence's tables in every `every`-th run.
pub(crate) struct Swapped<E> {
    exec: E,
    every: usize,
    runs: usize,
}

impl<E> Swapped<E> {
    pub(crate) fn new(exec: E, every: usize) -> Self {
        Self { exec, every, runs: 0 }
    }
}

impl<E: Exec> Exec for Swapped<E> {
    fn limits(&self) -> &Limits {
        self.exec.limits()
    }

    fn windows(&self) -> &[Option<usize>] {
        self.exec.windows()
    }

    fn has_fixed_states(&self) -> bool {
        self.exec.has_fixed_states()
    }

    fn vocab(&self, program: ProgramId) -> usize {
        self.exec.vocab(program)
    }

    fn taps(&self, program: ProgramId) -> &[Tap] {
        self.exec.taps(program)
    }

    fn run(&mut self, program: ProgramId, batch: &Batch<'_>, outputs: &mut Outputs<'_>) -> Result<(), ExecError> {
        self.runs += 1;
        let mut tables: Vec<Vec<Table>> = batch.sequences.iter().map(|args| args.tables.to_vec()).collect();
        if self.runs.is_multiple_of(self.every) {
            for table in tables.iter_mut().flatten().filter(|table| table.window.is_none()) {
                let last = table.blocks.len().saturating_sub(1);
                table.blocks.swap(0, last);
            }
        }
        let args = tables.iter().zip(batch.sequences);
        let args: Vec<_> = args.map(|(tables, args)| SequenceArgs { tables, slot: args.slot }).collect();
        self.exec.run(program, &Batch { sequences: &args, ..*batch }, outputs)
    }

    fn copy_states(&mut self, copies: &[StateCopy]) -> Result<(), ExecError> {
        self.exec.copy_states(copies)
    }
}
