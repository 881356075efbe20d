//! Runs a program on the thread pool.

mod experts;
mod linear;
mod rows;
mod select;
mod squares;
mod state;

use crate::attention::{Attend, Chosen};
use crate::device::{CpuDevice, streams};
use crate::isa::Isa;
use crate::kernels::activation::Activations;
use crate::kernels::matmul::OUTPUTS;
use crate::kernels::rope;
use crate::load::Stored;
use crate::pool::{Pool, TileMut, Tiles};
use experts::ExpertScratch;
use model::RopeScaling;
use plan::{
    Batch, Device, Exec, ExecError, ExpertStats, KV_BLOCK, KvPlan, Limits, Outputs, PlanError, Program, ProgramId,
    Rows, Slot, StateCopy, StatePiece, Step, Tap, WeightId, WeightUse, values, windows,
};
use squares::Squares;
use state::State;
use std::sync::Mutex;
use streaming::Streams;
use weights::Weights;
use weights::io::OpenFiles;

pub(crate) use experts::scratch_values;
pub use squares::ColumnSquares;

/// Tiles a matrix product is cut into for each thread: more even out the load, fewer cost less.
const TILES_PER_THREAD: usize = 4;

/// Rows a task of a row-wise step takes.
const ROWS_PER_TASK: usize = 8;

/// Programs on the CPU, with their weights and states.
#[derive(Debug)]
pub struct CpuExec {
    programs: Vec<Compiled>,
    windows: Vec<Option<usize>>,
    limits: Limits,
    engine: Engine,
    device: CpuDevice,
}

#[derive(Debug)]
struct Engine {
    pool: Pool,
    isa: Isa,
}

#[derive(Debug)]
struct Compiled {
    program: Program,
    weights: Vec<Stored>,
    frequencies: Vec<Vec<f32>>,
    states: Vec<State>,
    slots: Vec<Vec<f32>>,
    activations: Activations,
    experts: ExpertScratch,
    /// Experts that are read when they are needed.
    streams: Option<Streams>,
    /// What matrices are multiplied with, if somebody wants to know.
    squares: Option<Mutex<Squares>>,
    /// States of fixed size as they were before the run, where it may fail half-way.
    before: Vec<u8>,
    /// (cos, sin) of each row's angles, one table a rope.
    angles: Vec<Vec<[f32; 2]>>,
}

impl CpuExec {
    pub(crate) fn new(
        programs: Vec<Program>,
        weights: &Weights,
        limits: Limits,
        device: CpuDevice,
    ) -> Result<Self, PlanError> {
        let windows = windows(&programs);
        let programs = programs
            .into_iter()
            .map(|p| Compiled::new(p, weights, &limits, device.files()))
            .collect::<Result<_, PlanError>>()?;
        let engine = Engine { pool: Pool::new(device.threads()), isa: device.isa() };
        Ok(Self { programs, windows, limits, engine, device })
    }

    /// From now on sums up the squares of what a program's matrices are multiplied with.
    pub fn observe_columns(&mut self, program: ProgramId) {
        self.programs[program.0].squares = Some(Mutex::default());
    }

    /// The sums so far, with the weight each is of; products of each head by itself (latent attention) are not among them.
    pub fn column_squares(&self, program: ProgramId) -> Vec<(WeightUse, ColumnSquares)> {
        let compiled = &self.programs[program.0];
        let Some(squares) = &compiled.squares else { return Vec::new() };
        let squares = squares.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        squares.of.iter().map(|(id, sums)| (compiled.program.weight(WeightId(*id)).clone(), sums.clone())).collect()
    }

    /// Bytes allocated for all blocks of cache and all copies of recurrent state.
    pub fn state_bytes(&self) -> usize {
        self.programs.iter().flat_map(|p| &p.states).map(State::allocated).sum()
    }
}

impl Compiled {
    fn new(program: Program, weights: &Weights, limits: &Limits, files: &dyn OpenFiles) -> Result<Self, PlanError> {
        let stored = program.weights.iter().map(|w| Stored::load(w, weights)).collect::<Result<_, _>>()?;
        let streams = if streams(&program) { Streams::new(&program, weights, files)? } else { None };
        let mut frequencies = Vec::new();
        for rope in &program.ropes {
            let divisors = match &rope.scaling {
                RopeScaling::Divisors(source) => Some(values(source, weights)?),
                _ => None,
            };
            frequencies.push(rope.frequencies(divisors.as_deref()));
        }
        let height = |rows| if rows == Rows::All { limits.rows } else { limits.wanted };
        Ok(Self {
            states: program.states.iter().map(|s| State::new(s, limits)).collect(),
            slots: program.slots.iter().map(|s| vec![0.0; s.width * height(s.rows)]).collect(),
            angles: vec![Vec::new(); program.ropes.len()],
            activations: Activations::default(),
            experts: ExpertScratch::default(),
            streams,
            squares: None,
            before: Vec::new(),
            weights: stored,
            frequencies,
            program,
        })
    }

