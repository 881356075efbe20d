//! A mixture of experts: rows sorted by expert, one product an expert, added up by rank.
//!
//! Every product has the same bits for one row as for many, and each row adds its experts in order of rank, so that
//! the way of cutting up the work shows in no result.

use super::rows::gated;
use super::{Compiled, Engine};
use crate::attention::with_scratch;
use crate::isa::Isa;
use crate::kernels::activation::Activations;
use crate::kernels::math;
use crate::kernels::matmul::{Input, Matrix, matmul, planes};
use crate::load::matrix_of;
use crate::pool::{TileMut, Tiles};
use model::Activation;
use plan::{BankWeights, Batch, ExecError, Limits, Program, Slot, Step, WeightId};
use std::ops::Range;
use std::sync::Arc;
use streaming::{Held, Streams};
use weights::WeightsError;

/// Buffers of [`Step::Experts`], one row for each choice of a row, sorted by expert.
#[derive(Debug, Default)]
pub(super) struct ExpertScratch {
    inputs: Vec<f32>,
    inside: Vec<f32>,
    outputs: Vec<f32>,
}

/// f32 values the buffers need.
pub(crate) fn scratch_values(program: &Program, limits: &Limits) -> usize {
    let of = |step: &Step| match step {
        Step::Experts { x, route, bank, .. } => {
            let choices = limits.rows * program.slot(*route).width / 2;
            choices * (2 * program.slot(*x).width + bank.inner)
        }
        _ => 0,
    };
    program.steps.iter().map(of).max().unwrap_or(0)
}

/// One expert of one row.
#[derive(Clone, Copy)]
struct Choice {
    expert: usize,
    row: usize,
    rank: usize,
}

/// Neighbouring choices of one expert.
struct Group {
    expert: usize,
    choices: Range<usize>,
    /// Where they are among those computed together.
    places: Range<usize>,
    /// Their inputs, if quantised.
    input: Activations,
    /// The expert, if it was read for this run or an earlier one.
    held: Option<Arc<Held>>,
}

/// What the groups of one step have in common.
struct Wave<'a> {
    /// `[rows, hidden]`.
    x: &'a [f32],
    choices: &'a [Choice],
    bank: &'a BankWeights,
    activation: Activation,
}

/// One of the matrices of a bank with what joins its products.
#[derive(Clone, Copy)]
struct Projection {
    /// Gate, up or down.
    part: usize,
    weight: WeightId,
    bias: Option<WeightId>,
}

impl Compiled {
    /// Lets the experts be read that a layer will need, as soon as it has chosen them.
    pub(super) fn fetch(&mut self, route: Slot, bank: &BankWeights, batch: &Batch<'_>) {
        let Some(mut streams) = self.streams.take() else { return };
        if let Some(number) = streams.bank_of(bank.gate) {
            let top_k = self.width(route) / 2;
            let needed: Vec<_> = sorted(self.values(route, batch), top_k).iter().map(|c| (c.expert, 1)).collect();
            streams.begin(number, &needed);
        }
        self.streams = Some(streams);
    }

