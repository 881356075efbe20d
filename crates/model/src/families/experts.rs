//! Banks of experts under the spellings checkpoints use.

use super::Checkpoint;
use super::parts::Dims;
use crate::{Activation, Bank, ModelError, Router, RouterInput, Routing, Score, Source};

/// The shape of a bank.
#[derive(Clone, Copy)]
pub(super) struct BankDims {
    pub(super) experts: usize,
    pub(super) inner: usize,
    pub(super) hidden: usize,
}

/// Names of gate, up and down in most checkpoints.
pub(super) const PROJECTIONS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

impl Checkpoint {
    /// How many experts there are and how many a token uses; `None` for dense models.
    pub(super) fn expert_counts(&self) -> Result<Option<(usize, usize)>, ModelError> {
        let c = &self.config;
        let mut found = None;
        for key in ["num_experts", "num_local_experts", "n_routed_experts"] {
            found = found.or(c.opt_size(key)?);
        }
        let Some(experts) = found else {
            return Ok(None);
        };
        let used = match c.opt_size("num_experts_per_tok")? {
            Some(used) => used,
            None => c.opt_size("top_k_experts")?.ok_or_else(|| c.missing("num_experts_per_tok"))?,
        };
        if used > experts {
            return Err(c.bad("num_experts_per_tok", &format!("at most {experts} experts"), &used.into()));
        }
        Ok(Some((experts, used)))
    }

    /// The bank under `at`: one tensor a matrix of all experts, gate and up in one (gate rows first), or one tensor
    /// an expert.
    pub(super) fn bank(
        &self,
        at: &str,
        names: [&str; 3],
        b: BankDims,
        activation: Activation,
    ) -> Result<Bank, ModelError> {
        let [gate, up, down] = names;
        let (in_shape, out_shape) = ([b.experts, b.inner, b.hidden], [b.experts, b.hidden, b.inner]);
        let named = |name: &str| {
            let with_suffix = format!("{at}.{name}.weight");
            let suffixed = self.is_gguf() || self.index.contains(&with_suffix);
            if suffixed { with_suffix } else { format!("{at}.{name}") }
        };
        let (both, down_name) = (named("gate_up_proj"), named(down));
        let one_down = || self.shaped(&down_name, &out_shape);
        let apart = |e: usize| names.iter().any(|name| self.index.contains(&format!("{at}.{e}.{name}.weight")));
        let (gate, up, down) = if self.index.contains(&named(gate)) || self.index.contains(&named(up)) {
            (self.shaped(&named(gate), &in_shape)?, self.shaped(&named(up), &in_shape)?, one_down()?)
        } else if !(0..b.experts).any(apart) {
            let both = self.shaped(&both, &[b.experts, 2 * b.inner, b.hidden])?;
            let half = |first| both.clone().rows(first, b.inner, 2 * b.inner);
            (half(0), half(b.inner), one_down()?)
        } else {
            let stack = |name: &str, outputs, inputs| {
                let one = |e| self.shaped(&format!("{at}.{e}.{name}.weight"), &[outputs, inputs]);
                Ok(Source::Stack((0..b.experts).map(one).collect::<Result<_, ModelError>>()?))
            };
            (stack(gate, b.inner, b.hidden)?, stack(up, b.inner, b.hidden)?, stack(down, b.hidden, b.inner)?)
        };
        Ok(Bank { experts: b.experts, inner: b.inner, gate, up, down, biases: None, activation })
    }

    /// A router that reads the experts' input: softmax over all of them, the chosen renormalised.
    pub(super) fn router(&self, stem: &str, d: &Dims, experts: usize, top_k: usize) -> Result<Router, ModelError> {
        let routing = Routing { top_k, score: Score::Softmax, groups: None, renormalise: true, scale: 1.0 };
        Ok(Router {
            input: RouterInput::Branch,
            linear: self.linear(stem, experts, d.hidden)?,
            choice_bias: None,
            expert_scale: None,
            routing,
        })
    }
}
