//! How each step becomes launches.

use super::Run;
use crate::driver::{At, Params};
use crate::error::CudaError;
use crate::kernels::{FUSED, type_name};
use crate::load::Stored;
use model::{Activation, Pairing, Routing, Score};
use plan::{BankWeights, Part, RopeId, Slot, SteerMode, Step, WeightId};
use weights::DType;

type Done = Result<(), CudaError>;

/// Threads of a block where each does one element.
const BLOCK: usize = 256;
/// Warps of a block of a product, and outputs a warp computes.
const WARPS: usize = 4;
const OUTPUTS: usize = 2;

/// Products of one input that a fused form takes: `PARTS` of kernels/linear.cu.
const PARTS: usize = 4;

/// A product of rows with a matrix.
struct Product<'a> {
    weight: &'a Stored,
    bias: Option<At>,
    x: At,
    out: At,
    rows: usize,
    outputs: usize,
    x_stride: usize,
    out_stride: usize,
    /// Outputs of one head; 0: all read the same.
    head_outputs: usize,
    /// Choices of experts, how many a row has, and whether they share an input.
    experts: Option<(At, usize, bool)>,
    add: bool,
}

/// Kind, limit and alpha as the kernels take them.
fn activation_of(activation: Activation) -> (usize, f32, f32) {
    match activation {
        Activation::Silu => (0, 0.0, 0.0),
        Activation::GeluTanh => (1, 0.0, 0.0),
        Activation::GeluErf => (2, 0.0, 0.0),
        Activation::Clamped { limit, alpha } => (3, limit, alpha),
    }
}

