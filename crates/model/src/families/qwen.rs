//! Qwen2/2.5 and Qwen3, dense and with experts.
//!
//! ```text
//! h      = embed[id]
//! per layer:
//!   x    = rms(h, input_layernorm)
//!   q,k,v = x·Wq + bq, x·Wk + bk, x·Wv + bv        // biases in Qwen2 only
//!   q,k  = rms(q, q_norm), rms(k, k_norm)          // per head, Qwen3 only
//!   h   += softmax(rope(q)·rope(k)ᵀ / √head_dim)·v · Wo
//!   x    = rms(h, post_attention_layernorm)
//!   h   += down(silu(gate x) · up x)
//!   h   += Σ_e p_e · down_e(silu(gate_e x) · up_e x)  // Qwen3-MoE: p = softmax(gate x), its top k,
//! logits = head(rms(h, norm))                         // renormalised if norm_topk_prob
//! ```
//! `mlp_only_layers` and `decoder_sparse_step` may make some layers of a MoE model dense. GGUF files name
//! neither them nor `norm_topk_prob`: every layer has experts there and the released models renormalise.

use super::experts::{BankDims, PROJECTIONS};
use super::parts::head_norms;
use super::{Checkpoint, Dims};
use crate::{Activation, Ffn, Layer, Mixer, ModelError, ModelSpec, Moe};

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let d = checkpoint.dims()?;
    checkpoint.expect_activation("hidden_act", &["silu"])?;
    checkpoint.config.flag("attention_bias")?; // the tensors themselves decide
    let rope = checkpoint.rope(&d, 1_000_000.0)?;
    let windows = windows(checkpoint, &d)?;
    let sparse = sparse_layers(checkpoint, &d)?;
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let attn = format!("{at}.self_attn");
        let norm = |name| checkpoint.norm(&format!("{at}.{name}"), d.hidden, d.eps);
        let mut attention = checkpoint.attention(&attn, &d, rope.clone())?;
        attention.window = windows[i];
        if checkpoint.architecture.to_lowercase().starts_with("qwen2") {
            checkpoint.biases(&attn, &["q_proj", "k_proj", "v_proj"])?;
        }
        if checkpoint.index.contains(&format!("{attn}.q_norm.weight")) {
            attention.qk_norm = head_norms(
                checkpoint.norm(&format!("{attn}.q_norm"), d.head_dim, d.eps)?,
                checkpoint.norm(&format!("{attn}.k_norm"), d.head_dim, d.eps)?,
            );
        } else if checkpoint.architecture.to_lowercase().starts_with("qwen3") {
            checkpoint.tensor(&format!("{attn}.q_norm.weight"))?;
        }
        let ffn = match sparse[i] {
            Some(counts) => moe(checkpoint, &format!("{at}.mlp"), &d, counts)?,
            None => checkpoint.mlp(&format!("{at}.mlp"), &d, Activation::Silu)?,
        };
        let mixer = Mixer::Attention(Box::new(attention));
        Ok(Layer::pre_norm((norm("input_layernorm")?, mixer), (norm("post_attention_layernorm")?, ffn)))
    });
    let layers = layers.collect::<Result<_, _>>()?;
    checkpoint.model(&d, layers)
}

fn moe(checkpoint: &Checkpoint, at: &str, d: &Dims, (experts, top_k): (usize, usize)) -> Result<Ffn, ModelError> {
    let c = &checkpoint.config;
    let shape = BankDims { experts, inner: c.size("moe_intermediate_size")?, hidden: d.hidden };
    let mut router = checkpoint.router(&format!("{at}.gate"), d, experts, top_k)?;
    router.routing.renormalise = c.flag("norm_topk_prob")?.unwrap_or(checkpoint.is_gguf());
    let bank = checkpoint.bank(&format!("{at}.experts"), PROJECTIONS, shape, Activation::Silu)?;
    Ok(Ffn::Moe(Box::new(Moe { router, bank, shared: None })))
}

/// Numbers of experts, for each layer that has some.
fn sparse_layers(checkpoint: &Checkpoint, d: &Dims) -> Result<Vec<Option<(usize, usize)>>, ModelError> {
    let c = &checkpoint.config;
    let counts = checkpoint.expert_counts()?;
    if counts.is_some() {
        c.opt_size("intermediate_size")?; // of the dense layers, if any
    }
    let dense = c.indices("mlp_only_layers", d.layers)?.unwrap_or_default();
    let step = c.opt_size("decoder_sparse_step")?.unwrap_or(1);
    Ok((0..d.layers).map(|i| counts.filter(|_| !dense.contains(&i) && (i + 1) % step == 0)).collect())
}

/// The window of each layer: only where `use_sliding_window` is set, then by `layer_types`, else from
/// `max_window_layers` on.
fn windows(checkpoint: &Checkpoint, d: &Dims) -> Result<Vec<Option<usize>>, ModelError> {
    let c = &checkpoint.config;
    let (used, window) = (c.flag("use_sliding_window")?.unwrap_or(false), c.opt_size("sliding_window")?);
    let sliding = checkpoint.sliding_by_type(d.layers)?;
    if !used {
        return Ok(vec![None; d.layers]);
    }
    let window = window.ok_or_else(|| c.missing("sliding_window"))?;
    let sliding = match sliding {
        Some(sliding) => sliding,
        None => {
            let first = c.size("max_window_layers")?;
            (0..d.layers).map(|i| i >= first).collect()
        }
    };
    Ok(sliding.into_iter().map(|slides| slides.then_some(window)).collect())
}
