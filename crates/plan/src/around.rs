//! A device whose runs go through something else: slower, counted, or wrong on purpose.

use crate::device::{Batch, Exec, Limits, Outputs, StateCopy, StatePiece};
use crate::error::{ExecError, PlanError};
use crate::experts::ExpertStats;
use crate::kv::KvPlan;
use crate::program::{ProgramId, Tap};

/// An [`Exec`] with a function around each run; all else is the device's own.
#[derive(Debug)]
pub struct Around<E, F> {
    exec: E,
    run: F,
}

impl<E, F> Around<E, F>
where
    E: Exec,
    F: FnMut(&mut E, ProgramId, &Batch<'_>, &mut Outputs<'_>) -> Result<(), ExecError>,
{
    /// Calls `run` with the device in place of the device's own [`Exec::run`].
    pub fn new(exec: E, run: F) -> Self {
        Self { exec, run }
    }
}

impl<E, F> Exec for Around<E, F>
where
    E: Exec,
    F: FnMut(&mut E, ProgramId, &Batch<'_>, &mut Outputs<'_>) -> Result<(), ExecError>,
{
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
        (self.run)(&mut self.exec, program, batch, outputs)
    }

    fn copy_states(&mut self, copies: &[StateCopy]) -> Result<(), ExecError> {
        self.exec.copy_states(copies)
    }

    fn expert_stats(&self) -> Option<ExpertStats> {
        self.exec.expert_stats()
    }

    fn save_state(&self, piece: StatePiece, bytes: &mut Vec<u8>) -> bool {
        self.exec.save_state(piece, bytes)
    }

    fn load_state(&mut self, piece: StatePiece, bytes: &[u8]) -> bool {
        self.exec.load_state(piece, bytes)
    }

    fn keep_kv(&mut self, kv: &KvPlan) -> Result<(), PlanError> {
        self.exec.keep_kv(kv)
    }
}
