//! Runs a program: what a run says of its rows goes to the device, then every step is started, then results come back.

mod attention;
mod recurrent;
mod steps;

use crate::device;
use crate::driver::{At, Gpu, Memory, Recorded};
use crate::error::CudaError;
use crate::layout::{self, Activations, Layout, Rowwise, StatePlace};
use crate::load::{self, Stored, refused};
use model::RopeScaling;
use plan::{
    Batch, Exec, ExecError, KV_BLOCK, KvPlan, Limits, Outputs, PlanError, Program, ProgramId, Rows, Slot, StateCopy,
    StateId, StatePiece, Step, Tap, WeightId, values, windows,
};
use std::collections::HashMap;
use std::mem::size_of;
use std::sync::Arc;
use weights::Weights;

/// Programs on a GPU, with their weights and states.
#[derive(Debug)]
pub struct CudaExec {
    /// Small runs by shape, once each shape has come a second time: `None` after the first. Dropped before the memory they use.
    recorded: HashMap<Shape, Option<Recorded>>,
    programs: Vec<Compiled>,
    windows: Vec<Option<usize>>,
    limits: Limits,
    memory: DeviceMemory,
    rowwise: Rowwise,
    /// What the last run said of its rows, on its way to the device.
    numbers: Vec<i32>,
    gpu: Arc<Gpu>,
}

/// Rows of the largest run that is recorded.
const RECORDED_ROWS: usize = 8;

/// Most shapes that are kept; beyond, all are forgotten.
const RECORDED_SHAPES: usize = 256;

/// All that decides what a run launches, but for what the device reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    program: usize,
    rows: usize,
    wanted: usize,
    sequences: usize,
    /// Positions that any row may see, at least: a power of two.
    reach: usize,
}

impl Shape {
    fn new(program: ProgramId, batch: &Batch<'_>) -> Self {
        let last = batch.positions.iter().max().map_or(0, |p| *p as usize);
        Self {
            program: program.0,
            rows: batch.tokens.len(),
            wanted: batch.wanted.len(),
            sequences: batch.sequences.len(),
            reach: (last + 1).next_power_of_two().max(layout::PIECE),
        }
    }
}

/// All that is taken of the GPU.
#[derive(Debug)]
struct DeviceMemory {
    /// Held for the addresses in it.
    _weights: Memory,
    states: Memory,
    activations: Memory,
    /// What runs say of their rows: the table's end grows where forks share many blocks.
    numbers: Memory,
}

/// One program.
#[derive(Debug)]
struct Compiled {
    program: Program,
    weights: Vec<Stored>,
    ropes: Vec<At>,
    /// Multipliers, sizes and offsets of the hashes, in order of steps.
    hashes: Vec<At>,
    states: Vec<StatePlace>,
    activations: Activations,
}

/// Places of what is computed from a program once: frequencies, then hashes.
pub(crate) fn constants(program: &Program, to: &mut Layout) -> (Vec<usize>, Vec<usize>) {
    let ropes = program.ropes.iter().map(|rope| to.take_values(rope.rotary_dim / 2)).collect();
    let hashes = hashes(program).map(|hash| to.take(hash.len() * size_of::<i64>())).collect();
    (ropes, hashes)
}

/// The numbers of each hash.
fn hashes(program: &Program) -> impl Iterator<Item = Vec<i64>> {
    program.steps.iter().filter_map(|step| match step {
        Step::NgramEmbed { hash, .. } => Some([&hash.multipliers[..], &hash.sizes, &hash.offsets].concat()),
        _ => None,
    })
}

impl Compiled {
    fn new(program: Program, weights: &Weights, to: &Memory, layout: &mut Layout) -> Result<Self, PlanError> {
        let places = load::layout(&program, weights, layout)?;
        let stored = program.weights.iter().zip(places).map(|(used, at)| load::load(used, weights, to, at));
        let stored = stored.collect::<Result<_, _>>()?;
        let (rope_places, hash_places) = constants(&program, layout);
        for (rope, at) in program.ropes.iter().zip(&rope_places) {
            let divisors = match &rope.scaling {
                RopeScaling::Divisors(source) => Some(values(source, weights)?),
                _ => None,
            };
            let frequencies = rope.frequencies(divisors.as_deref());
            to.write(*at, bytemuck::cast_slice(&frequencies)).map_err(refused)?;
        }
        for (hash, at) in hashes(&program).zip(&hash_places) {
            to.write(*at, bytemuck::cast_slice(&hash)).map_err(refused)?;
        }
        let address = |places: Vec<usize>| places.into_iter().map(|at| to.at(at)).collect();
        Ok(Self {
            weights: stored,
            ropes: address(rope_places),
            hashes: address(hash_places),
            states: Vec::new(),
            activations: Activations { slots: vec![], inside: [0; 2], outputs: 0, parts: 0, parts_bytes: 0, keys: 0 },
            program,
        })
    }
}

