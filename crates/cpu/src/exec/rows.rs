//! Steps that treat each row by itself.

use super::{Compiled, Engine};
use crate::isa::Isa;
use crate::kernels::{hyper, math, rope};
use model::Activation;
use plan::reference;
use plan::{Batch, Edit, Products, Slot, Step};

impl Compiled {
    /// Runs `task(row, values of `to`)` for each row.
    fn each(&mut self, engine: &Engine, to: Slot, batch: &Batch<'_>, task: impl Fn(&Self, usize, &mut [f32]) + Sync) {
        let width = self.width(to);
        self.write(to, batch, |this, to| engine.rows(to, width, &|row, to| task(this, row, to)));
    }

    /// One row of a slot.
    fn row(&self, slot: Slot, row: usize) -> &[f32] {
        let width = self.width(slot);
        &self.slots[slot.0 as usize][row * width..][..width]
    }

    pub(super) fn row_wise(&mut self, engine: &Engine, step: &Step, batch: &Batch<'_>) {
        let isa = engine.isa;
        match step {
            Step::Embed { table, scale, to } => self.each(engine, *to, batch, |this, row, to| {
                let table = this.weight(*table).tensor();
                if let Err(error) = table.row_to_f32(batch.tokens[row].index(), to) {
                    unreachable!("the type and the token were checked: {error}");
                }
                to.iter_mut().for_each(|x| *x *= scale);
            }),
            Step::Norm { x, weight, eps, to } => self.each(engine, *to, batch, |this, row, to| {
                math::rms_norm(isa, this.row(*x, row), this.vector(*weight), *eps, to);
            }),
            Step::HeadNorm { x, weight, heads, eps } => self.each(engine, *x, batch, |this, _, row| {
                let (dim, weight) = (row.len() / heads, this.vector(*weight));
                for (head, x) in row.chunks_exact_mut(dim).enumerate() {
                    let own = weight.map(|w| if w.len() == dim { w } else { &w[head * dim..][..dim] });
                    math::rms_norm_in_place(isa, x, own, *eps);
                }
            }),
            Step::HeadConcat { a, b, heads, to } => self.each(engine, *to, batch, |this, row, to| {
                reference::head_concat(this.row(*a, row), this.row(*b, row), *heads, to);
            }),
            Step::TakeColumns { x, first, to } => self.each(engine, *to, batch, |this, row, to| {
                to.copy_from_slice(&this.row(*x, row)[*first..][..to.len()]);
            }),
            Step::Repeat { x, to } => {
                self.each(engine, *to, batch, |this, row, to| reference::repeat(this.row(*x, row), to));
            }
            Step::Rope { x, heads, rope } => {
                let index = rope.0 as usize;
                self.each(engine, *x, batch, |this, row, values| {
                    let (pairing, pairs) = (this.program.ropes[index].pairing, this.frequencies[index].len());
                    let angles = &this.angles[index][row * pairs..][..pairs];
                    let dim = values.len() / heads;
                    values.chunks_exact_mut(dim).for_each(|head| rope::rotate(head, angles, pairing));
                });
            }
            Step::GatedAct { gate, up, activation, to } => self.each(engine, *to, batch, |this, row, to| {
                gated(isa, *activation, this.row(*gate, row), this.row(*up, row), to);
            }),
            Step::Silu { x } => self.each(engine, *x, batch, |_, _, x| math::silu_in_place(isa, x)),
            Step::MulSigmoid { x, gate } => self.each(engine, *x, batch, |this, row, x| {
                let gate = this.row(*gate, row);
                if gate.len() == x.len() {
                    return math::mul_sigmoid(isa, x, gate);
                }
                let width = x.len() / gate.len();
                for (channels, gate) in x.chunks_exact_mut(width).zip(gate) {
                    math::scale(isa, channels, math::sigmoid(*gate));
                }
            }),
            Step::Route { logits, choice_bias, expert_scale, routing, to } => {
                self.each(engine, *to, batch, |this, row, to| {
                    let (bias, scale) = (this.vector(*choice_bias), this.vector(*expert_scale));
                    let chosen = reference::route(this.row(*logits, row), routing, bias, scale);
                    for (rank, (expert, weight)) in chosen.into_iter().enumerate() {
                        to[rank] = expert as f32;
                        to[routing.top_k + rank] = weight;
                    }
                });
            }
            Step::Scale { x, factor } => self.each(engine, *x, batch, |_, _, x| math::scale(isa, x, *factor)),
            Step::ScaleBy { x, weight } => self.each(engine, *x, batch, |this, _, x| {
                math::scale(isa, x, this.weight(*weight).vector()[0]);
            }),
            Step::Softcap { x, cap } => self.each(engine, *x, batch, |_, _, x| math::softcap(isa, x, *cap)),
            Step::HyperMix { x, gate, to } => self.each(engine, *to, batch, |this, row, to| {
                hyper::hyper_mix(isa, this.row(*x, row), this.row(*gate, row), to);
            }),
            Step::HyperAdd { into, x, inject } => self.each(engine, *into, batch, |this, row, into| {
                hyper::hyper_add(isa, into, this.row(*x, row), this.row(*inject, row));
            }),
            Step::NgramGate { key, query, value, to } => self.each(engine, *to, batch, |this, row, to| {
                reference::ngram_gate(this.row(*key, row), this.row(*query, row), this.row(*value, row), to);
            }),
            Step::Add { into, x } => self.each(engine, *into, batch, |this, row, into| {
                math::add(isa, into, this.row(*x, row));
            }),
            Step::Mark { .. } => {}
            Step::Tap { x, to } => {
                self.each(engine, *to, batch, |this, row, to| to.copy_from_slice(this.row(*x, row)));
            }
            Step::Steer { x, direction, edit } => self.each(engine, *x, batch, |this, _, row| {
                steer(isa, row, this.weight(*direction).vector(), edit);
            }),
            Step::TakeRows { x, to } => self.each(engine, *to, batch, |this, row, to| {
                to.copy_from_slice(this.row(*x, batch.wanted[row] as usize));
            }),
            other => unreachable!("{other:?} is no step of single rows"),
        }
    }
}

/// Each part of a row as wide as the direction.
fn steer(isa: Isa, row: &mut [f32], direction: &[f32], edit: &Edit) {
    let length = math::sum_of_squares(isa, direction);
    for x in row.chunks_exact_mut(direction.len()) {
        let along = math::dot(isa, x, direction);
        let products = Products { along, row: math::sum_of_squares(isa, x), direction: length };
        if let Some((factor, scale)) = edit.change(products) {
            math::add_scaled(isa, x, direction, factor);
            if scale != 1.0 {
                math::scale(isa, x, scale);
            }
        }
    }
}

pub(super) fn gated(isa: Isa, activation: Activation, gate: &[f32], up: &[f32], to: &mut [f32]) {
    match activation {
        Activation::Silu => math::silu_mul(isa, gate, up, to),
        Activation::GeluTanh => math::gelu_tanh_mul(isa, gate, up, to),
        Activation::GeluErf => math::gelu_erf_mul(isa, gate, up, to),
        Activation::Clamped { limit, alpha } => math::clamped_mul(isa, [limit, alpha], gate, up, to),
    }
}
