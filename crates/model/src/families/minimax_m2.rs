//! MiniMax M2.
//!
//! ```text
//! h      = embed[id]
//! per layer:
//!   x    = rms(h, input_layernorm)
//!   q,k  = rms(x·Wq, q_norm), rms(x·Wk, k_norm)                 // over the whole projection
//!   h   += softmax(rope(q)·rope(k)ᵀ / √head_dim)·(x·Wv) · Wo    // rope on the leading rotary_dim channels
//!   x    = rms(h, post_attention_layernorm)
//!   s    = sigmoid(gate x);  e = top k of s + e_score_correction_bias
//!   h   += Σ_e s_e / Σs · w2_e(silu(w1_e x) · w3_e x)
//! logits = lm_head · rms(h, norm)
//! ```

use super::Checkpoint;
use super::experts::{BankDims, PROJECTIONS};
use super::parts::Dims;
use crate::{Activation, Ffn, Layer, Mixer, ModelError, ModelSpec, Moe, NormSpan, QkNorm, Score};

/// GGUF's number for a sigmoid of the router's logits.
pub(super) const SIGMOID: usize = 2;

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let c = &checkpoint.config;
    let d = checkpoint.dims()?;
    checkpoint.expect_activation("hidden_act", &["silu"])?;
    expect_sigmoid(checkpoint)?;
    for (key, expected) in [("qk_norm_type", "per_layer"), ("scoring_func", "sigmoid")] {
        checkpoint.expect_activation(key, &[expected])?;
    }
    for known in ["use_qk_norm", "use_routing_bias"] {
        c.only(known, true)?;
    }
    c.only("shared_intermediate_size", 0)?;
    c.only("attn_type_list", vec![1; d.layers])?; // every layer softmax attention
    for unused in ["mlp_intermediate_size", "mtp_transformer_layers", "num_mtp_modules", "use_mtp"] {
        c.get(unused);
    }
    let rope = checkpoint.rope(&d, 5_000_000.0)?;
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let attn = format!("{at}.self_attn");
        let norm = |name| checkpoint.norm(&format!("{at}.{name}"), d.hidden, d.eps);
        let mut attention = checkpoint.attention(&attn, &d, rope.clone())?;
        let whole = |name: &str, heads| checkpoint.norm(&format!("{attn}.{name}"), heads * d.head_dim, d.eps);
        attention.qk_norm = Some(QkNorm {
            q: whole("q_norm", d.q_heads)?,
            k: whole("k_norm", d.kv_heads)?,
            span: NormSpan::Projection,
        });
        let mixer = Mixer::Attention(Box::new(attention));
        let ffn = moe(checkpoint, &at, &d)?;
        Ok(Layer::pre_norm((norm("input_layernorm")?, mixer), (norm("post_attention_layernorm")?, ffn)))
    });
    let layers = layers.collect::<Result<_, _>>()?;
    checkpoint.model(&d, layers)
}

/// Fails for a GGUF file whose router scores in another way.
pub(super) fn expect_sigmoid(checkpoint: &Checkpoint) -> Result<(), ModelError> {
    checkpoint.config.only("expert_gating_func", SIGMOID)
}

fn moe(checkpoint: &Checkpoint, at: &str, d: &Dims) -> Result<Ffn, ModelError> {
    let c = &checkpoint.config;
    let (experts, top_k) = checkpoint.expert_counts()?.ok_or_else(|| c.missing("num_local_experts"))?;
    let inner = c.size("intermediate_size")?;
    c.opt_size("moe_intermediate_size")?; // repeats it in GGUF files
    let (at, names, bias) = if checkpoint.is_gguf() {
        (format!("{at}.mlp"), PROJECTIONS, "gate.e_score_correction_bias")
    } else {
        (format!("{at}.block_sparse_moe"), ["w1", "w3", "w2"], "e_score_correction_bias")
    };
    let mut router = checkpoint.router(&format!("{at}.gate"), d, experts, top_k)?;
    router.routing.score = Score::Sigmoid;
    router.choice_bias = Some(checkpoint.shaped(&format!("{at}.{bias}"), &[experts])?);
    let shape = BankDims { experts, inner, hidden: d.hidden };
    let bank = checkpoint.bank(&format!("{at}.experts"), names, shape, Activation::Silu)?;
    Ok(Ffn::Moe(Box::new(Moe { router, bank, shared: None })))
}