impl CudaExec {
    pub(crate) fn new(
        programs: Vec<Program>,
        weights: &Weights,
        limits: Limits,
        gpu: Arc<Gpu>,
    ) -> Result<Self, PlanError> {
        let take = |bytes: usize, what: &str| Memory::new(&gpu, bytes, what).map_err(refused);
        let weight_memory = take(device::weight_bytes(&programs, weights)?, "weights")?;
        let (windows, rowwise) = (windows(&programs), layout::rowwise(&programs, &limits));
        let activation_bytes = device::activation_bytes(&programs, &limits) - rowwise.end * size_of::<i32>();
        let mut layout = Layout::default();
        let programs = programs.into_iter().map(|p| Compiled::new(p, weights, &weight_memory, &mut layout));
        let mut programs = programs.collect::<Result<Vec<_>, _>>()?;
        let mut layout = Layout::default();
        for compiled in &mut programs {
            compiled.activations = layout::activations(&compiled.program, &limits, &mut layout);
        }
        let state_bytes = place_states(&mut programs, &limits);
        let memory = DeviceMemory {
            _weights: weight_memory,
            states: take(state_bytes, "the cache")?,
            activations: take(activation_bytes, "activations")?,
            numbers: take(rowwise.end * size_of::<i32>(), "activations")?,
        };
        gpu.wait().map_err(refused)?;
        Ok(Self { recorded: HashMap::new(), programs, windows, limits, memory, rowwise, numbers: Vec::new(), gpu })
    }

    /// Bytes taken for all blocks of cache and all copies of recurrent state.
    pub fn state_bytes(&self) -> usize {
        self.memory.states.bytes()
    }

    /// Says what there is to say of a run's rows and sequences.
    fn describe(&mut self, batch: &Batch<'_>) -> Result<(), CudaError> {
        let Rowwise { tokens, positions, sequences, first, slots, wanted, offsets, table, .. } = self.rowwise;
        let numbers = &mut self.numbers;
        numbers.clear();
        numbers.resize(table, 0);
        let mut put = |at: usize, values: &mut dyn Iterator<Item = i32>| {
            numbers[at..].iter_mut().zip(values).for_each(|(to, value)| *to = value);
        };
        put(tokens, &mut batch.tokens.iter().map(|t| t.0 as i32));
        put(positions, &mut batch.positions.iter().map(|p| *p as i32));
        put(sequences, &mut batch.sequence.iter().map(|s| *s as i32));
        put(wanted, &mut batch.wanted.iter().map(|w| *w as i32));
        let starts =
            (0..=batch.sequences.len()).map(|s| batch.sequence.partition_point(|own| (*own as usize) < s) as i32);
        put(first, &mut starts.into_iter());
        put(slots, &mut batch.sequences.iter().map(|s| s.slot.map_or(0, |slot| slot.0 as i32)));
        for (window, group) in self.windows.iter().zip(0..) {
            for (args, sequence) in batch.sequences.iter().zip(0..) {
                let blocks = args.blocks(*window);
                // Holes come first and are read by nobody.
                let holes = blocks.partition_point(|b| *b == plan::BlockId::HOLE);
                let start = numbers.len() - table;
                numbers[offsets + group * self.limits.rows + sequence] = start as i32 - holes as i32;
                numbers.extend(blocks[holes..].iter().map(|b| b.0 as i32));
            }
        }
        let bytes = bytemuck::cast_slice::<i32, u8>(numbers);
        if bytes.len() > self.memory.numbers.bytes() {
            self.recorded.clear();
            self.memory.numbers = Memory::new(&self.gpu, bytes.len().next_power_of_two(), "block tables")?;
        }
        self.memory.numbers.write(0, bytes)
    }

