//! From a model's description to steps: the only code that knows how a mixer becomes steps.

use crate::program::{KvSpec, Program, Rows, SlotSpec, WeightRole, WeightUse};
use crate::step::{Part, RopeId, Slot, StateId, Step, WeightId};
use crate::{Caps, PlanError, assign_slots, check, fuse};
use model::{
    Attention, Ffn, Gated, Linear, Mixer, ModelSpec, Norm, Qkv, Rope, RopeScaling, Source, Sublayer, WeightIndex,
};

/// Lowers a model to plain steps over fresh slots, checking every weight against the checkpoint.
pub fn lower(spec: &ModelSpec, index: &WeightIndex) -> Result<Program, PlanError> {
    let mut l = Lowering { index, steps: vec![], slots: vec![], weights: vec![], states: vec![], ropes: vec![] };
    let x = l.slot(spec.hidden);
    let table = l.weight(&spec.embed.table, [spec.vocab, spec.hidden], WeightRole::Table)?;
    l.steps.push(Step::Embed { table, scale: spec.embed.scale, to: x });
    for layer in &spec.layers {
        l.branch(x, spec.hidden, &layer.mixer, |l, h, mixer| match mixer {
            Mixer::Attention(a) => l.attention(h, a),
        })?;
        l.branch(x, spec.hidden, &layer.ffn, |l, h, ffn| match ffn {
            Ffn::Gated(g) => l.gated(h, g),
        })?;
    }
    let last = l.slot_of(spec.hidden, Rows::Wanted);
    l.steps.push(Step::TakeRows { x, to: last });
    let normed = l.norm(last, &spec.exit)?;
    let logits = l.linear(normed, &spec.head.linear)?;
    Ok(Program {
        steps: l.steps,
        slots: l.slots,
        weights: l.weights,
        states: l.states,
        ropes: l.ropes,
        logits,
        vocab: spec.vocab,
    })
}

/// All passes in order: the program a device with these capabilities runs.
pub fn lower_for(caps: &Caps, spec: &ModelSpec, index: &WeightIndex) -> Result<Program, PlanError> {
    let mut program = lower(spec, index)?;
    fuse(&mut program, caps);
    assign_slots(&mut program);
    Ok(program)
}

struct Lowering<'a> {
    index: &'a WeightIndex,
    steps: Vec<Step>,
    slots: Vec<SlotSpec>,
    weights: Vec<WeightUse>,
    states: Vec<KvSpec>,
    ropes: Vec<Rope>,
}

