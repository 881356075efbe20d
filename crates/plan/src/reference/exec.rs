//! Runs a program step by step, row by row.

use super::{Keys, attend, embed, gated, linear, norm, rotate};
use crate::blocks::BlockId;
use crate::device::{Batch, Budget, Caps, Device, Exec, KvType, Limits, Outputs, StateCopy};
use crate::program::{KV_BLOCK, KvSpec, Program, ProgramId, Rows};
use crate::step::{Part, Slot, Step, WeightId};
use crate::{ExecError, PlanError, values};
use model::RopeScaling;
use std::mem::size_of;
use weights::Weights;

/// The scalar device.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceDevice;

impl Device for ReferenceDevice {
    type Exec = ReferenceExec;

    fn caps(&self) -> Caps {
        Caps { device: "the reference device", fusions: &[], kv: &[KvType::F32] }
    }

    fn memory(&self, programs: &[Program], _: &Weights, limits: &Limits) -> Result<Budget, PlanError> {
        limits.check(&self.caps())?;
        let f32s = |n: usize| (n * size_of::<f32>()) as u64;
        let weights = programs.iter().flat_map(|p| &p.weights).map(|w| f32s(w.shape[0] * w.shape[1])).sum();
        let per_position = programs.iter().flat_map(|p| &p.states).map(|s| f32s(2 * s.heads * s.head_dim)).sum();
        let slots = programs.iter().map(|p| f32s(p.slot_values(limits.rows, limits.wanted))).sum();
        Ok(Budget { weights, slots, per_position, states: per_position * (limits.blocks * KV_BLOCK) as u64 })
    }

    fn compile(&self, programs: Vec<Program>, weights: &Weights, limits: Limits) -> Result<ReferenceExec, PlanError> {
        limits.check(&self.caps())?;
        let programs = programs.into_iter().map(|p| Compiled::new(p, weights, &limits)).collect::<Result<_, _>>()?;
        Ok(ReferenceExec { programs, limits })
    }
}

/// Programs on the reference device.
#[derive(Debug)]
pub struct ReferenceExec {
    programs: Vec<Compiled>,
    limits: Limits,
}

#[derive(Debug)]
struct Compiled {
    program: Program,
    weights: Vec<Vec<f32>>,
    frequencies: Vec<Vec<f32>>,
    caches: Vec<Cache>,
}

/// One layer's keys and values: `[block][position in block][head][channel]`.
#[derive(Debug)]
struct Cache {
    spec: KvSpec,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Cache {
    fn new(spec: KvSpec, blocks: usize) -> Self {
        let len = blocks * KV_BLOCK * spec.heads * spec.head_dim;
        Self { spec, k: vec![0.0; len], v: vec![0.0; len] }
    }

    fn width(&self) -> usize {
        self.spec.heads * self.spec.head_dim
    }

    fn row(&self, blocks: &[BlockId], position: usize) -> usize {
        (blocks[position / KV_BLOCK].0 as usize * KV_BLOCK + position % KV_BLOCK) * self.width()
    }
}

/// One head of a sequence's cache.
struct Head<'a> {
    cache: &'a Cache,
    blocks: &'a [BlockId],
    head: usize,
}

impl Keys for Head<'_> {
    fn key(&self, position: usize) -> &[f32] {
        let dim = self.cache.spec.head_dim;
        &self.cache.k[self.cache.row(self.blocks, position) + self.head * dim..][..dim]
    }

    fn value(&self, position: usize) -> &[f32] {
        let dim = self.cache.spec.head_dim;
        &self.cache.v[self.cache.row(self.blocks, position) + self.head * dim..][..dim]
    }
}

impl Compiled {
    fn new(program: Program, weights: &Weights, limits: &Limits) -> Result<Self, PlanError> {
        let loaded = program.weights.iter().map(|w| values(&w.source, weights)).collect::<Result<_, _>>()?;
        let mut frequencies = Vec::new();
        for rope in &program.ropes {
            let divisors = match &rope.scaling {
                RopeScaling::Divisors(source) => Some(values(source, weights)?),
                _ => None,
            };
            frequencies.push(rope.frequencies(divisors.as_deref()));
        }
        let caches = program.states.iter().map(|s| Cache::new(*s, limits.blocks)).collect();
        Ok(Self { program, weights: loaded, frequencies, caches })
    }

    fn weight(&self, id: WeightId) -> &[f32] {
        &self.weights[id.0 as usize]
    }
}

/// The values of every slot during one run.
struct Slots {
    values: Vec<Vec<f32>>,
    widths: Vec<usize>,
}

impl Slots {
    fn new(program: &Program, batch: &Batch<'_>) -> Self {
        let height = |rows| {
            if rows == Rows::All { batch.tokens.len() } else { batch.wanted.len() }
        };
        Self {
            values: program.slots.iter().map(|s| vec![0.0; s.width * height(s.rows)]).collect(),
            widths: program.slots.iter().map(|s| s.width).collect(),
        }
    }

    fn rows(&self, slot: Slot) -> Vec<Vec<f32>> {
        self.values[slot.0 as usize].chunks(self.widths[slot.0 as usize]).map(<[f32]>::to_vec).collect()
    }