    fn start(&mut self, program: ProgramId, batch: &Batch<'_>) -> Result<(), CudaError> {
        self.describe(batch)?;
        self.gpu.begin()?;
        let shape = Shape::new(program, batch);
        if shape.rows > RECORDED_ROWS {
            return self.launch(shape);
        }
        match self.recorded.get(&shape) {
            Some(Some(recorded)) => recorded.start(),
            Some(None) => {
                let recorded = self.gpu.record(|| self.launch(shape))?;
                recorded.start()?;
                self.recorded.insert(shape, Some(recorded));
                Ok(())
            }
            None => {
                if self.recorded.len() >= RECORDED_SHAPES {
                    self.recorded.clear();
                }
                self.recorded.insert(shape, None);
                self.launch(shape)
            }
        }
    }

    /// Starts all steps of a run.
    fn launch(&self, shape: Shape) -> Result<(), CudaError> {
        let compiled = &self.programs[shape.program];
        let run = Run::new(self, compiled, shape);
        let mut hashes = compiled.hashes.iter();
        for step in &compiled.program.steps {
            if shape.wanted == 0 && matches!(step, Step::TakeRows { .. }) {
                break;
            }
            run.step(step, &mut hashes)?;
        }
        Ok(())
    }

    fn results(&self, program: ProgramId, outputs: &mut Outputs<'_>, batch: &Batch<'_>) -> Result<(), CudaError> {
        let compiled = &self.programs[program.0];
        let place = |slot: Slot| compiled.activations.slots[slot.0 as usize];
        for (tap, out) in compiled.program.taps.iter().zip(&mut *outputs.taps) {
            out.clear();
            out.resize(compiled.program.slot(tap.slot).width * batch.tokens.len(), 0.0);
            self.memory.activations.read(place(tap.slot), bytemuck::cast_slice_mut(out))?;
        }
        if outputs.logits.is_empty() {
            return self.gpu.wait();
        }
        self.memory.activations.read(place(compiled.program.logits), bytemuck::cast_slice_mut(outputs.logits))
    }

    /// The bytes of a piece of state, as ranges of the states' memory.
    fn ranges(&self, piece: StatePiece) -> Vec<(usize, usize)> {
        let mut ranges = Vec::new();
        for place in self.programs.iter().flat_map(|p| &p.states) {
            match (*place, piece) {
                (StatePlace::Kv { spec, k, v, k_block, v_block }, StatePiece::Block { window, block })
                    if spec.window == window =>
                {
                    let block = block.0 as usize;
                    ranges.extend([(k + block * k_block, k_block), (v + block * v_block, v_block)]);
                }
                (StatePlace::Fixed { at, bytes }, StatePiece::Slot(slot)) => {
                    ranges.push((at + slot.0 as usize * bytes, bytes));
                }
                _ => {}
            }
        }
        ranges
    }

    fn copy(&self, copy: StateCopy) -> Result<(), CudaError> {
        let (from, to) = match copy {
            StateCopy::Block { window, from, to } => {
                let piece = |block| StatePiece::Block { window, block };
                (piece(from), piece(to))
            }
            StateCopy::Slot { from, to } => (StatePiece::Slot(from), StatePiece::Slot(to)),
            StateCopy::Clear { slot } => {
                return self
                    .ranges(StatePiece::Slot(slot))
                    .into_iter()
                    .try_for_each(|(at, bytes)| self.memory.states.clear(at, bytes));
            }
        };
        let pairs = self.ranges(from).into_iter().zip(self.ranges(to));
        pairs.into_iter().try_for_each(|((from, bytes), (to, _))| self.memory.states.copy(from, to, bytes))
    }
}

/// Places the states of all programs; their bytes.
fn place_states(programs: &mut [Compiled], limits: &Limits) -> usize {
    let plain: Vec<Program> = programs.iter().map(|p| p.program.clone()).collect();
    let (places, bytes) = layout::states(&plain, limits);
    programs.iter_mut().zip(places).for_each(|(compiled, places)| compiled.states = places);
    bytes
}

/// A failure of the GPU while a program runs.
fn failed(error: CudaError) -> ExecError {
    ExecError::Device { device: crate::DEVICE_NAME.to_owned(), what: error.to_string() }
}

