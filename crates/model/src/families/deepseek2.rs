//! DeepSeek V2 and V2-Lite.
//!
//! ```text
//! h      = embed[id]
//! per layer:
//!   x    = rms(h, input_layernorm)
//!   q    = x·Wq, or rms(x·Wq_a, q_a_layernorm)·Wq_b             // per head [q_nope | q_pe]
//!   c,k_pe = x·Wkv_a;  c = rms(c, kv_a_layernorm)
//!   k_nope,v = c·Wkv_b                                          // per head; absorbed: q_nope·Wk_b meets c itself,
//!   k    = [k_nope | rope(k_pe)]                                //   and what attention makes of c goes through Wv_b
//!   h   += softmax([q_nope | rope(q_pe)]·kᵀ · scale)·v · Wo
//!          scale = (nope + rope)^-½ · (0.1 mscale_all_dim ln(factor) + 1)²;  rope: YaRN, interleaved pairs
//!   x    = rms(h, post_attention_layernorm)
//!   first layers: h += down(silu(gate x) · up x)
//!   p    = softmax(gate x);  group-limited: only the groups with the best experts stay;  e = top k
//!   h   += scaling · Σ_e p_e · expert_e x + shared x            // not renormalised
//! logits = lm_head · rms(h, norm)
//! ```
//! GGUF files hold `k_b` (transposed) and `v_b` apart, or `kv_b` in older ones. llama.cpp scores a group by its two
//! best experts; the publisher's code takes the best one, and is followed.

mod experts;

use super::Checkpoint;
use super::parts::Dims;
use crate::{
    Activation, Latent, LatentQuery, Layer, Linear, Mixer, ModelError, ModelSpec, Pairing, Rope, RopeScaling, Source,
};

/// The dimensions of latent attention.
struct Heads {
    nope: usize,
    pe: usize,
    v: usize,
    rank: usize,
    q_rank: usize,
}

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let c = &checkpoint.config;
    let d = dims(checkpoint)?;
    checkpoint.expect_activation("hidden_act", &["silu"])?;
    for biases in ["attention_bias", "mlp_bias"] {
        c.flag(biases)?; // the tensors themselves decide
    }
    c.only("moe_layer_freq", 1)?;
    let heads = heads(checkpoint)?;
    let (rope, scale) = rope(checkpoint, &heads)?;
    let dense = c.opt_count("first_k_dense_replace")?.unwrap_or(0);
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let norm = |name| checkpoint.norm(&format!("{at}.{name}"), d.hidden, d.eps);
        let mlp = format!("{at}.mlp");
        let ffn =
            if i < dense { checkpoint.mlp(&mlp, &d, Activation::Silu)? } else { experts::moe(checkpoint, &mlp, &d)? };
        let latent = latent(checkpoint, &format!("{at}.self_attn"), &d, &heads)?;
        let mixer = Mixer::Latent(Box::new(Latent { rope: rope.clone(), scale, ..latent }));
        Ok(Layer::pre_norm((norm("input_layernorm")?, mixer), (norm("post_attention_layernorm")?, ffn)))
    });
    let layers = layers.collect::<Result<_, _>>()?;
    checkpoint.model(&d, layers)
}

/// Widths of keys and values mean other things here: `head_dim` is not that of a head.
fn dims(checkpoint: &Checkpoint) -> Result<Dims, ModelError> {
    for key in ["num_key_value_heads", "head_dim", "value_head_dim"] {
        checkpoint.config.opt_size(key)?;
    }
    checkpoint.dims_of(None)
}

fn heads(checkpoint: &Checkpoint) -> Result<Heads, ModelError> {
    let c = &checkpoint.config;
    let pe = if checkpoint.is_gguf() { c.size("rotary_dim")? } else { c.size("qk_rope_head_dim")? };
    let whole = c.opt_size("qk_head_dim")?;
    let nope = match (c.opt_size("qk_nope_head_dim")?, whole) {
        (Some(nope), _) => nope,
        (None, Some(whole)) if whole > pe => whole - pe,
        _ => return Err(c.missing("qk_nope_head_dim")),
    };
    let q_rank = c.opt_count("q_lora_rank")?.unwrap_or(0);
    Ok(Heads { nope, pe, v: c.size("v_head_dim")?, rank: c.size("kv_lora_rank")?, q_rank })
}

