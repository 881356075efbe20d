//! A GPU as a device of `plan`.

use crate::driver::{self, Gpu as Open};
use crate::error::CudaError;
use crate::exec::CudaExec;
use crate::layout::{self, Layout};
use crate::load;
use plan::{Budget, Caps, Device, Fusion, KvType, Limits, PlanError, Program};
use std::mem::size_of;
use std::sync::Arc;
use std::time::Instant;
use weights::Weights;

/// What the driver knows of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its number, as in `cuda:N`.
    pub number: usize,
    /// What it is called.
    pub name: String,
    /// Bytes of memory it has.
    pub total: u64,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Why it cannot be used, if it cannot.
    pub unusable: Option<CudaError>,
}

/// Lists the GPUs; an error says why there can be none.
pub fn gpus() -> Result<Vec<Gpu>, CudaError> {
    (0..driver::count()?).map(look).collect()
}

/// The least compute capability that the kernels' PTX is for.
const LEAST: (i32, i32) = (8, 0);

fn look(number: usize) -> Result<Gpu, CudaError> {
    let driver::Facts { name, total, capability } = driver::facts(number)?;
    let too_old = || CudaError::TooOld { number, name: name.clone(), found: capability };
    let unusable = (capability < LEAST).then(too_old);
    Ok(Gpu { number, name, total, capability, unusable })
}

/// One open GPU.
#[derive(Clone, Debug)]
pub struct CudaDevice {
    gpu: Arc<Open>,
    facts: Gpu,
}

impl CudaDevice {
    /// Opens GPU `number` and loads the kernels.
    pub fn open(number: usize) -> Result<Self, CudaError> {
        let found = driver::count()?;
        if number >= found {
            return Err(CudaError::NoGpu { asked: number, found });
        }
        let facts = look(number)?;
        if let Some(unusable) = facts.unusable {
            return Err(unusable);
        }
        Ok(Self { gpu: Open::open(number)?, facts })
    }

    /// What the driver knows of it.
    pub fn facts(&self) -> &Gpu {
        &self.facts
    }

    /// Bytes of memory nobody uses.
    pub fn free(&self) -> Result<u64, CudaError> {
        self.gpu.free()
    }
}

/// Bytes that a copy reads to measure the memory, several times what the caches hold.
const COPIED: usize = 1 << 30;
const COPIES: usize = 10;

impl CudaDevice {
    /// Bytes a second that copies inside the GPU's memory read and write together.
    pub fn copy_bandwidth(&self) -> Result<f64, CudaError> {
        let memory = driver::Memory::new(&self.gpu, 2 * COPIED, "measuring it")?;
        let copy = || memory.copy(0, COPIED, COPIED);
        copy()?;
        self.gpu.wait()?;
        let started = Instant::now();
        for _ in 0..COPIES {
            copy()?;
        }
        self.gpu.wait()?;
        Ok((2 * COPIES * COPIED) as f64 / started.elapsed().as_secs_f64())
    }
}

/// Types keys and values can be kept in; packed ones are refused at open.
pub(crate) const CAPS: Caps = Caps {
    device: crate::DEVICE_NAME,
    fusions: &[Fusion::Linears, Fusion::LinearAdd, Fusion::GateUpAct],
    kv: &[KvType::F32, KvType::F16],
    places_experts: false,
};

/// Rows, times experts a row, that one launch can take.
const MOST_ROWS: usize = 65_535;

/// Refuses what no launch could do.
pub(crate) fn check(programs: &[Program], limits: &Limits) -> Result<(), PlanError> {
    limits.check(&CAPS, programs)?;
    let routes = programs.iter().flat_map(|p| p.steps.iter().map(move |step| (p, step)));
    let top_k = routes.filter_map(|(p, step)| match step {
        plan::Step::Experts { route, .. } => Some(p.slot(*route).width / 2),
        _ => None,
    });
    let most = MOST_ROWS / top_k.max().unwrap_or(1).max(1);
    if limits.rows > most || limits.wanted > most {
        let what = format!("{} rows at once are more than the {most} it can run; feed smaller chunks", limits.rows);
        return Err(PlanError::Device { device: crate::DEVICE_NAME.to_owned(), what });
    }
    Ok(())
}

/// The bytes of all activations, scratch, frequencies and numbers.
pub(crate) fn activation_bytes(programs: &[Program], limits: &Limits) -> usize {
    let mut all = Layout::default();
    for program in programs {
        layout::activations(program, limits, &mut all);
    }
    all.take(layout::rowwise(programs, limits).end * size_of::<i32>());
    all.bytes()
}

/// The bytes of all weights, and of what is computed from them once.
pub(crate) fn weight_bytes(programs: &[Program], weights: &Weights) -> Result<usize, PlanError> {
    let mut all = Layout::default();
    for program in programs {
        load::layout(program, weights, &mut all)?;
        crate::exec::constants(program, &mut all);
    }
    Ok(all.bytes())
}

impl Device for CudaDevice {
    type Exec = CudaExec;

    fn caps(&self) -> Caps {
        CAPS
    }

    fn available(&self) -> Option<u64> {
        self.free().ok()
    }

    fn memory(&self, programs: &[Program], weights: &Weights, limits: &Limits) -> Result<Budget, PlanError> {
        check(programs, limits)?;
        let (weights, slots) = (weight_bytes(programs, weights)?, activation_bytes(programs, limits));
        Ok(Budget::new(programs, limits, weights as u64, slots as u64, |cache| cache.bytes(limits.kv)))
    }

    fn compile(&self, programs: Vec<Program>, weights: &Weights, limits: Limits) -> Result<CudaExec, PlanError> {
        check(&programs, &limits)?;
        CudaExec::new(programs, weights, limits, Arc::clone(&self.gpu))
    }
}