    fn rows_mut(&mut self, slot: Slot) -> std::slice::ChunksMut<'_, f32> {
        self.values[slot.0 as usize].chunks_mut(self.widths[slot.0 as usize])
    }
}

impl Compiled {
    fn step(&mut self, step: &Step, batch: &Batch<'_>, slots: &mut Slots) {
        match step {
            Step::Embed { table, scale, to } => {
                for (token, to) in batch.tokens.iter().zip(slots.rows_mut(*to)) {
                    embed(self.weight(*table), token.index(), *scale, to);
                }
            }
            Step::Norm { x, weight, eps, to } => {
                for (x, to) in slots.rows(*x).iter().zip(slots.rows_mut(*to)) {
                    norm(x, self.weight(*weight), *eps, to);
                }
            }
            Step::Linear { x, part: Part { weight, bias, to } } => {
                for (x, to) in slots.rows(*x).iter().zip(slots.rows_mut(*to)) {
                    linear(self.weight(*weight), bias.map(|b| self.weight(b)), x, to);
                }
            }
            Step::HeadNorm { x, weight, heads, eps } => {
                for row in slots.rows_mut(*x) {
                    let dim = row.len() / heads;
                    for head in row.chunks_mut(dim) {
                        let before = head.to_vec();
                        norm(&before, self.weight(*weight), *eps, head);
                    }
                }
            }
            Step::Rope { x, heads, rope } => {
                let pairing = self.program.ropes[rope.0 as usize].pairing;
                for (row, position) in slots.rows_mut(*x).zip(batch.positions) {
                    let dim = row.len() / heads;
                    for head in row.chunks_mut(dim) {
                        rotate(head, *position, &self.frequencies[rope.0 as usize], pairing);
                    }
                }
            }
            Step::Append { k, v, state } => {
                let cache = &mut self.caches[state.0 as usize];
                for (row, (k, v)) in slots.rows(*k).iter().zip(slots.rows(*v)).enumerate() {
                    let blocks = batch.sequences[batch.sequence[row] as usize].blocks;
                    let at = cache.row(blocks, batch.positions[row] as usize);
                    let width = cache.width();
                    cache.k[at..at + width].copy_from_slice(k);
                    cache.v[at..at + width].copy_from_slice(&v);
                }
            }
            Step::Attend { q, state, heads, scale, window, to } => {
                let cache = &self.caches[state.0 as usize];
                let (dim, group) = (cache.spec.head_dim, heads / cache.spec.heads);
                for (row, (q, to)) in slots.rows(*q).iter().zip(slots.rows_mut(*to)).enumerate() {
                    let blocks = batch.sequences[batch.sequence[row] as usize].blocks;
                    for (head, (q, to)) in q.chunks(dim).zip(to.chunks_mut(dim)).enumerate() {
                        let keys = Head { cache, blocks, head: head / group };
                        attend(q, &keys, batch.positions[row] as usize, *window, *scale, to);
                    }
                }
            }
            Step::GatedAct { gate, up, activation, to } => {
                for ((gate, up), to) in slots.rows(*gate).iter().zip(slots.rows(*up)).zip(slots.rows_mut(*to)) {
                    gated(*activation, gate, &up, to);
                }
            }
            Step::Add { into, x } => {
                for (x, into) in slots.rows(*x).iter().zip(slots.rows_mut(*into)) {
                    into.iter_mut().zip(x).for_each(|(into, x)| *into += x);
                }
            }
            Step::TakeRows { x, to } => {
                let rows = slots.rows(*x);
                for (row, to) in batch.wanted.iter().zip(slots.rows_mut(*to)) {
                    to.copy_from_slice(&rows[*row as usize]);
                }
            }
            fused @ (Step::Linears { .. } | Step::LinearAdd { .. } | Step::GateUpAct { .. }) => {
                for plain in fused.expand() {
                    self.step(&plain, batch, slots);
                }
            }
        }
    }
}

impl Exec for ReferenceExec {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn vocab(&self, program: ProgramId) -> usize {
        self.programs[program.0].program.vocab
    }

    fn run(&mut self, program: ProgramId, batch: &Batch<'_>, outputs: &mut Outputs<'_>) -> Result<(), ExecError> {
        batch.check(&self.limits, self.vocab(program), outputs.logits.len())?;
        let compiled = &mut self.programs[program.0];
        let mut slots = Slots::new(&compiled.program, batch);
        for step in compiled.program.steps.clone() {
            compiled.step(&step, batch, &mut slots);
        }
        outputs.logits.copy_from_slice(&slots.values[compiled.program.logits.0 as usize]);
        Ok(())
    }

    fn copy_states(&mut self, copies: &[StateCopy]) -> Result<(), ExecError> {
        for cache in self.programs.iter_mut().flat_map(|p| &mut p.caches) {
            let len = KV_BLOCK * cache.width();
            for copy in copies {
                let (from, to) = (copy.from.0 as usize * len, copy.to.0 as usize * len);
                cache.k.copy_within(from..from + len, to);
                cache.v.copy_within(from..from + len, to);
            }
        }
        Ok(())
    }
}
