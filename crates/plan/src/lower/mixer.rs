//! What mixes positions.

use super::Lowering;
use crate::PlanError;
use crate::program::{StateSpec, WeightRole};
use crate::step::{BlockScore, DeltaShape, Select, Slot, StateId, Step};
use model::{Attention, DeltaNet, Gate, IndexScore, Indexer, Latent, NormSpan, Qkv};

impl Lowering<'_> {
    pub(super) fn attention(&mut self, x: Slot, a: &Attention) -> Result<Slot, PlanError> {
        let (q, state) = match &a.qkv {
            Qkv::Split { q, k, v } => {
                // Norm and rotation change k in place, so values that are keys are a product of their own.
                let v = v.as_ref().unwrap_or(k);
                let (q, k, v) = (self.linear(x, q)?, self.linear(x, k)?, self.linear(x, v)?);
                self.norm_and_rotate(q, Some(k), a)?;
                if let Some(norm) = &a.v_norm {
                    self.head_norm(v, norm, a.kv_heads, a.head_dim)?;
                }
                let state = self.cache(a.kv_heads, a.head_dim, a.head_dim, a.window);
                self.steps.push(Step::Append { k, v: Some(v), state });
                (q, state)
            }
            Qkv::SharedWith { q, layer } => {
                let q = self.linear(x, q)?;
                self.norm_and_rotate(q, None, a)?;
                let earlier = self.caches.get(*layer).copied().flatten();
                let state = earlier.ok_or(PlanError::NoSharedCache { layer: self.caches.len(), wanted: *layer })?;
                self.widen(state, a.window);
                (q, state)
            }
        };
        self.caches.push(Some(state));
        let select = a.indexer.as_ref().map(|i| self.indexer(x, i)).transpose()?;
        let sinks = a.sinks.as_ref().map(|s| self.vector(s, a.q_heads)).transpose()?;
        let to = self.slot(a.q_heads * a.head_dim);
        let (heads, scale, window) = (a.q_heads, a.scale, a.window);
        self.steps.push(Step::Attend { q, state, heads, scale, window, sinks, select, to });
        if let Gate::Headwise(gate) | Gate::Full(gate) = &a.gate {
            let gate = self.linear(x, gate)?;
            self.steps.push(Step::MulSigmoid { x: to, gate });
        }
        self.linear(to, &a.out)
    }

    /// A cache keeps what the widest of its readers sees.
    fn widen(&mut self, state: StateId, window: Option<usize>) {
        if let StateSpec::Kv(cache) = &mut self.states[state.0 as usize] {
            cache.window = cache.window.and_then(|kept| window.map(|reader| reader.max(kept)));
        }
    }

    fn norm_and_rotate(&mut self, q: Slot, k: Option<Slot>, a: &Attention) -> Result<(), PlanError> {
        let parts = [(Some(q), a.q_heads), (k, a.kv_heads)];
        if let Some(norms) = &a.qk_norm {
            for ((x, heads), norm) in parts.into_iter().zip([&norms.q, &norms.k]) {
                let Some(x) = x else { continue };
                match norms.span {
                    NormSpan::Projection => self.head_norm(x, norm, 1, heads * a.head_dim)?,
                    NormSpan::Head => self.head_norm(x, norm, heads, a.head_dim)?,
                }
            }
        }
        if let Some(rope) = &a.rope {
            let rope = self.rope(rope)?;
            for (x, heads) in parts {
                self.steps.extend(x.map(|x| Step::Rope { x, heads, rope }));
            }
        }
        Ok(())
    }

    fn indexer(&mut self, x: Slot, i: &Indexer) -> Result<Select, PlanError> {
        let (q, k) = (self.linear(x, &i.q)?, self.linear(x, &i.k)?);
        let rope = self.rope(&i.rope)?;
        self.head_norm(q, &i.q_norm, i.heads, i.head_dim)?;
        self.steps.push(Step::Rope { x: q, heads: i.heads, rope });
        let (score, choices, tail) = match i.score {
            IndexScore::LargestKey { local } => {
                self.head_norm(k, &i.k_norm, 1, i.head_dim)?;
                self.steps.push(Step::Rope { x: k, heads: 1, rope });
                (BlockScore::LargestKey { local }, i.heads, false)
            }
            IndexScore::MeanKey => {
                let norm = i.k_norm.weight.as_ref().map(|w| self.vector(w, i.head_dim)).transpose()?;
                (BlockScore::MeanKey { norm, eps: i.k_norm.eps, rope }, 1, true)
            }
        };
        let state = self.cache(1, i.head_dim, 0, None);
        self.steps.push(Step::Append { k, v: None, state });
        let to = self.slot(choices * i.count);
        self.steps.push(Step::IndexSelect { q, state, heads: i.heads, block: i.block, score, to });
        Ok(Select { chosen: to, choices, block: i.block, tail })
    }

    pub(super) fn latent(&mut self, x: Slot, a: &Latent) -> Result<Slot, PlanError> {
        let query = match &a.query.low_rank {
            Some((down, norm)) => {
                let low = self.linear(x, down)?;
                self.norm(low, norm)?
            }
            None => x,
        };
        let (nope, q_pe) = (self.linear(query, &a.query.nope)?, self.linear(query, &a.query.pe)?);
        let (c, k_pe) = (self.linear(x, &a.kv_a)?, self.linear(x, &a.k_pe)?);
        let c = self.norm(c, &a.kv_norm)?;
        let rope = self.rope(&a.rope)?;
        self.steps.push(Step::Rope { x: q_pe, heads: a.heads, rope });
        self.steps.push(Step::Rope { x: k_pe, heads: 1, rope });
        let latent = self.slot(a.heads * a.rank);
        let weight = self.weight(&a.k_b, [a.heads * a.rank, a.nope_dim], WeightRole::Matrix)?;
        self.steps.push(Step::HeadLinear { x: nope, weight, heads: a.heads, to: latent });
        let k_dim = a.rank + a.rope_dim;
        let (q, k) = (self.slot(a.heads * k_dim), self.slot(k_dim));
        self.steps.push(Step::HeadConcat { a: latent, b: q_pe, heads: a.heads, to: q });
        self.steps.push(Step::HeadConcat { a: c, b: k_pe, heads: 1, to: k });
        let state = self.cache(1, k_dim, a.rank, None);
        self.caches.push(Some(state));
        self.steps.push(Step::Append { k, v: Some(c), state });
        let attended = self.slot(a.heads * a.rank);
        let (heads, scale) = (a.heads, a.scale);
        let attend = Step::Attend { q, state, heads, scale, window: None, sinks: None, select: None, to: attended };
        self.steps.push(attend);
        let to = self.slot(a.heads * a.v_dim);
        let weight = self.weight(&a.v_b, [a.heads * a.v_dim, a.rank], WeightRole::Matrix)?;
        self.steps.push(Step::HeadLinear { x: attended, weight, heads: a.heads, to });
        self.linear(to, &a.out)
    }

    pub(super) fn delta_net(&mut self, x: Slot, d: &DeltaNet) -> Result<Slot, PlanError> {
        self.caches.push(None);
        let (qkv, z) = (self.linear(x, &d.qkv)?, self.linear(x, &d.z)?);
        let (beta, decay) = (self.linear(x, &d.beta)?, self.linear(x, &d.decay)?);
        let channels = d.qkv.outputs;
        let mixed = self.slot(channels);
        let weight = self.weight(&d.conv.clone().transpose(1), [d.kernel, channels], WeightRole::Vector)?;
        let state = self.state(StateSpec::Rows { rows: d.kernel - 1, width: channels });
        self.steps.push(Step::Conv { x: qkv, weight, dilation: 1, state, to: mixed });
        let (a, dt_bias) = (self.vector(&d.a, d.v_heads)?, self.vector(&d.dt_bias, d.v_heads)?);
        let shape =
            DeltaShape { k_heads: d.k_heads, v_heads: d.v_heads, k_dim: d.k_dim, v_dim: d.v_dim, order: d.order };
        let state = self.state(StateSpec::Recurrent { values: d.v_heads * d.k_dim * d.v_dim });
        let width = d.v_heads * d.v_dim;
        let o = self.slot(width);
        self.steps.push(Step::Delta { qkv: mixed, beta, decay, a, dt_bias, shape, state, to: o });
        self.head_norm(o, &d.norm, d.v_heads, d.v_dim)?;
        if !d.silu_gate {
            self.steps.push(Step::MulSigmoid { x: o, gate: z });
            return self.linear(o, &d.out);
        }
        let to = self.slot(width);
        self.steps.push(Step::GatedAct { gate: z, up: o, activation: model::Activation::Silu, to });
        self.linear(to, &d.out)
    }
}
