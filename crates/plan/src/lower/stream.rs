//! The residual stream: where it begins, how branches read it and return to it, and where it ends.

use super::Lowering;
use crate::PlanError;
use crate::program::{Rows, StateSpec, WeightRole};
use crate::step::{Slot, Step};
use model::{Entry, Exit, HyperMix, ModelSpec, Ngram, PerLayerEmbed, PerLayerInput, Sublayer};

impl Lowering<'_> {
    /// The stream's first value, and the second embedding with a part for each layer.
    pub(super) fn embed(&mut self, spec: &ModelSpec) -> Result<(Slot, Option<Slot>), PlanError> {
        let e = &spec.embed;
        let mut x = self.slot(spec.hidden);
        let table = self.weight(&e.table, [spec.vocab, spec.hidden], WeightRole::Table)?;
        self.steps.push(Step::Embed { table, scale: e.scale, to: x });
        if let Some(norm) = &e.norm {
            x = self.norm(x, norm)?;
        }
        let per_layer = spec.per_layer.as_ref().map(|p| self.per_layer_embed(x, p, spec)).transpose()?;
        if e.streams > 1 {
            let to = self.slot(e.streams * spec.hidden);
            self.steps.push(Step::Repeat { x, to });
            x = to;
        }
        Ok((x, per_layer))
    }

    fn per_layer_embed(&mut self, x: Slot, p: &PerLayerEmbed, spec: &ModelSpec) -> Result<Slot, PlanError> {
        let layers = spec.layers.len();
        let width = layers * p.width;
        let all = self.linear(x, &p.projection)?;
        self.scale(all, p.projection_scale);
        self.head_norm(all, &p.norm, layers, p.width)?;
        let looked_up = self.slot(width);
        let table = self.weight(&p.table, [spec.vocab, width], WeightRole::Table)?;
        self.steps.push(Step::Embed { table, scale: p.table_scale, to: looked_up });
        self.steps.push(Step::Add { into: all, x: looked_up });
        self.scale(all, p.scale);
        Ok(all)
    }

    /// Adds a layer's part of the second embedding: the layer's number and all parts are given.
    pub(super) fn per_layer_input(
        &mut self,
        x: Slot,
        input: &PerLayerInput,
        (all, layer): (Slot, usize),
    ) -> Result<(), PlanError> {
        let gate = self.linear(x, &input.gate)?;
        let width = input.gate.outputs;
        let (part, gated) = (self.slot(width), self.slot(width));
        self.steps.push(Step::TakeColumns { x: all, first: layer * width, to: part });
        self.steps.push(Step::GatedAct { gate, up: part, activation: input.activation, to: gated });
        let y = self.linear(gated, &input.projection)?;
        let y = self.norm(y, &input.post)?;
        self.steps.push(Step::Add { into: x, x: y });
        Ok(())
    }

    /// `x += post(op(entry(x)))`.
    pub(super) fn branch<T>(
        &mut self,
        x: Slot,
        sublayer: &Sublayer<T>,
        op: impl FnOnce(&mut Self, Slot, &T) -> Result<Slot, PlanError>,
    ) -> Result<(), PlanError> {
        let (h, inject) = match &sublayer.entry {
            Entry::Plain => (x, None),
            Entry::Norm(norm) => (self.norm(x, norm)?, None),
            Entry::Hyper(mix) => self.hyper_mix(x, mix)?,
        };
        let mut y = op(self, h, &sublayer.op)?;
        if let Some(post) = &sublayer.post {
            y = self.norm(y, post)?;
        }
        self.steps.push(match inject {
            Some(inject) => Step::HyperAdd { into: x, x: y, inject },
            None => Step::Add { into: x, x: y },
        });
        Ok(())
    }

    /// One input from several streams, and how much of the output each gets.
    fn hyper_mix(&mut self, x: Slot, mix: &HyperMix) -> Result<(Slot, Option<Slot>), PlanError> {
        let width = self.width(x);
        let shrink = 1.0 / mix.streams as f32;
        let n = self.slot_like(x, width);
        self.steps.push(Step::Repeat { x, to: n });
        self.head_norm(n, &mix.norm, mix.streams, width)?;
        let low = self.linear(n, &mix.down)?;
        self.scale(low, shrink);
        self.steps.push(Step::Silu { x: low });
        let gate = self.linear(low, &mix.up)?;
        let inject = mix.inject.as_ref().map(|i| self.linear(n, i)).transpose()?;
        let to = self.slot_like(x, width / mix.streams);
        self.steps.push(Step::HyperMix { x: n, gate, to });
        Ok((to, inject))
    }

    /// Adds what the last few tokens say to every stream.
    pub(super) fn ngram(&mut self, x: Slot, g: &Ngram) -> Result<(), PlanError> {
        let width = self.width(x);
        let streams = width / g.value.outputs;
        let table = self.weight(&g.table, [g.rows, g.row_width], WeightRole::Table)?;
        let state = self.state(StateSpec::Tokens { count: g.hash.multipliers.len() - 1 });
        let e = self.slot(g.hash.sizes.len() * g.row_width);
        self.steps.push(Step::NgramEmbed { table, hash: g.hash.clone(), state, to: e });
        let (key, value) = (self.linear(e, &g.key)?, self.linear(e, &g.value)?);
        self.head_norm(key, &g.key_norm, streams, width)?;
        let (query, gated, normed) = (self.slot(width), self.slot(width), self.slot(width));
        self.steps.push(Step::Repeat { x, to: query });
        self.head_norm(query, &g.query_norm, streams, width)?;
        self.steps.push(Step::NgramGate { key, query, value, to: gated });
        self.steps.push(Step::Repeat { x: gated, to: normed });
        self.head_norm(normed, &g.conv_norm, streams, width)?;
        let weight = self.weight(&g.conv.clone().transpose(1), [g.kernel, width], WeightRole::Vector)?;
        let state = self.state(StateSpec::Rows { rows: (g.kernel - 1) * g.dilation, width });
        let to = self.slot(width);
        self.steps.push(Step::Conv { x: normed, weight, dilation: g.dilation, state, to });
        self.steps.push(Step::Add { into: gated, x: to });
        self.steps.push(Step::Add { into: x, x: gated });
        Ok(())
    }

    /// From the stream's last value to logits, for the rows whose outputs are wanted.
    pub(super) fn exit(&mut self, spec: &ModelSpec, x: Slot) -> Result<Slot, PlanError> {
        let last = self.slot_of(self.width(x), Rows::Wanted);
        self.steps.push(Step::TakeRows { x, to: last });
        let normed = match &spec.exit {
            Exit::Norm(norm) => self.norm(last, norm)?,
            Exit::Hyper(mix) => self.hyper_mix(last, mix)?.0,
        };
        let logits = self.linear(normed, &spec.head.linear)?;
        self.scale(logits, spec.head.scale);
        if let Some(cap) = spec.head.softcap {
            self.steps.push(Step::Softcap { x: logits, cap });
        }
        Ok(logits)
    }
}
