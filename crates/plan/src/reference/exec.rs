//! Runs a program step by step, row by row.

use super::state::{Head, State};
use super::{
    Gates, MeanKey, attend, by_largest_key, by_mean_key, choose, conv, delta, embed, gated, head_concat, head_linear,
    head_norm, hyper_add, hyper_mix, linear, mul_sigmoid, ngram_gate, ngram_rows, norm, reads, repeat, rotate, route,
    silu, steer, visible,
};
use crate::budget::{Budget, windows};
use crate::device::{Batch, Caps, Device, Exec, Limits, Outputs, SequenceArgs, StateCopy};
use crate::kv::{KvPlan, KvType};
use crate::program::{KvSpec, Program, ProgramId, Rows, Tap, WeightUse};
use crate::step::{BankWeights, BlockScore, Part, RopeId, Slot, StateId, Step, WeightId};
use crate::{ExecError, PlanError, rounded, stored, values};
use model::{Activation, RopeScaling};
use std::mem::size_of;
use weights::Weights;

/// The scalar device.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceDevice;

impl Device for ReferenceDevice {
    type Exec = ReferenceExec;

    fn caps(&self) -> Caps {
        Caps { device: "the reference device", fusions: &[], kv: &KvType::ALL, places_experts: false }
    }

    fn memory(&self, programs: &[Program], _: &Weights, limits: &Limits) -> Result<Budget, PlanError> {
        limits.check(&self.caps(), programs)?;
        let f32s = |n: usize| (n * size_of::<f32>()) as u64;
        let weights = programs.iter().flat_map(|p| &p.weights).map(|w| f32s(w.shape[0] * w.shape[1])).sum();
        let slots = programs.iter().map(|p| f32s(p.slot_values(limits.rows, limits.wanted))).sum();
        // What other devices store as codes is kept here as the f32 it stands for.
        let position = |s: &KvSpec| KvType::F32.bytes(s.heads * (s.k_dim + s.v_dim));
        Ok(Budget::new(programs, limits, weights, slots, position))
    }

    fn compile(&self, programs: Vec<Program>, weights: &Weights, limits: Limits) -> Result<ReferenceExec, PlanError> {
        limits.check(&self.caps(), &programs)?;
        let windows = windows(&programs);
        let programs = programs.into_iter().map(|p| Compiled::new(p, weights, &limits)).collect::<Result<_, _>>()?;
        Ok(ReferenceExec { programs, windows, limits })
    }
}

/// Programs on the reference device.
#[derive(Debug)]
pub struct ReferenceExec {
    programs: Vec<Compiled>,
    windows: Vec<Option<usize>>,
    limits: Limits,
}

#[derive(Debug)]
struct Compiled {
    program: Program,
    weights: Vec<Vec<f32>>,
    frequencies: Vec<Vec<f32>>,
    states: Vec<State>,
}

impl Compiled {
    fn new(program: Program, weights: &Weights, limits: &Limits) -> Result<Self, PlanError> {
        let load = |used: &WeightUse| match used.to {
            Some(to) => rounded(stored(&used.source, weights)?, Some(to))?.to_f32(),
            None => values(&used.source, weights),
        };
        let loaded = program.weights.iter().map(load).collect::<Result<_, _>>()?;
        let mut frequencies = Vec::new();
        for rope in &program.ropes {
            let divisors = match &rope.scaling {
                RopeScaling::Divisors(source) => Some(values(source, weights)?),
                _ => None,
            };
            frequencies.push(rope.frequencies(divisors.as_deref()));
        }
        let states = program.states.iter().map(|s| State::new(s, limits)).collect();
        Ok(Self { program, weights: loaded, frequencies, states })
    }

    fn weight(&self, id: WeightId) -> &[f32] {
        &self.weights[id.0 as usize]
    }

    fn maybe(&self, id: Option<WeightId>) -> Option<&[f32]> {
        id.map(|id| self.weight(id))
    }