    fn weight(&self, id: WeightId) -> &Stored {
        &self.weights[id.0 as usize]
    }

    fn vector(&self, id: Option<WeightId>) -> Option<&[f32]> {
        id.map(|id| self.weight(id).vector())
    }

    fn width(&self, slot: Slot) -> usize {
        self.program.slot(slot).width
    }

    /// The values of a slot in this run.
    fn values(&self, slot: Slot, batch: &Batch<'_>) -> &[f32] {
        &self.slots[slot.0 as usize][..self.len(slot, batch)]
    }

    fn len(&self, slot: Slot, batch: &Batch<'_>) -> usize {
        let spec = self.program.slot(slot);
        spec.width * if spec.rows == Rows::All { batch.tokens.len() } else { batch.wanted.len() }
    }

    /// Calls `f` with a slot's values while the others can be read.
    fn write(&mut self, slot: Slot, batch: &Batch<'_>, f: impl FnOnce(&Self, &mut [f32])) {
        let len = self.len(slot, batch);
        let mut buffer = std::mem::take(&mut self.slots[slot.0 as usize]);
        f(self, &mut buffer[..len]);
        self.slots[slot.0 as usize] = buffer;
    }

    /// Fails only where experts are read from disk.
    fn step(&mut self, engine: &Engine, step: &Step, batch: &Batch<'_>) -> Result<(), ExecError> {
        match step {
            Step::Linear { x, part } => self.linears(engine, *x, std::slice::from_ref(part), batch),
            Step::Linears { x, parts } => self.linears(engine, *x, parts, batch),
            Step::LinearAdd { x, part, into } => self.linear_add(engine, *x, part, *into, batch),
            Step::GateUpAct { x, gate, up, activation, to } => {
                self.gate_up_act(engine, *x, [gate, up], (*activation, *to), batch);
            }
            Step::HeadLinear { x, weight, heads, to } => self.head_linear(engine, *x, (*weight, *heads), *to, batch),
            Step::Experts { x, route, bank, activation, to } => {
                self.experts(engine, [*x, *route, *to], bank, *activation, batch)?;
            }
            Step::Append { k, v, state } => {
                let mut states = std::mem::take(&mut self.states);
                let cache = states[state.0 as usize].cache_mut();
                let (k, v) = (self.values(*k, batch), v.map(|v| self.values(v, batch)));
                let (k_width, v_width) = (cache.spec.heads * cache.spec.k_dim, cache.spec.heads * cache.spec.v_dim);
                for (row, k) in k.chunks_exact(k_width).enumerate() {
                    let position = batch.positions[row] as usize;
                    let blocks = batch.sequences[batch.sequence[row] as usize].blocks(cache.spec.window);
                    let v = v.map_or(&[][..], |v| &v[row * v_width..][..v_width]);
                    cache.append(blocks[position / KV_BLOCK], position % KV_BLOCK, k, v);
                }
                self.states = states;
            }
            Step::Attend { q, state, heads, scale, window, sinks, select, to } => self.write(*to, batch, |this, to| {
                let attend = Attend {
                    cache: this.states[state.0 as usize].cache(),
                    batch,
                    heads: *heads,
                    scale: *scale,
                    window: *window,
                    sinks: this.vector(*sinks),
                    chosen: select.map(|s| Chosen::new(&s, batch.positions, this.values(s.chosen, batch))),
                    isa: engine.isa,
                };
                attend.run(&engine.pool, this.values(*q, batch), to);
            }),
            Step::IndexSelect { q, state, heads, block, score, to } => {
                self.select(engine, *q, (*state, *heads, *block), score, *to, batch);
            }
            Step::Conv { .. } | Step::Delta { .. } | Step::NgramEmbed { .. } => self.recur(engine, step, batch),
            row_wise => self.row_wise(engine, row_wise, batch),
        }
        Ok(())
    }

    /// All steps of a run; if one fails, the states are as they were before.
    fn steps(&mut self, engine: &Engine, batch: &Batch<'_>) -> Result<(), ExecError> {
        self.remember(batch);
        let steps = std::mem::take(&mut self.program.steps);
        let shown = |(_, step): &(usize, &Step)| !(batch.wanted.is_empty() && matches!(step, Step::TakeRows { .. }));
        let result = steps.iter().enumerate().take_while(shown).try_for_each(|(at, step)| {
            self.step(engine, step, batch)?;
            let chosen = if let Step::Route { to, .. } = step { Some(*to) } else { None };
            let Some(chosen) = chosen.filter(|_| self.streams.is_some()) else { return Ok(()) };
            let of = |step: &Step| match step {
                Step::Experts { route, bank, .. } if *route == chosen => Some(*bank),
                _ => None,
            };
            if let Some(bank) = steps[at..].iter().find_map(of) {
                self.fetch(chosen, &bank, batch);
            }
            Ok(())
        });
        self.program.steps = steps;
        if let Some(streams) = &mut self.streams {
            match result {
                Ok(()) => streams.count_rows(batch.tokens.len()),
                Err(_) => self.restore(batch),
            }
        }
        result
    }