/// One run of one program: addresses and shapes.
struct Run<'a> {
    gpu: &'a Gpu,
    compiled: &'a Compiled,
    windows: &'a [Option<usize>],
    limits: &'a Limits,
    numbers: At,
    rowwise: Rowwise,
    activations: At,
    states: At,
    shape: Shape,
}

impl<'a> Run<'a> {
    fn new(exec: &'a CudaExec, compiled: &'a Compiled, shape: Shape) -> Self {
        Self {
            gpu: &exec.gpu,
            compiled,
            windows: &exec.windows,
            limits: &exec.limits,
            numbers: exec.memory.numbers.at(0),
            rowwise: exec.rowwise,
            activations: exec.memory.activations.at(0),
            states: exec.memory.states.at(0),
            shape,
        }
    }

    fn slot(&self, slot: Slot) -> At {
        self.scratch(self.compiled.activations.slots[slot.0 as usize])
    }

    fn scratch(&self, place: usize) -> At {
        self.activations + place as u64
    }

    fn width(&self, slot: Slot) -> usize {
        self.compiled.program.slot(slot).width
    }

    fn rows_of(&self, slot: Slot) -> usize {
        if self.compiled.program.slot(slot).rows == Rows::All { self.shape.rows } else { self.shape.wanted }
    }

    fn values_of(&self, slot: Slot) -> usize {
        self.width(slot) * self.rows_of(slot)
    }

    fn weight(&self, id: WeightId) -> &Stored {
        &self.compiled.weights[id.0 as usize]
    }

    fn vector(&self, id: Option<WeightId>) -> Option<At> {
        id.map(|id| self.weight(id).at)
    }

    fn state(&self, id: StateId) -> StatePlace {
        self.compiled.states[id.0 as usize]
    }

    /// The address of one of a run's numbers.
    fn number(&self, place: usize) -> At {
        self.numbers + (place * size_of::<i32>()) as u64
    }
}

impl Exec for CudaExec {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn windows(&self) -> &[Option<usize>] {
        &self.windows
    }

    fn has_fixed_states(&self) -> bool {
        self.programs.iter().any(|p| p.program.fixed_values() > 0)
    }

    fn vocab(&self, program: ProgramId) -> usize {
        self.programs[program.0].program.vocab
    }

    fn taps(&self, program: ProgramId) -> &[Tap] {
        &self.programs[program.0].program.taps
    }

    fn run(&mut self, program: ProgramId, batch: &Batch<'_>, outputs: &mut Outputs<'_>) -> Result<(), ExecError> {
        batch.check(&self.limits, self.vocab(program), outputs.logits.len())?;
        self.start(program, batch).map_err(failed)?;
        self.results(program, outputs, batch).map_err(failed)
    }

    fn copy_states(&mut self, copies: &[StateCopy]) -> Result<(), ExecError> {
        copies.iter().try_for_each(|copy| self.copy(*copy)).map_err(failed)
    }

    fn save_state(&self, piece: StatePiece, to: &mut Vec<u8>) -> bool {
        let start = to.len();
        for (at, bytes) in self.ranges(piece) {
            let from = to.len();
            to.resize(from + bytes, 0);
            if self.memory.states.read(at, &mut to[from..]).is_err() {
                to.truncate(start);
                return false;
            }
        }
        true
    }

    fn load_state(&mut self, piece: StatePiece, from: &[u8]) -> bool {
        let ranges = self.ranges(piece);
        if ranges.iter().map(|(_, bytes)| bytes).sum::<usize>() != from.len() {
            return false;
        }
        let mut rest = from;
        ranges.into_iter().all(|(at, bytes)| {
            let (own, later) = rest.split_at(bytes);
            rest = later;
            self.memory.states.write(at, own).is_ok()
        })
    }

    fn keep_kv(&mut self, kv: &KvPlan) -> Result<(), PlanError> {
        let limits = Limits { kv: kv.all, ..self.limits };
        for compiled in &mut self.programs {
            compiled.program.keep_kv(kv)?;
            limits.check(&device::CAPS, std::slice::from_ref(&compiled.program))?;
        }
        let bytes = place_states(&mut self.programs, &limits);
        self.limits = limits;
        self.recorded.clear();
        self.memory.states = Memory::new(&self.gpu, bytes, "the cache").map_err(refused)?;
        Ok(())
    }
}

/// Positions in a block, as the kernels have it.
const _: () = assert!(KV_BLOCK == 32);