    fn rotate(&self, id: RopeId, head: &mut [f32], position: u32) {
        let rope = &self.program.ropes[id.0 as usize];
        rotate(head, position, &self.frequencies[id.0 as usize], rope.amplitude(), rope.pairing);
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

    /// Calls `f` with each row of `x` and of `to`.
    fn each(&mut self, x: Slot, to: Slot, mut f: impl FnMut(&[f32], &mut [f32])) {
        for (x, to) in self.rows(x).iter().zip(self.rows_mut(to)) {
            f(x, to);
        }
    }

    /// Calls `f` with each row of `a`, `b` and `to`.
    fn each2(&mut self, [a, b]: [Slot; 2], to: Slot, mut f: impl FnMut(&[f32], &[f32], &mut [f32])) {
        let b = self.rows(b);
        for ((a, b), to) in self.rows(a).iter().zip(&b).zip(self.rows_mut(to)) {
            f(a, b, to);
        }
    }
}

/// The sequence of a row.
fn sequence<'a>(batch: &Batch<'a>, row: usize) -> SequenceArgs<'a> {
    batch.sequences[batch.sequence[row] as usize]
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
                slots.each(*x, *to, |x, to| norm(x, self.maybe(*weight), *eps, to));
            }
            Step::Linear { x, part: Part { weight, bias, to } } => {
                slots.each(*x, *to, |x, to| linear(self.weight(*weight), self.maybe(*bias), x, to));
            }
            Step::HeadNorm { x, weight, heads, eps } => {
                slots.rows_mut(*x).for_each(|row| head_norm(row, self.maybe(*weight), *heads, *eps));
            }
            Step::HeadLinear { x, weight, heads, to } => {
                slots.each(*x, *to, |x, to| head_linear(self.weight(*weight), *heads, x, to));
            }
            Step::HeadConcat { a, b, heads, to } => {
                slots.each2([*a, *b], *to, |a, b, to| head_concat(a, b, *heads, to));
            }
            Step::TakeColumns { x, first, to } => {
                slots.each(*x, *to, |x, to| to.copy_from_slice(&x[*first..][..to.len()]));
            }
            Step::Repeat { x, to } => slots.each(*x, *to, repeat),
            Step::Rope { x, heads, rope } => {
                for (row, position) in slots.rows_mut(*x).zip(batch.positions) {
                    let dim = row.len() / heads;
                    row.chunks_mut(dim).for_each(|head| self.rotate(*rope, head, *position));
                }
            }
            Step::Append { .. } | Step::Attend { .. } | Step::IndexSelect { .. } => self.attention(step, batch, slots),
            Step::Conv { x, weight, dilation, state, to } => {
                let (weight, state) = (&self.weights[weight.0 as usize], &mut self.states[state.0 as usize]);
                let mut row = 0;
                slots.each(*x, *to, |x, to| {
                    conv(x, weight, *dilation, state.fixed(sequence(batch, row).slot), to);
                    row += 1;
                });
            }
            Step::Delta { qkv, beta, decay, a, dt_bias, shape, state, to } => {
                let (a, dt_bias) = (&self.weights[a.0 as usize], &self.weights[dt_bias.0 as usize]);
                let (beta, decay) = (slots.rows(*beta), slots.rows(*decay));
                let state = &mut self.states[state.0 as usize];
                let mut row = 0;
                slots.each(*qkv, *to, |qkv, to| {
                    let gates = Gates { beta: &beta[row], decay: &decay[row], a, dt_bias };
                    delta(qkv, gates, shape, state.fixed(sequence(batch, row).slot), to);
                    row += 1;
                });
            }
            Step::GatedAct { gate, up, activation, to } => {
                slots.each2([*gate, *up], *to, |gate, up, to| gated(*activation, gate, up, to));
            }
            Step::Silu { x } => slots.rows_mut(*x).flatten().for_each(|x| *x = silu(*x)),
            Step::MulSigmoid { x, gate } => slots.each(*gate, *x, |gate, x| mul_sigmoid(x, gate)),
            Step::Route { logits, choice_bias, expert_scale, routing, to } => slots.each(*logits, *to, |z, to| {
                let chosen = route(z, routing, self.maybe(*choice_bias), self.maybe(*expert_scale));
                for (rank, (expert, weight)) in chosen.into_iter().enumerate() {
                    to[rank] = expert as f32;
                    to[routing.top_k + rank] = weight;
                }
            }),
            Step::Experts { x, route, bank, activation, to } => slots.each2([*x, *route], *to, |x, route, to| {
                let (chosen, weights) = route.split_at(route.len() / 2);
                to.fill(0.0);
                for (expert, weight) in chosen.iter().zip(weights) {
                    let y = self.expert(bank, *activation, *expert as usize, x);
                    to.iter_mut().zip(y).for_each(|(to, y)| *to += weight * y);
                }
            }),
            Step::Scale { x, factor } => slots.rows_mut(*x).flatten().for_each(|x| *x *= factor),
            Step::ScaleBy { x, weight } => {
                let factor = self.weight(*weight)[0];
                slots.rows_mut(*x).flatten().for_each(|x| *x *= factor);
            }
            Step::Softcap { x, cap } => slots.rows_mut(*x).flatten().for_each(|x| *x = cap * (*x / cap).tanh()),
            Step::HyperMix { x, gate, to } => slots.each2([*x, *gate], *to, hyper_mix),
            Step::HyperAdd { into, x, inject } => {
                slots.each2([*x, *inject], *into, |x, inject, into| hyper_add(into, x, inject));
            }
            Step::NgramEmbed { table, hash, state, to } => {
                let (table, state) = (&self.weights[table.0 as usize], &mut self.states[state.0 as usize]);
                for (row, to) in slots.rows_mut(*to).enumerate() {
                    let earlier = state.fixed(sequence(batch, row).slot);
                    let rows = ngram_rows(hash, batch.tokens[row].0, earlier);
                    let width = to.len() / rows.len();
                    for (row, to) in rows.into_iter().zip(to.chunks_mut(width)) {
                        embed(table, row, 1.0, to);
                    }
                }
            }
            Step::NgramGate { key, query, value, to } => {
                let value = slots.rows(*value);
                let mut row = 0;
                slots.each2([*key, *query], *to, |key, query, to| {
                    ngram_gate(key, query, &value[row], to);
                    row += 1;
                });
            }
            Step::Add { into, x } => {
                slots.each(*x, *into, |x, into| into.iter_mut().zip(x).for_each(|(into, x)| *into += x));
            }
            Step::Mark { .. } => {}
            Step::Tap { x, to } => slots.each(*x, *to, |x, to| to.copy_from_slice(x)),
            Step::Steer { x, direction, edit } => {
                let direction = self.weight(*direction);
                slots.rows_mut(*x).for_each(|row| steer(row, direction, edit));
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

    /// One expert's output for one row.
    fn expert(&self, bank: &BankWeights, activation: Activation, expert: usize, x: &[f32]) -> Vec<f32> {
        let product = |part: usize, weight: WeightId, x: &[f32], outputs: usize| {
            let mut y = vec![0.0; outputs];
            let bias = bank.biases.map(|b| &self.weight(b[part])[expert * outputs..][..outputs]);
            linear(&self.weight(weight)[expert * outputs * x.len()..][..outputs * x.len()], bias, x, &mut y);
            y
        };
        let (gate, up) = (product(0, bank.gate, x, bank.inner), product(1, bank.up, x, bank.inner));
        let mut inside = vec![0.0; bank.inner];
        gated(activation, &gate, &up, &mut inside);
        product(2, bank.down, &inside, x.len())
    }

    /// The steps that read and write keys and values.
    fn attention(&mut self, step: &Step, batch: &Batch<'_>, slots: &mut Slots) {
        match step {
            Step::Append { k, v, state } => {
                let cache = self.states[state.0 as usize].cache_mut();
                let v = v.map(|v| slots.rows(v));
                for (row, k) in slots.rows(*k).iter().enumerate() {
                    let v = v.as_ref().map_or(&[][..], |v| &v[row]);
                    let blocks = sequence(batch, row).blocks(cache.spec.window);
                    cache.append(blocks, batch.positions[row] as usize, k, v);
                }
            }
            Step::Attend { q, state, heads, scale, window, sinks, select, to } => {
                let chosen = select.as_ref().map(|s| slots.rows(s.chosen));
                let sinks = self.maybe(*sinks);
                let kv_heads = self.states[state.0 as usize].cache().spec.heads;
                let mut row = 0;
                slots.each(*q, *to, |q, to| {
                    let position = batch.positions[row] as usize;
                    let (q_dim, to_dim) = (q.len() / heads, to.len() / heads);
                    for (head, (q, to)) in q.chunks(q_dim).zip(to.chunks_mut(to_dim)).enumerate() {
                        let kv_head = head / (heads / kv_heads);
                        let mut positions: Vec<usize> = visible(position, *window).collect();
                        if let (Some(select), Some(chosen)) = (select, &chosen) {
                            let count = chosen[row].len() / select.choices;
                            let own = &chosen[row][kv_head * select.choices / kv_heads * count..][..count];
                            positions.retain(|p| reads(select, own, position, *p));
                        }
                        attend(
                            q,
                            &self.keys(*state, batch, row, kv_head),
                            &positions,
                            *scale,
                            sinks.map(|s| s[head]),
                            to,
                        );
                    }
                    row += 1;
                });
            }
            Step::IndexSelect { q, state, heads, block, score, to } => {
                let mut row = 0;
                slots.each(*q, *to, |q, to| {
                    let (keys, position) = (self.keys(*state, batch, row, 0), batch.positions[row] as usize);
                    match score {
                        BlockScore::LargestKey { local } => {
                            let (dim, count) = (q.len() / heads, to.len() / heads);
                            for (q, to) in q.chunks(dim).zip(to.chunks_mut(count)) {
                                choose(&by_largest_key(q, &keys, position, *block, *local), to);
                            }
                        }
                        BlockScore::MeanKey { norm, eps, rope } => {
                            let own = &self.program.ropes[rope.0 as usize];
                            let mean = MeanKey {
                                weight: self.maybe(*norm),
                                eps: *eps,
                                frequencies: &self.frequencies[rope.0 as usize],
                                amplitude: own.amplitude(),
                                pairing: own.pairing,
                            };
                            choose(&by_mean_key(q, &keys, position, *block, &mean), to);
                        }
                    }
                    row += 1;
                });
            }
            other => unreachable!("{other:?} has no keys"),
        }
    }

    fn keys<'a>(&'a self, state: StateId, batch: &Batch<'a>, row: usize, head: usize) -> Head<'a> {
        let cache = self.states[state.0 as usize].cache();
        Head { cache, blocks: sequence(batch, row).blocks(cache.spec.window), head }
    }
}

impl Exec for ReferenceExec {
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
        let mut slots = Slots::new(&compiled.program, batch);
        for step in compiled.program.steps.clone() {
            compiled.step(&step, batch, &mut slots);
        }
        outputs.logits.copy_from_slice(&slots.values[compiled.program.logits.0 as usize]);
        for (tap, out) in compiled.program.taps.iter().zip(&mut *outputs.taps) {
            out.clone_from(&slots.values[tap.slot.0 as usize]);
        }
        Ok(())
    }

    fn copy_states(&mut self, copies: &[StateCopy]) -> Result<(), ExecError> {
        for state in self.programs.iter_mut().flat_map(|p| &mut p.states) {
            copies.iter().for_each(|copy| state.copy(*copy));
        }
        Ok(())
    }

    fn keep_kv(&mut self, kv: &KvPlan) -> Result<(), PlanError> {
        self.limits.kv = kv.all;
        for compiled in &mut self.programs {
            compiled.program.keep_kv(kv)?;
            self.limits.check(&ReferenceDevice.caps(), std::slice::from_ref(&compiled.program))?;
            compiled.states = compiled.program.states.iter().map(|s| State::new(s, &self.limits)).collect();
        }
        Ok(())
    }
}