impl Run<'_> {
    pub(super) fn step<'h>(&self, step: &Step, hashes: &mut impl Iterator<Item = &'h At>) -> Done {
        match step {
            Step::Embed { table, scale, to } => {
                self.lookup(*table, self.number(self.rowwise.tokens), self.slot(*to), self.shape.rows, *scale)
            }
            Step::Norm { x, weight, eps, to } => self.norm(*x, *weight, 1, *eps, *to),
            Step::HeadNorm { x, weight, heads, eps } => self.norm(*x, *weight, *heads, *eps, *x),
            Step::Linear { x, part } => self.linear(*x, part, part.to, false),
            Step::Linears { x, parts } => self.linears(*x, parts),
            Step::LinearAdd { x, part, into } => self.linear(*x, part, *into, true),
            Step::GateUpAct { x, gate, up, activation, to } => self.gate_up(*x, [gate, up], *activation, *to),
            Step::HeadLinear { x, weight, heads, to } => self.head_linear(*x, *weight, *heads, *to),
            Step::Experts { x, route, bank, activation, to } => self.experts([*x, *route, *to], bank, *activation),
            Step::Append { .. } | Step::Attend { .. } | Step::IndexSelect { .. } => self.attention(step),
            Step::Conv { .. } | Step::Delta { .. } | Step::NgramEmbed { .. } => self.recur(step, hashes),
            Step::Rope { x, heads, rope } => self.rope(*x, *heads, *rope),
            Step::Route { logits, choice_bias, expert_scale, routing, to } => {
                self.route(*logits, [*choice_bias, *expert_scale], routing, *to)
            }
            Step::Steer { x, direction, edit } => {
                let width = self.weight(*direction).cols;
                let (mode, target) = match edit.mode {
                    SteerMode::Add => (0, 0.0),
                    SteerMode::Ablate => (1, 0.0),
                    SteerMode::Clamp { target } => (2, target),
                    SteerMode::Renorm => (3, 0.0),
                };
                let params = Params::each().at(self.slot(*x)).at(self.weight(*direction).at).int(width).int(mode);
                let params = params.float(edit.strength).float(target).float(edit.threshold);
                self.gpu.launch("steer", [self.values_of(*x) / width, 1, 1], BLOCK, 0, &params)
            }
            Step::NgramGate { key, query, value, to } => {
                let width = self.width(*value);
                let params = Params::each().at(self.slot(*key)).at(self.slot(*query)).at(self.slot(*value));
                let params = params.at(self.slot(*to)).int(width).int(self.width(*key) / width);
                self.gpu.launch("ngram_gate", [self.values_of(*to) / width, 1, 1], BLOCK, 0, &params)
            }
            Step::Mark { .. } => Ok(()),
            pointwise => self.pointwise(pointwise),
        }
    }

    /// Steps with a thread for each value they write.
    fn pointwise(&self, step: &Step) -> Done {
        let at = |slot: &Slot| Params::each().at(self.slot(*slot));
        let (name, written, params) = match step {
            Step::HeadConcat { a, b, heads, to } => {
                let rows = self.rows_of(*to) * heads;
                let params = at(a).at(self.slot(*b)).at(self.slot(*to)).long(rows);
                ("head_concat", *to, params.int(self.width(*a) / heads).int(self.width(*b) / heads))
            }
            Step::TakeColumns { x, first, to } => ("take", *to, self.take(*x, None, *to, *first)),
            Step::Repeat { x, to } | Step::Tap { x, to } => ("take", *to, self.take(*x, None, *to, 0)),
            Step::TakeRows { x, to } => ("take", *to, self.take(*x, Some(self.number(self.rowwise.wanted)), *to, 0)),
            Step::GatedAct { gate, up, activation, to } => {
                let (kind, limit, alpha) = activation_of(*activation);
                let params = at(gate).at(self.slot(*up)).at(self.slot(*to)).long(self.values_of(*to));
                ("gated_act", *to, params.int(kind).float(limit).float(alpha))
            }
            Step::Silu { x } => ("silu_of", *x, at(x).long(self.values_of(*x))),
            Step::MulSigmoid { x, gate } => {
                let shared = self.width(*x) / self.width(*gate);
                ("mul_sigmoid", *x, at(x).at(self.slot(*gate)).long(self.values_of(*x)).int(shared))
            }
            Step::Scale { x, factor } => ("scale", *x, at(x).long(self.values_of(*x)).float(*factor)),
            Step::ScaleBy { x, weight } => ("scale_by", *x, at(x).long(self.values_of(*x)).at(self.weight(*weight).at)),
            Step::Softcap { x, cap } => ("softcap", *x, at(x).long(self.values_of(*x)).float(*cap)),
            Step::HyperMix { x, gate, to } => {
                let width = self.width(*to);
                let params = at(x).at(self.slot(*gate)).at(self.slot(*to)).long(self.values_of(*to));
                ("hyper_mix", *to, params.int(width).int(self.width(*x) / width))
            }
            Step::HyperAdd { into, x, inject } => {
                let params = at(into).at(self.slot(*x)).at(self.slot(*inject)).long(self.values_of(*into));
                ("hyper_add", *into, params.int(self.width(*x)).int(self.width(*inject)))
            }
            Step::Add { into, x } => ("add", *into, at(into).at(self.slot(*x)).long(self.values_of(*into))),
            other => unreachable!("{other:?} is started elsewhere"),
        };
        self.each(name, self.values_of(written), &params)
    }

    /// A thread a value.
    pub(super) fn each(&self, name: &str, values: usize, params: &Params) -> Done {
        self.gpu.launch(name, [values.div_ceil(BLOCK), 1, 1], BLOCK, 0, params)
    }

    fn take(&self, x: Slot, rows: Option<At>, to: Slot, first: usize) -> Params {
        let params = Params::each().at(self.slot(x)).maybe(rows).at(self.slot(to)).long(self.values_of(to));
        params.int(self.width(x)).int(self.width(to)).int(first)
    }

    fn norm(&self, x: Slot, weight: Option<WeightId>, heads: usize, eps: f32, to: Slot) -> Done {
        let width = self.width(x) / heads;
        let own = weight.map_or(1, |w| self.weight(w).cols / width);
        let params = Params::each().at(self.slot(x)).maybe(self.vector(weight)).at(self.slot(to));
        let block = width.next_multiple_of(32).clamp(32, 1024);
        self.gpu.launch("rms_norm", [self.rows_of(x) * heads, 1, 1], block, 0, &params.int(width).int(own).float(eps))
    }

    fn rope(&self, x: Slot, heads: usize, rope: RopeId) -> Done {
        let own = &self.compiled.program.ropes[rope.0 as usize];
        let half = own.rotary_dim / 2;
        let positions = self.number(self.rowwise.positions);
        let params = Params::each().at(self.slot(x)).at(positions).at(self.compiled.ropes[rope.0 as usize]);
        let params = params.int(self.rows_of(x)).int(heads).int(self.width(x) / heads).int(half);
        let params = params.flag(own.pairing == Pairing::Interleaved).float(own.amplitude());
        self.each("rope", self.rows_of(x) * heads * half, &params)
    }

    fn route(&self, logits: Slot, [bias, scale]: [Option<WeightId>; 2], routing: &Routing, to: Slot) -> Done {
        let experts = self.width(logits);
        let score = match routing.score {
            Score::Softmax => 0,
            Score::Sigmoid => 1,
            Score::SoftmaxOfChosen => 2,
        };
        let (groups, chosen) = routing.groups.map_or((0, 0), |g| (g.count, g.chosen));
        let params = Params::each().at(self.slot(logits)).maybe(self.vector(bias)).maybe(self.vector(scale));
        let params = params.at(self.slot(to)).int(experts).int(routing.top_k).int(score).int(groups).int(chosen);
        let params = params.flag(routing.renormalise).float(routing.scale);
        let shared = 4 * (2 * experts + groups + routing.top_k);
        self.gpu.launch("route", [self.rows_of(logits), 1, 1], BLOCK, shared, &params)
    }

    /// The rows of a table that `ids` name, scaled.
    pub(super) fn lookup(&self, table: WeightId, ids: At, to: At, rows: usize, scale: f32) -> Done {
        let table = self.weight(table);
        let params = Params::fields().at(table.at).at(ids).at(to).long(table.row);
        let params = params.int(table.cols).int(rows).float(scale);
        let (kind, threads) = if aligned(table) { ("lookup", table.cols / 8) } else { ("lookup_any", table.cols) };
        let name = format!("{kind}_{}", type_name(table.dtype));
        self.gpu.launch(&name, [threads.div_ceil(128), rows, 1], 128, 0, &params)
    }

    fn linear(&self, x: Slot, part: &Part, to: Slot, add: bool) -> Done {
        self.linear_to(x, part, (self.slot(to), self.width(to)), add)
    }

    /// A product of a slot's rows to rows of `out.1` values.
    fn linear_to(&self, x: Slot, part: &Part, out: (At, usize), add: bool) -> Done {
        self.product(&Product {
            weight: self.weight(part.weight),
            bias: self.vector(part.bias),
            x: self.slot(x),
            out: out.0,
            rows: self.rows_of(x),
            outputs: out.1,
            x_stride: self.width(x),
            out_stride: out.1,
            head_outputs: 0,
            experts: None,
            add,
        })
    }

    /// Whether some products of one input have a fused form here: single rows of one of its types.
    fn fused<'p>(&self, x: Slot, mut parts: impl Iterator<Item = &'p Part>) -> Option<DType> {
        let first = self.weight(parts.next()?.weight);
        let alike = parts.all(|p| self.weight(p.weight).dtype == first.dtype);
        (self.rows_of(x) == 1 && alike && aligned(first) && FUSED.contains(&first.dtype)).then_some(first.dtype)
    }

    /// What the fused forms take: up to [`PARTS`] products, each to its place.
    fn products(&self, x: Slot, parts: &[(&Part, At, usize)]) -> Params {
        let first = self.weight(parts[0].0.weight);
        let of = |i: usize| parts.get(i);
        let each = |params: Params, value: &dyn Fn(&(&Part, At, usize)) -> At| {
            (0..PARTS).fold(params, |params, i| params.maybe(of(i).map(value)))
        };
        let params = each(Params::fields(), &|p| self.weight(p.0.weight).at);
        let params = each(params, &|p| self.vector(p.0.bias).unwrap_or(0));
        let params = each(params, &|p| p.1).at(self.slot(x)).long(first.row);
        let params = (0..PARTS).fold(params, |params, i| params.int(of(i).map_or(0, |p| p.2)));
        params.int(first.cols).int(parts.len())
    }

    fn linears(&self, x: Slot, parts: &[Part]) -> Done {
        let Some(dtype) = self.fused(x, parts.iter()) else {
            return parts.iter().try_for_each(|part| self.linear(x, part, part.to, false));
        };
        parts.chunks(PARTS).try_for_each(|parts| {
            let parts: Vec<_> = parts.iter().map(|p| (p, self.slot(p.to), self.width(p.to))).collect();
            let blocks = parts.iter().map(|p| p.2.div_ceil(WARPS * OUTPUTS)).sum();
            let name = format!("linears_{}", type_name(dtype));
            self.gpu.launch(&name, [blocks, 1, 1], 32 * WARPS, 0, &self.products(x, &parts))
        })
    }

    fn gate_up(&self, x: Slot, parts: [&Part; 2], activation: Activation, to: Slot) -> Done {
        if let Some(dtype) = self.fused(x, parts.into_iter()) {
            let (to, width) = (self.slot(to), self.width(to));
            let (kind, limit, alpha) = activation_of(activation);
            let params = self.products(x, &parts.map(|p| (p, to, width))).end_inner().float(limit).float(alpha);
            let name = format!("gate_up_{}", type_name(dtype));
            return self.gpu.launch(&name, [width.div_ceil(WARPS), 1, 1], 32 * WARPS, 0, &params.int(kind));
        }
        let inside = self.compiled.activations.inside.map(|at| self.scratch(at));
        for (part, inside) in parts.iter().zip(inside) {
            self.linear_to(x, part, (inside, self.width(to)), false)?;
        }
        self.gated(inside, self.slot(to), self.values_of(to), activation)
    }

    fn gated(&self, [gate, up]: [At; 2], to: At, values: usize, activation: Activation) -> Done {
        let (kind, limit, alpha) = activation_of(activation);
        let params = Params::each().at(gate).at(up).at(to).long(values).int(kind).float(limit).float(alpha);
        self.each("gated_act", values, &params)
    }

    fn head_linear(&self, x: Slot, weight: WeightId, heads: usize, to: Slot) -> Done {
        let (weight, outputs) = (self.weight(weight), self.width(to) / heads);
        let inputs = self.width(x) / heads;
        let all = Product {
            weight,
            bias: None,
            x: self.slot(x),
            out: self.slot(to),
            rows: self.rows_of(x),
            outputs: self.width(to),
            x_stride: self.width(x),
            out_stride: self.width(to),
            head_outputs: outputs,
            experts: None,
            add: false,
        };
        // The outputs that a warp computes must be of one head.
        if outputs.is_multiple_of(OUTPUTS) || !aligned(weight) {
            return self.product(&all);
        }
        (0..heads).try_for_each(|head| {
            let at = weight.at + (head * outputs * weight.row) as u64;
            self.product(&Product {
                weight: &Stored { at, ..*weight },
                x: all.x + (4 * head * inputs) as u64,
                out: all.out + (4 * head * outputs) as u64,
                outputs,
                head_outputs: 0,
                ..all
            })
        })
    }

    fn experts(&self, [x, route, to]: [Slot; 3], bank: &BankWeights, activation: Activation) -> Done {
        let (hidden, top_k) = (self.width(x), self.width(route) / 2);
        let (choices, routes) = (self.rows_of(x) * top_k, self.slot(route));
        let places = &self.compiled.activations;
        let [gates, ups] = places.inside.map(|at| self.scratch(at));
        let outputs = self.scratch(places.outputs);
        let bias = |part: usize| bank.biases.map(|biases| self.weight(biases[part]).at);
        let product = |part: usize, weight: WeightId, input: (At, usize), out: (At, usize)| {
            self.product(&Product {
                weight: self.weight(weight),
                bias: bias(part),
                x: input.0,
                out: out.0,
                rows: choices,
                outputs: out.1,
                x_stride: input.1,
                out_stride: out.1,
                head_outputs: 0,
                experts: Some((routes, top_k, part < 2)),
                add: false,
            })
        };
        product(0, bank.gate, (self.slot(x), hidden), (gates, bank.inner))?;
        product(1, bank.up, (self.slot(x), hidden), (ups, bank.inner))?;
        self.gated([gates, ups], gates, choices * bank.inner, activation)?;
        product(2, bank.down, (gates, bank.inner), (outputs, hidden))?;
        let params = Params::each().at(outputs).at(routes).at(self.slot(to)).long(self.values_of(to));
        self.each("combine", self.values_of(to), &params.int(hidden).int(top_k))
    }

    fn product(&self, p: &Product<'_>) -> Done {
        if p.rows == 0 {
            return Ok(());
        }
        let w = p.weight;
        let (routes, top_k, shared) = p.experts.unwrap_or((0, 0, false));
        let params = Params::fields().at(w.at).maybe(p.bias).at(p.x).at(p.out).at(routes).long(w.row);
        let params = params.int(w.cols).int(p.outputs).int(p.rows).int(p.x_stride).int(p.out_stride);
        let params = params.int(p.head_outputs).int(top_k).flag(shared).flag(p.add);
        let name = type_name(w.dtype);
        if !aligned(w) {
            let grid = [p.outputs.div_ceil(WARPS), p.rows, 1];
            return self.gpu.launch(&format!("linear_any_{name}"), grid, 32 * WARPS, 0, &params);
        }
        // Rows that meet a weight together; experts' rows meet different ones.
        let together = match p.rows {
            _ if p.experts.is_some() => 1,
            1 => 1,
            2..=4 => 4,
            _ => 16,
        };
        let grid = [p.outputs.div_ceil(WARPS * OUTPUTS), p.rows.div_ceil(together), 1];
        self.gpu.launch(&format!("linear_{name}_{together}"), grid, 32 * WARPS, 0, &params)
    }
}

/// Whether rows are whole groups of eight that the kernels can load at once.
fn aligned(weight: &Stored) -> bool {
    weight.dtype.is_quantised() || (weight.cols.is_multiple_of(8) && weight.dtype != DType::F64)
}
