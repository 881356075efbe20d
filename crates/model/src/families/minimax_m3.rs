//! MiniMax M3, text.
//!
//! ```text
//! h      = embed[id]                                            // every norm centred: x̂ · (1 + w)
//! per layer:
//!   x    = rms(h, input_layernorm)
//!   q,k  = rms(x·Wq, q_norm), rms(x·Wk, k_norm)                 // per head
//!   sparse layers, for each group of heads of one k:            // qi, ki normed and rotated like q and k
//!     score of a block = max over its visible keys of qi·ki;  keep the top blocks, the query's own always
//!   h   += softmax(rope(q)·rope(k)ᵀ / √head_dim over the kept)·(x·Wv) · Wo
//!   x    = rms(h, post_attention_layernorm)
//!   dense layers: h += glu x
//!   s    = sigmoid(gate x);  e = top k of s + e_score_correction_bias
//!   h   += scaling · Σ_e s_e / Σs · glu_e x + shared glu x
//!   glu x = down((up + 1) · g · sigmoid(alpha g)),  g = min(gate x, limit), up = clamp(up x, ±limit)
//! logits = lm_head · rms(h, norm)
//! ```
//! GGUF files store `1 + w`, and neither limit (7) nor alpha (1.702).

use super::Checkpoint;
use super::experts::{BankDims, PROJECTIONS};
use super::minimax_m2::expect_sigmoid;
use super::parts::{Dims, head_norms};
use crate::{
    Activation, Exit, Ffn, Gated, IndexScore, Indexer, Layer, Linear, Mixer, ModelError, ModelSpec, Moe, Rope, Score,
    Shared,
};

const LIMIT: f32 = 7.0;
const ALPHA: f32 = 1.702;

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let c = &checkpoint.config;
    let d = checkpoint.dims()?;
    checkpoint.expect_activation("hidden_act", &["silu"])?;
    expect_sigmoid(checkpoint)?;
    let rope = checkpoint.rope(&d, 5_000_000.0)?;
    let dense = c.opt_count("first_k_dense_replace")?.unwrap_or(0);
    let (attentions, mlps) = (c.texts("layer_types", d.layers)?, c.texts("mlp_layer_types", d.layers)?);
    let sparse = |types: &Option<Vec<&str>>, i: usize| types.as_ref().map_or(i >= dense, |t| t[i].contains("sparse"));
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let attn = format!("{at}.self_attn");
        let norm = |name: &str, width| checkpoint.centred_norm(&format!("{at}.{name}"), width, d.eps);
        let mut attention = checkpoint.attention(&attn, &d, rope.clone())?;
        attention.qk_norm = head_norms(norm("self_attn.q_norm", d.head_dim)?, norm("self_attn.k_norm", d.head_dim)?);
        if sparse(&attentions, i) {
            attention.indexer = Some(indexer(checkpoint, &format!("{attn}.indexer"), &d, rope.clone())?);
        }
        let mlp = format!("{at}.mlp");
        let ffn = if sparse(&mlps, i) {
            moe(checkpoint, &mlp, &d)?
        } else {
            let width = if checkpoint.is_gguf() { "intermediate_size" } else { "dense_intermediate_size" };
            Ffn::Gated(glu(checkpoint, &mlp, &d, c.size(width)?)?)
        };
        let mixer = Mixer::Attention(Box::new(attention));
        let entries = (norm("input_layernorm", d.hidden)?, norm("post_attention_layernorm", d.hidden)?);
        Ok(Layer::pre_norm((entries.0, mixer), (entries.1, ffn)))
    });
    let layers = layers.collect::<Result<_, _>>()?;
    let exit = Exit::Norm(checkpoint.centred_norm("model.norm", d.hidden, d.eps)?);
    Ok(ModelSpec { exit, ..checkpoint.model(&d, layers)? })
}