    /// Keeps the states that a run changes in place, where it may fail half-way. (Rows of a cache count only once a run is over.)
    fn remember(&mut self, batch: &Batch<'_>) {
        if self.streams.is_none() || self.program.fixed_values() == 0 {
            return;
        }
        self.before.clear();
        for piece in slots(batch) {
            let bytes = self.states.iter().flat_map(|state| state.bytes(piece));
            bytes.for_each(|bytes| self.before.extend_from_slice(bytes));
        }
    }

    fn restore(&mut self, batch: &Batch<'_>) {
        let mut rest = self.before.as_slice();
        for piece in slots(batch).filter(|_| self.program.fixed_values() > 0) {
            for to in self.states.iter_mut().flat_map(|state| state.bytes_mut(piece)) {
                let (own, later) = rest.split_at(to.len());
                to.copy_from_slice(own);
                rest = later;
            }
        }
    }
}

/// The copies of fixed states that a run changes.
fn slots<'a>(batch: &'a Batch<'_>) -> impl Iterator<Item = StatePiece> + use<'a> {
    batch.sequences.iter().filter_map(|sequence| sequence.slot).map(StatePiece::Slot)
}

impl Engine {
    /// Runs `task(row, values)` for each row of a buffer, on several threads when there are many.
    fn rows(&self, buffer: &mut [f32], width: usize, task: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        if buffer.len() / width <= ROWS_PER_TASK {
            buffer.chunks_exact_mut(width).enumerate().for_each(|(row, values)| task(row, values));
            return;
        }
        self.pool.run_tiles(Tiles::rows(buffer, width, ROWS_PER_TASK), &|_, mut tile| {
            for row in 0..tile.rows() {
                task(tile.first_row() + row, tile.row_mut(row));
            }
        });
    }

    /// Runs `task` on column tiles of `[rows, width]`.
    fn columns(&self, buffer: &mut [f32], rows: usize, task: &(dyn Fn(&mut TileMut<'_>) + Sync)) {
        let width = buffer.len() / rows.max(1);
        let tiles = Tiles::columns(buffer, rows, width, self.tile_width(width));
        self.pool.run_tiles(tiles, &|_, mut tile| task(&mut tile));
    }

    /// Outputs a task of a product takes of `width`.
    fn tile_width(&self, width: usize) -> usize {
        width.div_ceil(self.pool.threads() * TILES_PER_THREAD).next_multiple_of(OUTPUTS).max(OUTPUTS)
    }
}

impl Exec for CpuExec {
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
        let compiled = &mut self.programs[program.0];
        for ((angles, frequencies), rope) in
            compiled.angles.iter_mut().zip(&compiled.frequencies).zip(&compiled.program.ropes)
        {
            rope::angles(batch.positions, frequencies, rope.amplitude(), angles);
        }
        compiled.steps(&self.engine, batch)?;
        outputs.logits.copy_from_slice(compiled.values(compiled.program.logits, batch));
        for (tap, out) in compiled.program.taps.iter().zip(&mut *outputs.taps) {
            out.clear();
            out.extend_from_slice(compiled.values(tap.slot, batch));
        }
        Ok(())
    }

    fn expert_stats(&self) -> Option<ExpertStats> {
        let all: Vec<_> = self.programs.iter().filter_map(|p| p.streams.as_ref()).map(Streams::stats).collect();
        all.into_iter().reduce(ExpertStats::and)
    }

    fn copy_states(&mut self, copies: &[StateCopy]) -> Result<(), ExecError> {
        for state in self.programs.iter_mut().flat_map(|p| &mut p.states) {
            copies.iter().for_each(|copy| state.copy(*copy));
        }
        Ok(())
    }

    fn save_state(&self, piece: StatePiece, to: &mut Vec<u8>) -> bool {
        let states = self.programs.iter().flat_map(|p| &p.states);
        states.flat_map(|state| state.bytes(piece)).for_each(|bytes| to.extend_from_slice(bytes));
        true
    }

    fn load_state(&mut self, piece: StatePiece, from: &[u8]) -> bool {
        let mut rest = from;
        for to in self.programs.iter_mut().flat_map(|p| &mut p.states).flat_map(|state| state.bytes_mut(piece)) {
            let Some((own, later)) = rest.split_at_checked(to.len()) else { return false };
            to.copy_from_slice(own);
            rest = later;
        }
        rest.is_empty()
    }

    fn keep_kv(&mut self, kv: &KvPlan) -> Result<(), PlanError> {
        self.limits.kv = kv.all;
        for compiled in &mut self.programs {
            compiled.program.keep_kv(kv)?;
            self.limits.check(&self.device.caps(), std::slice::from_ref(&compiled.program))?;
            compiled.states = compiled.program.states.iter().map(|s| State::new(s, &self.limits)).collect();
        }
        Ok(())
    }
}