/// The rope of the rotating parts, and the scale of the products.
fn rope(checkpoint: &Checkpoint, heads: &Heads) -> Result<(Rope, f32), ModelError> {
    let c = &checkpoint.config;
    let own = Dims { head_dim: heads.pe, ..dims(checkpoint)? };
    let mut rope = Rope { pairing: Pairing::Interleaved, ..checkpoint.rope(&own, 10_000.0)? };
    let mut scale = ((heads.nope + heads.pe) as f32).powf(-0.5);
    let section = c.section("rope_parameters")?.or(c.section("rope_scaling")?);
    if let (RopeScaling::Yarn { factor, amplitude, .. }, Some(section)) = (&mut rope.scaling, section) {
        let multiplier = match section.opt_number("yarn_log_multiplier")? {
            Some(multiplier) => {
                // Cosines and sines grow by mscale and shrink by mscale_all_dim, which are equal.
                *amplitude = 1.0;
                multiplier
            }
            None => 0.1 * section.opt_number("mscale_all_dim")?.unwrap_or(0.0),
        };
        scale *= (multiplier * factor.ln() + 1.0).powi(2);
    }
    Ok((rope, scale))
}

fn latent(checkpoint: &Checkpoint, at: &str, d: &Dims, h: &Heads) -> Result<Latent, ModelError> {
    let (heads, whole) = (d.q_heads, h.nope + h.pe);
    let linear = |name: &str, outputs, inputs| checkpoint.linear(&format!("{at}.{name}"), outputs, inputs);
    let part = |all: &Linear, first, len, every: usize| Linear {
        weight: all.weight.clone().rows(first, len, every),
        bias: all.bias.clone().map(|b| b.column().rows(first, len, every)),
        inputs: all.inputs,
        outputs: all.outputs / every * len,
    };
    let (low_rank, q) = if h.q_rank > 0 {
        let norm = checkpoint.norm(&format!("{at}.q_a_layernorm"), h.q_rank, d.eps)?;
        (Some((linear("q_a_proj", h.q_rank, d.hidden)?, norm)), linear("q_b_proj", heads * whole, h.q_rank)?)
    } else {
        (None, linear("q_proj", heads * whole, d.hidden)?)
    };
    let kv_a = linear("kv_a_proj_with_mqa", h.rank + h.pe, d.hidden)?;
    let apart = ["k_b_proj", "v_b_proj"].iter().any(|name| checkpoint.index.contains(&format!("{at}.{name}.weight")));
    let (k_b, v_b) = if apart {
        let shaped =
            |name: &str, outputs, inputs| checkpoint.shaped(&format!("{at}.{name}.weight"), &[heads, outputs, inputs]);
        (shaped("k_b_proj", h.rank, h.nope)?, shaped("v_b_proj", h.v, h.rank)?)
    } else {
        let both: Source = linear("kv_b_proj", heads * (h.nope + h.v), h.rank)?.weight;
        let rows = |first, len| both.clone().rows(first, len, h.nope + h.v);
        (rows(0, h.nope).transpose(heads), rows(h.nope, h.v))
    };
    Ok(Latent {
        heads,
        nope_dim: h.nope,
        rope_dim: h.pe,
        v_dim: h.v,
        rank: h.rank,
        query: LatentQuery { low_rank, nope: part(&q, 0, h.nope, whole), pe: part(&q, h.nope, h.pe, whole) },
        k_pe: part(&kv_a, h.rank, h.pe, h.rank + h.pe),
        kv_a: part(&kv_a, 0, h.rank, h.rank + h.pe),
        kv_norm: checkpoint.norm(&format!("{at}.kv_a_layernorm"), h.rank, d.eps)?,
        k_b,
        v_b,
        out: linear("o_proj", d.hidden, heads * h.v)?,
        rope: Rope { theta: 1.0, rotary_dim: h.pe, pairing: Pairing::Interleaved, scaling: RopeScaling::None },
        scale: 1.0,
    })
}