fn indexer(checkpoint: &Checkpoint, at: &str, d: &Dims, rope: Rope) -> Result<Indexer, ModelError> {
    let c = &checkpoint.config;
    let (heads, head_dim) = (c.size("index_n_heads")?, c.size("index_head_dim")?);
    if heads != d.kv_heads {
        let expected = format!("num_key_value_heads = {}, a head for each", d.kv_heads);
        return Err(c.bad("index_n_heads", &expected, &heads.into()));
    }
    let count = if checkpoint.is_gguf() { c.size("index_top_k")? } else { c.size("index_topk_blocks")? };
    let norm = |name: &str| checkpoint.centred_norm(&format!("{at}.{name}"), head_dim, d.eps);
    Ok(Indexer {
        q: checkpoint.linear(&format!("{at}.q_proj"), heads * head_dim, d.hidden)?,
        k: checkpoint.linear(&format!("{at}.k_proj"), head_dim, d.hidden)?,
        heads,
        head_dim,
        q_norm: norm("q_norm")?,
        k_norm: norm("k_norm")?,
        rope,
        block: c.size("index_block_size")?,
        count,
        score: IndexScore::LargestKey { local: c.opt_count("index_local_blocks")?.unwrap_or(1) },
    })
}

fn activation(checkpoint: &Checkpoint) -> Result<Activation, ModelError> {
    let c = &checkpoint.config;
    let (limit, alpha) = (c.opt_number("swiglu_limit")?, c.opt_number("swiglu_alpha")?);
    Ok(Activation::Clamped { limit: limit.unwrap_or(LIMIT), alpha: alpha.unwrap_or(ALPHA) })
}

/// A gated layer whose gate and up may be one matrix, gate rows first.
fn glu(checkpoint: &Checkpoint, at: &str, d: &Dims, inner: usize) -> Result<Gated, ModelError> {
    if ["gate_proj", "up_proj"].iter().any(|name| checkpoint.index.contains(&format!("{at}.{name}.weight"))) {
        return checkpoint.gated(at, d, inner, activation(checkpoint)?);
    }
    let both = checkpoint.linear(&format!("{at}.gate_up_proj"), 2 * inner, d.hidden)?;
    let half =
        |first| Linear { weight: both.weight.clone().rows(first, inner, 2 * inner), outputs: inner, ..both.clone() };
    Ok(Gated {
        gate: half(0),
        up: half(inner),
        down: checkpoint.linear(&format!("{at}.down_proj"), d.hidden, inner)?,
        activation: activation(checkpoint)?,
    })
}

fn moe(checkpoint: &Checkpoint, at: &str, d: &Dims) -> Result<Ffn, ModelError> {
    let c = &checkpoint.config;
    let (experts, top_k) = checkpoint.expert_counts()?.ok_or_else(|| c.missing("num_local_experts"))?;
    let (inner, shared, shared_inner) = if checkpoint.is_gguf() {
        let inner = c.size("moe_intermediate_size")?;
        (inner, "shared_expert", inner * c.size("n_shared_experts")?)
    } else {
        (c.size("intermediate_size")?, "shared_experts", c.size("shared_intermediate_size")?)
    };
    let mut router = checkpoint.router(&format!("{at}.gate"), d, experts, top_k)?;
    router.routing.score = Score::Sigmoid;
    router.routing.renormalise = c.flag("norm_topk_prob")?.unwrap_or(true);
    router.routing.scale = c.opt_number("routed_scaling_factor")?.unwrap_or(1.0);
    router.choice_bias = Some(checkpoint.shaped(&format!("{at}.gate.e_score_correction_bias"), &[experts])?);
    let shape = BankDims { experts, inner, hidden: d.hidden };
    let bank = checkpoint.bank(&format!("{at}.experts"), PROJECTIONS, shape, activation(checkpoint)?)?;
    let ffn = glu(checkpoint, &format!("{at}.{shared}"), d, shared_inner)?;
    Ok(Ffn::Moe(Box::new(Moe { router, bank, shared: Some(Shared { ffn, gate: None }) })))
}
