//! The experts of DeepSeek V2.

use crate::families::Checkpoint;
use crate::families::experts::{BankDims, PROJECTIONS};
use crate::families::parts::Dims;
use crate::{Activation, Ffn, Groups, ModelError, Moe, Shared};

pub(super) fn moe(checkpoint: &Checkpoint, at: &str, d: &Dims) -> Result<Ffn, ModelError> {
    let c = &checkpoint.config;
    let (experts, top_k) = checkpoint.expert_counts()?.ok_or_else(|| c.missing("n_routed_experts"))?;
    let inner = c.size("moe_intermediate_size")?;
    checkpoint.expect_activation("scoring_func", &["softmax"])?;
    c.only("expert_gating_func", 1)?; // a softmax
    let mut router = checkpoint.router(&format!("{at}.gate"), d, experts, top_k)?;
    router.routing.renormalise = c.flag("norm_topk_prob")?.unwrap_or(false);
    router.routing.scale = c.opt_number("routed_scaling_factor")?.unwrap_or(1.0);
    router.routing.groups = groups(checkpoint, experts)?;
    let shape = BankDims { experts, inner, hidden: d.hidden };
    let bank = checkpoint.bank(&format!("{at}.experts"), PROJECTIONS, shape, Activation::Silu)?;
    let name = if checkpoint.is_gguf() { "shared_expert" } else { "shared_experts" };
    let shared = match c.opt_count("n_shared_experts")?.unwrap_or(0) {
        0 => None,
        n => {
            Some(Shared { ffn: checkpoint.gated(&format!("{at}.{name}"), d, n * inner, Activation::Silu)?, gate: None })
        }
    };
    Ok(Ffn::Moe(Box::new(Moe { router, bank, shared })))
}

/// The groups that limit the choice, if there are several.
fn groups(checkpoint: &Checkpoint, experts: usize) -> Result<Option<Groups>, ModelError> {
    let c = &checkpoint.config;
    let (count, chosen) = (c.opt_size("n_group")?.unwrap_or(1), c.opt_size("topk_group")?.unwrap_or(1));
    checkpoint.expect_activation("topk_method", &["greedy", "group_limited_greedy"])?;
    let limited = c.text("topk_method")?.map_or(count > 1, |method| method == "group_limited_greedy");
    if !experts.is_multiple_of(count) || chosen > count {
        return Err(c.bad("n_group", &format!("a divisor of {experts} experts, at least {chosen}"), &count.into()));
    }
    Ok(limited.then_some(Groups { count, chosen }))
}
