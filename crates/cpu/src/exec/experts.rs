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
use crate::kernels::matmul::{Input, matmul, planes};
use crate::load::matrix_of;
use crate::pool::{TileMut, Tiles};
use model::Activation;
use plan::{BankWeights, Batch, Limits, Program, Slot, Step, WeightId};
use std::ops::Range;

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
    /// Their inputs, if quantised.
    input: Activations,
}

/// One of the matrices of a bank with what joins its products.
#[derive(Clone, Copy)]
struct Projection {
    weight: WeightId,
    bias: Option<WeightId>,
}

impl Compiled {
    pub(super) fn experts(
        &mut self,
        engine: &Engine,
        [x, route, to]: [Slot; 3],
        bank: &BankWeights,
        activation: Activation,
        batch: &Batch<'_>,
    ) {
        let (isa, hidden) = (engine.isa, self.width(x));
        let projection = |part: usize, weight| Projection { weight, bias: bank.biases.map(|biases| biases[part]) };
        let [gate, up, down] = [projection(0, bank.gate), projection(1, bank.up), projection(2, bank.down)];
        let mut scratch = std::mem::take(&mut self.experts);
        let ExpertScratch { inputs, inside, outputs } = &mut scratch;
        let routes = self.values(route, batch);
        let top_k = self.width(route) / 2;
        let choices = sorted(routes, top_k);
        let mut groups = groups(&choices, batch.tokens.len() == 1 || choices.len() <= engine.pool.threads());
        for (buffer, width) in [(&mut *inputs, hidden), (&mut *inside, bank.inner), (&mut *outputs, hidden)] {
            buffer.resize(choices.len() * width, 0.0);
        }

        let x = self.values(x, batch);
        for (choice, input) in choices.iter().zip(inputs.chunks_exact_mut(hidden)) {
            input.copy_from_slice(&x[choice.row * hidden..][..hidden]);
        }
        self.quantise_groups(engine, &mut groups, inputs, &[gate.weight, up.weight]);
        self.each_group(engine, &groups, inside, &|group, tile| {
            let (rows, first, cols) = (tile.rows(), tile.first_col(), tile.cols());
            let input = &inputs[group.choices.start * hidden..group.choices.end * hidden];
            with_scratch(2 * rows * cols, |products| {
                let (gates, ups) = products.split_at_mut(rows * cols);
                self.project(isa, gate, (group, input), first, &mut Tiles::whole(gates, rows, cols));
                self.project(isa, up, (group, input), first, &mut Tiles::whole(ups, rows, cols));
                for (row, (g, u)) in gates.chunks_exact(cols).zip(ups.chunks_exact(cols)).enumerate() {
                    gated(isa, activation, g, u, tile.row_mut(row));
                }
            });
        });
        self.quantise_groups(engine, &mut groups, inside, &[down.weight]);
        self.each_group(engine, &groups, outputs, &|group, tile| {
            let input = &inside[group.choices.start * bank.inner..group.choices.end * bank.inner];
            let first = tile.first_col();
            self.project(isa, down, (group, input), first, tile);
        });

        let mut places = vec![0; choices.len()];
        for (place, choice) in choices.iter().enumerate() {
            places[choice.row * top_k + choice.rank] = place;
        }
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
    }

    /// Quantises the inputs of each group, if any of the weights wants it so.
    fn quantise_groups(&self, engine: &Engine, groups: &mut [Group], inputs: &[f32], weights: &[WeightId]) {
        let first = groups.first().map_or(0, |g| g.expert);
        let planes = weights.iter().filter_map(|w| planes(self.weight(*w).expert(first).dtype())).max();
        let Some(planes) = planes else { return };
        let choices = groups.last().map_or(0, |g| g.choices.end);
        let width = inputs.len() / choices.max(1);
        for group in groups {
            let input = &inputs[group.choices.start * width..group.choices.end * width];
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
        let choices = groups.last().map_or(0, |g| g.choices.end);
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
        let matrix = matrix_of(self.weight(p.weight).expert(group.expert));
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
            _ => groups.push(Group { expert: choice.expert, choices: place..place + 1, input: Activations::default() }),
        }
    }
    groups
}
