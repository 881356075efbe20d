//! The CPU as a device of `plan`.

use crate::exec::{CpuExec, scratch_values};
use crate::isa::Isa;
use crate::load::Stored;
use crate::pool::{Limits as ThreadLimits, default_threads};
use plan::{Budget, Caps, Device, Fusion, KvType, Limits, PlanError, Program, Residency};
use std::mem::size_of;
use std::sync::Arc;
use streaming::Streams;
use weights::Weights;
use weights::io::{Disk, OpenFiles};

/// The name used in messages.
pub(crate) const DEVICE_NAME: &str = "the CPU device";

/// A number of threads and an instruction set.
#[derive(Clone, Debug)]
pub struct CpuDevice {
    threads: usize,
    isa: Isa,
    files: Arc<dyn OpenFiles>,
}

impl CpuDevice {
    /// This machine's best instruction set on `threads` threads; `None`: as many as the machine gives us.
    pub fn new(threads: Option<usize>) -> Self {
        let threads = threads.unwrap_or_else(|| default_threads(&ThreadLimits::default()));
        Self { threads: threads.max(1), isa: Isa::detect(), files: Arc::new(Disk) }
    }

    /// The same with another instruction set.
    pub fn with_isa(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// The same, reading streamed experts from files opened by `files`.
    pub fn with_files(self, files: Arc<dyn OpenFiles>) -> Self {
        Self { files, ..self }
    }

    /// How it opens the files of streamed experts.
    pub(crate) fn files(&self) -> &dyn OpenFiles {
        &*self.files
    }

    /// How many threads it runs on.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The instruction set it uses.
    pub fn isa(&self) -> Isa {
        self.isa
    }
}

/// Whether a program has experts that are streamed.
pub(crate) fn streams(program: &Program) -> bool {
    program.weights.iter().any(|w| matches!(w.residency, Residency::Streamed { .. }))
}

impl Device for CpuDevice {
    type Exec = CpuExec;

    fn caps(&self) -> Caps {
        Caps {
            device: DEVICE_NAME,
            fusions: &[Fusion::Linears, Fusion::LinearAdd, Fusion::GateUpAct],
            kv: &KvType::ALL,
            places_experts: true,
        }
    }

    fn memory(&self, programs: &[Program], weights: &Weights, limits: &Limits) -> Result<Budget, PlanError> {
        limits.check(&self.caps(), programs)?;
        let mut bytes = 0;
        for used in programs.iter().flat_map(|p| &p.weights) {
            bytes += Stored::bytes(used, weights)?;
        }
        for program in programs.iter().filter(|p| streams(p)) {
            bytes += Streams::bytes(program, weights)?;
        }
        let f32s = |n: usize| (n * size_of::<f32>()) as u64;
        let slots = |p: &Program| f32s(p.slot_values(limits.rows, limits.wanted) + scratch_values(p, limits));
        Ok(Budget::new(programs, limits, bytes, programs.iter().map(slots).sum(), |cache| cache.bytes(limits.kv)))
    }

    fn compile(&self, programs: Vec<Program>, weights: &Weights, limits: Limits) -> Result<CpuExec, PlanError> {
        limits.check(&self.caps(), &programs)?;
        CpuExec::new(programs, weights, limits, self.clone())
    }
}