    pub(super) fn experts(
        &mut self,
        engine: &Engine,
        [x, route, to]: [Slot; 3],
        bank: &BankWeights,
        activation: Activation,
        batch: &Batch<'_>,
    ) -> Result<(), ExecError> {
        let (isa, hidden) = (engine.isa, self.width(x));
        let mut scratch = std::mem::take(&mut self.experts);
        let routes = self.values(route, batch);
        let top_k = self.width(route) / 2;
        let choices = sorted(routes, top_k);
        let groups = groups(&choices, batch.tokens.len() == 1 || choices.len() <= engine.pool.threads());
        for (buffer, width) in
            [(&mut scratch.inputs, hidden), (&mut scratch.inside, bank.inner), (&mut scratch.outputs, hidden)]
        {
            buffer.resize(choices.len() * width, 0.0);
        }
        let mut places = vec![0; choices.len()];
        let mut base = 0;
        let mut streams = self.streams.take();
        let x = self.values(x, batch);
        let result = {
            let mut compute = |mut groups: Vec<Group>| {
                let wave = Wave { x, choices: &choices, bank, activation };
                self.compute(engine, &wave, &mut groups, (base, &mut scratch));
                for choice in groups.iter().flat_map(|group| &choices[group.choices.clone()]) {
                    places[choice.row * top_k + choice.rank] = base;
                    base += 1;
                }
            };
            match streams.as_mut().and_then(|s| Some((s.bank_of(bank.gate)?, s))) {
                Some((number, streams)) => as_they_come(streams, number, groups, compute),
                None => {
                    compute(groups);
                    Ok(())
                }
            }
        };
        self.streams = streams;
        if let Err(error) = result {
            self.experts = scratch;
            return Err(error.into());
        }
        let outputs = &scratch.outputs;
        self.write(to, batch, |this, to| {
            let routes = this.values(route, batch);
            engine.rows(to, hidden, &|row, to| {
                to.fill(0.0);
                for rank in 0..top_k {
                    let weight = routes[row * 2 * top_k + top_k + rank];
                    let place = places[row * top_k + rank];
                    math::add_scaled(isa, to, &outputs[place * hidden..][..hidden], weight);
                }
            });
        });
        self.experts = scratch;
        Ok(())
    }

    /// The outputs of some groups' experts, one after the other from place `base` on.
    fn compute(
        &self,
        engine: &Engine,
        wave: &Wave<'_>,
        groups: &mut [Group],
        (base, ExpertScratch { inputs, inside, outputs }): (usize, &mut ExpertScratch),
    ) {
        let (isa, hidden, inner) = (engine.isa, self.program.weight(wave.bank.gate).shape[1], wave.bank.inner);
        let projection = |part: usize, weight| {
            let bias = wave.bank.biases.map(|biases| biases[part]);
            Projection { part, weight, bias }
        };
        let [gate, up, down] =
            [projection(0, wave.bank.gate), projection(1, wave.bank.up), projection(2, wave.bank.down)];
        let mut count = 0;
        for group in &mut *groups {
            group.places = count..count + group.choices.len();
            count = group.places.end;
        }
        let inputs = &mut inputs[..count * hidden];
        let choices = groups.iter().flat_map(|group| &wave.choices[group.choices.clone()]);
        for (choice, input) in choices.zip(inputs.chunks_exact_mut(hidden)) {
            input.copy_from_slice(&wave.x[choice.row * hidden..][..hidden]);
        }
        let inputs = &*inputs;
        self.quantise_groups(engine, groups, inputs, &[gate, up]);
        let inside = &mut inside[..count * inner];
        self.each_group(engine, groups, inside, &|group, tile| {
            let (rows, first, cols) = (tile.rows(), tile.first_col(), tile.cols());
            let input = &inputs[group.places.start * hidden..group.places.end * hidden];
            with_scratch(2 * rows * cols, |products| {
                let (gates, ups) = products.split_at_mut(rows * cols);
                self.project(isa, gate, (group, input), first, &mut Tiles::whole(gates, rows, cols));
                self.project(isa, up, (group, input), first, &mut Tiles::whole(ups, rows, cols));
                for (row, (g, u)) in gates.chunks_exact(cols).zip(ups.chunks_exact(cols)).enumerate() {
                    gated(isa, wave.activation, g, u, tile.row_mut(row));
                }
            });
        });
        let inside = &*inside;
        self.quantise_groups(engine, groups, inside, &[down]);
        self.each_group(engine, groups, &mut outputs[base * hidden..][..count * hidden], &|group, tile| {
            let input = &inside[group.places.start * inner..group.places.end * inner];
            let first = tile.first_col();
            self.project(isa, down, (group, input), first, tile);
        });
    }

    /// The matrix of a group's expert.
    fn expert<'a>(&'a self, p: Projection, group: &'a Group) -> Matrix<'a> {
        match &group.held {
            Some(held) => {
                let (dtype, rows, cols, bytes) = held.matrix(p.part);
                Matrix { dtype, rows, cols, bytes }
            }
            None => matrix_of(self.weight(p.weight).expert(group.expert)),
        }
    }