impl Lowering<'_> {
    fn slot(&mut self, width: usize) -> Slot {
        self.slot_of(width, Rows::All)
    }

    fn slot_of(&mut self, width: usize, rows: Rows) -> Slot {
        self.slots.push(SlotSpec { width, rows });
        Slot((self.slots.len() - 1) as u16)
    }

    fn width(&self, slot: Slot) -> usize {
        self.slots[slot.0 as usize].width
    }

    /// A weight by source; the same source used twice is stored once, under its stronger role.
    fn weight(&mut self, source: &Source, shape: [usize; 2], role: WeightRole) -> Result<WeightId, PlanError> {
        check(source, shape, self.index)?;
        let at = match self.weights.iter().position(|w| w.source == *source) {
            Some(at) => {
                let weight = &mut self.weights[at];
                if weight.role != role {
                    weight.role = WeightRole::Matrix;
                }
                at
            }
            None => {
                self.weights.push(WeightUse { source: source.clone(), shape, role });
                self.weights.len() - 1
            }
        };
        Ok(WeightId(at as u32))
    }

    fn vector(&mut self, source: &Source, width: usize) -> Result<WeightId, PlanError> {
        self.weight(source, [1, width], WeightRole::Vector)
    }

    fn part(&mut self, linear: &Linear, to: Slot) -> Result<Part, PlanError> {
        let weight = self.weight(&linear.weight, [linear.outputs, linear.inputs], WeightRole::Matrix)?;
        let bias = linear.bias.as_ref().map(|b| self.vector(b, linear.outputs)).transpose()?;
        Ok(Part { weight, bias, to })
    }

    fn linear(&mut self, x: Slot, linear: &Linear) -> Result<Slot, PlanError> {
        let to = self.slot_of(linear.outputs, self.slots[x.0 as usize].rows);
        let part = self.part(linear, to)?;
        self.steps.push(Step::Linear { x, part });
        Ok(to)
    }

    fn norm(&mut self, x: Slot, norm: &Norm) -> Result<Slot, PlanError> {
        let (width, rows) = (self.width(x), self.slots[x.0 as usize].rows);
        let weight = self.vector(&norm.weight, width)?;
        let to = self.slot_of(width, rows);
        self.steps.push(Step::Norm { x, weight, eps: norm.eps, to });
        Ok(to)
    }

    /// `x += post(op(entry(x)))`.
    fn branch<T>(
        &mut self,
        x: Slot,
        hidden: usize,
        sublayer: &Sublayer<T>,
        op: impl FnOnce(&mut Self, Slot, &T) -> Result<Slot, PlanError>,
    ) -> Result<(), PlanError> {
        let h = self.norm(x, &sublayer.entry)?;
        let mut y = op(self, h, &sublayer.op)?;
        debug_assert_eq!(self.width(y), hidden);
        if let Some(post) = &sublayer.post {
            y = self.norm(y, post)?;
        }
        self.steps.push(Step::Add { into: x, x: y });
        Ok(())
    }

    fn attention(&mut self, x: Slot, a: &Attention) -> Result<Slot, PlanError> {
        let Qkv::Split { q, k, v } = &a.qkv;
        let (q, k, v) = match v {
            Some(v) => (self.linear(x, q)?, self.linear(x, k)?, self.linear(x, v)?),
            // Norm and rotation change k in place, so the values are a product of their own.
            None => (self.linear(x, q)?, self.linear(x, k)?, self.linear(x, k)?),
        };
        if let Some(norm) = &a.qk_norm {
            for (x, norm, heads) in [(q, &norm.q, a.q_heads), (k, &norm.k, a.kv_heads)] {
                let weight = self.vector(&norm.weight, a.head_dim)?;
                self.steps.push(Step::HeadNorm { x, weight, heads, eps: norm.eps });
            }
        }
        if let Some(rope) = &a.rope {
            let rope = self.rope(rope)?;
            self.steps.push(Step::Rope { x: q, heads: a.q_heads, rope });
            self.steps.push(Step::Rope { x: k, heads: a.kv_heads, rope });
        }
        let state = StateId(self.states.len() as u16);
        self.states.push(KvSpec { heads: a.kv_heads, head_dim: a.head_dim, window: a.window });
        self.steps.push(Step::Append { k, v, state });
        let to = self.slot(a.q_heads * a.head_dim);
        self.steps.push(Step::Attend { q, state, heads: a.q_heads, scale: a.scale, window: a.window, to });
        self.linear(to, &a.out)
    }

    fn rope(&mut self, rope: &Rope) -> Result<RopeId, PlanError> {
        if let RopeScaling::Divisors(source) = &rope.scaling {
            self.vector(source, rope.rotary_dim / 2)?;
        }
        let at = self.ropes.iter().position(|r| r == rope).unwrap_or_else(|| {
            self.ropes.push(rope.clone());
            self.ropes.len() - 1
        });
        Ok(RopeId(at as u16))
    }

    fn gated(&mut self, x: Slot, g: &Gated) -> Result<Slot, PlanError> {
        let gate = self.linear(x, &g.gate)?;
        let up = self.linear(x, &g.up)?;
        let to = self.slot(g.down.inputs);
        self.steps.push(Step::GatedAct { gate, up, activation: g.activation, to });
        self.linear(to, &g.down)
    }
}
