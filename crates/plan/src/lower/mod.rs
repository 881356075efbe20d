//! From a model's description to steps: the only code that knows how a mixer becomes steps.

mod ffn;
mod mixer;
mod stream;

use crate::program::{KvSpec, Program, Rows, SlotSpec, StateSpec, WeightRole, WeightUse};
use crate::step::{Part, Place, Point, RopeId, Slot, StateId, Step, WeightId};
use crate::{Caps, PlanError, Residency, Steer, assign_slots, check, fuse, instrument, quantise};
use model::{Ffn, Linear, Mixer, ModelSpec, Norm, Rope, RopeScaling, Source, WeightIndex};
use std::fmt;
use weights::DType;

/// Lowers a model to plain steps over fresh slots, checking every weight against the checkpoint.
pub fn lower(spec: &ModelSpec, index: &WeightIndex) -> Result<Program, PlanError> {
    let mut l = Lowering {
        index,
        steps: vec![],
        slots: vec![],
        weights: vec![],
        states: vec![],
        ropes: vec![],
        layer: 0,
        caches: vec![],
    };
    let (x, per_layer) = l.embed(spec)?;
    for (number, layer) in spec.layers.iter().enumerate() {
        l.layer = number;
        if let Some(ngram) = &layer.ngram {
            l.ngram(x, ngram)?;
        }
        l.branch(x, &layer.mixer, |l, h, mixer| match mixer {
            Mixer::Attention(a) => l.attention(h, a),
            Mixer::Latent(a) => l.latent(h, a),
            Mixer::DeltaNet(d) => l.delta_net(h, d),
        })?;
        l.branch(x, &layer.ffn, |l, h, ffn| l.ffn(x, h, ffn))?;
        if let (Some(input), Some(all)) = (&layer.per_layer, per_layer) {
            l.per_layer_input(x, input, (all, number))?;
        }
        if let Some(scale) = &layer.out_scale {
            let weight = l.vector(scale, 1)?;
            l.steps.push(Step::ScaleBy { x, weight });
        }
        l.mark(Point::Residual, x);
    }
    let logits = l.exit(spec, x)?;
    Ok(Program {
        steps: l.steps,
        slots: l.slots,
        weights: l.weights,
        states: l.states,
        ropes: l.ropes,
        taps: vec![],
        logits,
        vocab: spec.vocab,
    })
}

/// All passes in order: the program a device with these capabilities runs.
pub fn lower_for(caps: &Caps, spec: &ModelSpec, index: &WeightIndex) -> Result<Program, PlanError> {
    lower_with(caps, spec, index, &Passes::default())
}

/// What is done to a program between lowering and fusion.
#[derive(Clone, Copy, Default)]
pub struct Passes<'a> {
    /// Directions that change the residual stream.
    pub steering: &'a [Steer],
    /// Which of the marked places get a tap.
    pub tapped: Option<&'a dyn Fn(Place) -> bool>,
    /// The type that [`quantise`] rounds matrices to.
    pub quantise: Option<DType>,
}

impl fmt::Debug for Passes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tapped = self.tapped.is_some();
        let mut passes = f.debug_struct("Passes");
        passes.field("steering", &self.steering).field("tapped", &tapped).field("quantise", &self.quantise).finish()
    }
}

/// As [`lower_for`], with what `passes` ask for.
pub fn lower_with(
    caps: &Caps,
    spec: &ModelSpec,
    index: &WeightIndex,
    passes: &Passes<'_>,
) -> Result<Program, PlanError> {
    let mut program = lower(spec, index)?;
    instrument(&mut program, passes.steering, passes.tapped.unwrap_or(&|_| false));
    if let Some(to) = passes.quantise {
        quantise(&mut program, index, to)?;
    }
    fuse(&mut program, caps);
    assign_slots(&mut program);
    Ok(program)
}

struct Lowering<'a> {
    index: &'a WeightIndex,
    steps: Vec<Step>,
    slots: Vec<SlotSpec>,
    weights: Vec<WeightUse>,
    states: Vec<StateSpec>,
    ropes: Vec<Rope>,
    /// The layer at hand.
    layer: usize,
    /// The cache of keys and values each mixer so far reads.
    caches: Vec<Option<StateId>>,
}

impl Lowering<'_> {
    fn slot(&mut self, width: usize) -> Slot {
        self.slot_of(width, Rows::All)
    }

    fn slot_of(&mut self, width: usize, rows: Rows) -> Slot {
        self.slots.push(SlotSpec { width, rows });
        Slot((self.slots.len() - 1) as u16)
    }

    /// A slot of another width for the same rows as `x`.
    fn slot_like(&mut self, x: Slot, width: usize) -> Slot {
        self.slot_of(width, self.slots[x.0 as usize].rows)
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
                weight.role = weight.role.min(role);
                at
            }
            None => {
                self.weights.push(WeightUse {
                    source: source.clone(),
                    shape,
                    role,
                    to: None,
                    residency: Residency::Ram,
                });
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
        debug_assert_eq!(self.width(x), linear.inputs);
        let to = self.slot_like(x, linear.outputs);
        let part = self.part(linear, to)?;
        self.steps.push(Step::Linear { x, part });
        Ok(to)
    }

    fn norm(&mut self, x: Slot, norm: &Norm) -> Result<Slot, PlanError> {
        let width = self.width(x);
        let weight = norm.weight.as_ref().map(|w| self.vector(w, width)).transpose()?;
        let to = self.slot_like(x, width);
        self.steps.push(Step::Norm { x, weight, eps: norm.eps, to });
        Ok(to)
    }

    /// The norm of each of `heads` parts of a slot, in place; `width` weights.
    fn head_norm(&mut self, x: Slot, norm: &Norm, heads: usize, width: usize) -> Result<(), PlanError> {
        let weight = norm.weight.as_ref().map(|w| self.vector(w, width)).transpose()?;
        self.steps.push(Step::HeadNorm { x, weight, heads, eps: norm.eps });
        Ok(())
    }

    fn state(&mut self, spec: StateSpec) -> StateId {
        self.states.push(spec);
        StateId((self.states.len() - 1) as u16)
    }

    fn cache(&mut self, heads: usize, k_dim: usize, v_dim: usize, window: Option<usize>) -> StateId {
        self.state(StateSpec::Kv(KvSpec { heads, k_dim, v_dim, window, layer: self.layer, kv: None }))
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

    fn mark(&mut self, point: Point, x: Slot) {
        self.steps.push(Step::Mark { place: Place { layer: self.layer, point }, x });
    }

    fn scale(&mut self, x: Slot, factor: f32) {
        if factor != 1.0 {
            self.steps.push(Step::Scale { x, factor });
        }
    }

    /// A feed-forward part of `h`, which is what the branch sees of the stream `x`.
    fn ffn(&mut self, x: Slot, h: Slot, ffn: &Ffn) -> Result<Slot, PlanError> {
        match ffn {
            Ffn::Gated(g) => self.gated(h, g),
            Ffn::Moe(m) => self.moe(x, h, m),
            Ffn::Sum(branches) => self.sum(x, h, branches),
        }
    }
}