    /// Quantises the inputs of each group, if any of the weights wants it so.
    fn quantise_groups(&self, engine: &Engine, groups: &mut [Group], inputs: &[f32], weights: &[Projection]) {
        let width = inputs.len() / groups.last().map_or(1, |g| g.places.end).max(1);
        for group in groups {
            let input = &inputs[group.places.start * width..group.places.end * width];
            weights.iter().for_each(|p| self.observe(p.weight, group.expert, input));
            let planes = weights.iter().filter_map(|p| planes(self.expert(*p, group).dtype)).max();
            let Some(planes) = planes else { continue };
            group.input.quantise_on(&engine.pool, engine.isa, input, width, planes);
        }
    }

    /// Runs `task` on column tiles of every group's rows of `buffer`.
    fn each_group(
        &self,
        engine: &Engine,
        groups: &[Group],
        buffer: &mut [f32],
        task: &(dyn Fn(&Group, &mut TileMut<'_>) + Sync),
    ) {
        let choices = groups.last().map_or(0, |g| g.places.end);
        let width = buffer.len() / choices.max(1);
        if groups.len() == choices {
            let tiles = Tiles::blocks(buffer, [choices, width], [1, engine.tile_width(width)]);
            engine.pool.run_tiles(tiles, &|_, mut tile| task(&groups[tile.first_row()], &mut tile));
            return;
        }
        let mut rest = buffer;
        for group in groups {
            let (own, later) = rest.split_at_mut(group.choices.len() * width);
            rest = later;
            engine.columns(own, group.choices.len(), &|tile| task(group, tile));
        }
    }

    /// The product of a group's inputs with the rows from `first` on of its expert's matrix, plus bias.
    fn project(&self, isa: Isa, p: Projection, (group, x): (&Group, &[f32]), first: usize, out: &mut TileMut<'_>) {
        let matrix = self.expert(p, group);
        let input = if planes(matrix.dtype).is_some() {
            Input::Quantised(&group.input)
        } else {
            Input::F32 { x, rows: group.choices.len(), width: matrix.cols }
        };
        matmul(isa, &matrix, first..first + out.cols(), &input, out);
        if let Some(bias) = p.bias {
            let bias = &self.weight(bias).vector()[group.expert * matrix.rows + first..][..out.cols()];
            for row in 0..out.rows() {
                math::add(isa, out.row_mut(row), bias);
            }
        }
    }
}

/// Computes the groups of those experts that are there while the others are read.
fn as_they_come(
    streams: &mut Streams,
    bank: usize,
    mut left: Vec<Group>,
    mut compute: impl FnMut(Vec<Group>),
) -> Result<(), WeightsError> {
    if !streams.has_begun(bank) {
        let needed: Vec<_> = left.iter().map(|group| (group.expert, group.choices.len())).collect();
        streams.begin(bank, &needed);
    }
    loop {
        let arrived = streams.arrivals()?;
        if arrived.is_empty() {
            return Ok(());
        }
        let held = |expert| arrived.iter().find(|(number, _)| *number == expert).map(|(_, held)| held.clone());
        left.iter_mut().for_each(|group| group.held = held(group.expert));
        let (now, later) = left.into_iter().partition::<Vec<_>, _>(|group| group.held.is_some());
        left = later;
        compute(now);
        streams.done(arrived);
    }
}

/// All choices, sorted by expert, then by row.
fn sorted(routes: &[f32], top_k: usize) -> Vec<Choice> {
    let of_row = |(row, route): (usize, &[f32])| {
        let chosen: Vec<_> = route[..top_k].iter().map(|e| *e as usize).collect();
        chosen.into_iter().enumerate().map(move |(rank, expert)| Choice { expert, row, rank })
    };
    let mut choices: Vec<_> = routes.chunks_exact(2 * top_k).enumerate().flat_map(of_row).collect();
    choices.sort_by_key(|c| (c.expert, c.row));
    choices
}

/// Choices of one expert together, or each for itself.
fn groups(choices: &[Choice], single: bool) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (place, choice) in choices.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if group.expert == choice.expert && !single => group.choices.end = place + 1,
            _ => groups.push(Group {
                expert: choice.expert,
                choices: place..place + 1,
                places: 0..0,
                input: Activations::default(),
                held: None,
            }),
        }
    }
    groups
}
