//! Spark-X2.5.
//!
//! ```text
//! h      = embed[id]
//! per layer, by layer_types:
//!   x    = rms(h, input_layernorm)
//!   q,k,v = x·Wqkv, rows of q, then of k, then of v
//!   sliding: rope theta 1e4 on the whole head, keys in (p - window, p];  full: theta 5e6 on the leading quarter
//!   a    = softmax(rope(q)·rope(k)ᵀ / √head_dim)·v
//!   h   += (a · sigmoid(x·Wg)) · Wo                    // one gate a head
//!   x    = rms(h, post_attention_layernorm)
//!   h   += down(gelu(gate x) · up x)                   // gelu by the error function
//! logits = embed · rms(h, norm)
//! ```
//! llama.cpp computes GELU by its tanh approximation; the publisher's code is followed for GGUF files too.

use super::Checkpoint;
use super::parts::Dims;
use crate::{
    Activation, Attention, Gate, Layer, Linear, Mixer, ModelError, ModelSpec, Pairing, Qkv, Rope, RopeScaling,
};

const PATTERN: usize = 4;

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let c = &checkpoint.config;
    let d = checkpoint.dims()?;
    checkpoint.expect_activation("hidden_act", &["gelu"])?;
    checkpoint.expect_activation("gate_attn_act_mode", &["sigmoid"])?;
    c.only("headwise_attn_output_gate", true)?;
    for biases in ["attention_bias", "mlp_bias"] {
        c.flag(biases)?; // the tensors themselves decide
    }
    let window = c.size("sliding_window")?;
    let sliding = checkpoint.sliding_layers(d.layers, PATTERN)?;
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let norm = |name| checkpoint.norm(&format!("{at}.{name}"), d.hidden, d.eps);
        let mut attention = attention(checkpoint, &format!("{at}.self_attn"), &d, rope(checkpoint, &d, sliding[i])?)?;
        attention.window = sliding[i].then_some(window);
        let ffn = checkpoint.mlp(&format!("{at}.mlp"), &d, Activation::GeluErf)?;
        let mixer = Mixer::Attention(Box::new(attention));
        Ok(Layer::pre_norm((norm("input_layernorm")?, mixer), (norm("post_attention_layernorm")?, ffn)))
    });
    let layers = layers.collect::<Result<Vec<_>, _>>()?;
    checkpoint.model_under(&d, layers, table(checkpoint))
}

/// The publisher's name of the embedding table; installed copies have the usual one.
fn table(checkpoint: &Checkpoint) -> &'static str {
    let usual = "model.embed_tokens";
    let renamed = checkpoint.is_gguf() || checkpoint.index.contains("model.embed_tokens.weight");
    if renamed { usual } else { "model.embedding" }
}

fn rope(checkpoint: &Checkpoint, d: &Dims, sliding: bool) -> Result<Rope, ModelError> {
    let c = &checkpoint.config;
    let of = |theta, rotary_dim| Rope { theta, rotary_dim, pairing: Pairing::Half, scaling: RopeScaling::None };
    let Some(parameters) = c.section("rope_parameters")? else {
        let [theta, dim] =
            if sliding { ["rope_local_base_freq", "swa_rotary_dim"] } else { ["rope_theta", "rotary_dim"] };
        return Ok(of(c.number(theta)?, c.opt_size(dim)?.unwrap_or(d.head_dim)));
    };
    let key = if sliding { "sliding_attention" } else { "full_attention" };
    let part = parameters.section(key)?.ok_or_else(|| parameters.missing(key))?;
    let factor = part.opt_number("partial_rotary_factor")?.unwrap_or(1.0);
    let scaling = super::parts::scaling(&part)?;
    Ok(Rope { scaling, ..of(part.number("rope_theta")?, (d.head_dim as f32 * factor) as usize) })
}

fn attention(checkpoint: &Checkpoint, at: &str, d: &Dims, rope: Rope) -> Result<Attention, ModelError> {
    let (q_width, kv_width) = (d.q_heads * d.head_dim, d.kv_heads * d.head_dim);
    let all = q_width + 2 * kv_width;
    let fused = checkpoint.linear(&format!("{at}.q_k_v_proj"), all, d.hidden)?;
    let rows = |first, outputs| Linear {
        weight: fused.weight.clone().rows(first, outputs, all),
        bias: fused.bias.clone().map(|b| b.column().rows(first, outputs, all)),
        inputs: d.hidden,
        outputs,
    };
    let qkv =
        Qkv::Split { q: rows(0, q_width), k: rows(q_width, kv_width), v: Some(rows(q_width + kv_width, kv_width)) };
    let stem = if checkpoint.index.contains(&format!("{at}.o_proj.weight")) { "o_proj" } else { "out_proj" };
    let out = checkpoint.linear(&format!("{at}.{stem}"), d.hidden, q_width)?;
    let gate = Gate::Headwise(checkpoint.linear(&format!("{at}.g_proj"), d.q_heads, d.hidden)?);
    Ok(Attention { gate, ..d.attention(qkv, out, rope) })
}
