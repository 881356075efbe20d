//! Gemma 4: dense, with experts, and with per-layer embeddings (E2B, E4B).
//!
//! ```text
//! h      = embed[id] · √hidden                                  // every norm plain
//! p      = (rms(per_layer_model_projection h · hidden^-½, per_layer_projection_norm) + embed_per_layer[id] · √P) · 2^-½
//! per layer, five sliding then one full:
//!   x    = rms(h, input_layernorm)
//!   q,k,v = rms(x·Wq, q_norm), rms(x·Wk, k_norm), rms(x·Wv)     // per head; K=V layers: v = rms(x·Wk)
//!   sliding: rope theta 1e4, keys in (p - window, p];  full: wider heads, only the first quarter of the pairs turns
//!   a    = softmax(rope(q)·rope(k)ᵀ)·v · Wo                     // the last layers read k, v of the last unshared
//!   h   += rms(a, post_attention_layernorm)                     //   layer of their kind
//!   f    = down(gelu_tanh(gate x) · up x),  x = rms(h, pre_feedforward_layernorm)
//!   f    = rms(f, post_ff_1) + rms(Σ_e w_e · expert_e rms(h, pre_ff_2), post_ff_2)      // MoE
//!          w = softmax(router(rms(h) · scale · hidden^-½)), top k, renormalised, · per_expert_scale
//!   h   += rms(f, post_feedforward_layernorm)
//!   h   += rms(projection(gelu_tanh(gate h) · p_layer), post_per_layer_input_norm)      // E models
//!   h   *= layer_scalar
//! logits = cap · tanh(embed · rms(h, norm) / cap)
//! ```
//! GGUF files give the full layers' frequencies as `rope_freqs.weight`: divisors of 1, and 1e30 for pairs that stay.

mod kinds;

use super::Checkpoint;
use super::experts::{BankDims, PROJECTIONS};
use super::parts::{Dims, head_norms};
use crate::{
    Activation, Attention, Branch, Entry, Ffn, Layer, Mixer, ModelError, ModelSpec, Moe, Norm, PerLayerEmbed,
    PerLayerInput, Qkv, RouterInput, Sublayer,
};
use kinds::{Kind, kinds};

const GELU: Activation = Activation::GeluTanh;

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let c = &checkpoint.config;
    let kinds = kinds(checkpoint)?;
    let d = Dims { tied: true, ..checkpoint.dims_of(None)? };
    checkpoint.expect_activation("hidden_activation", &["gelu_pytorch_tanh"])?;
    match c.get("use_bidirectional_attention").and_then(|v| v.as_str()) {
        None | Some("vision") => {}
        Some(other) => return Err(c.bad("use_bidirectional_attention", "vision or null", &other.into())),
    }
    for known in ["attention_bias", "enable_moe_block"] {
        c.flag(known)?; // the tensors themselves decide
    }
    let window = c.size("sliding_window")?;
    let width = c.opt_count("hidden_size_per_layer_input")?.unwrap_or(0);
    c.opt_size("vocab_size_per_layer_input")?;
    let experts = checkpoint.expert_counts()?;
    let layers = kinds.iter().enumerate().map(|(i, kind)| {
        let at = format!("model.layers.{i}");
        let norm = |name: &str| checkpoint.norm(&format!("{at}.{name}"), d.hidden, d.eps);
        let mut attention = attention(checkpoint, &format!("{at}.self_attn"), kind)?;
        attention.window = kind.sliding.then_some(window);
        let (input, post) = (norm("pre_feedforward_layernorm")?, norm("post_feedforward_layernorm")?);
        let mlp = Ffn::Gated(checkpoint.gated(&format!("{at}.mlp"), &kind.dims, kind.inner, GELU)?);
        let ffn = match experts {
            None => Sublayer::sandwich(input, mlp, post),
            Some(counts) => {
                let branches = vec![
                    Branch { entry: input, op: mlp, post: norm("post_feedforward_layernorm_1")? },
                    Branch {
                        entry: norm("pre_feedforward_layernorm_2")?,
                        op: moe(checkpoint, &at, &d, counts)?,
                        post: norm("post_feedforward_layernorm_2")?,
                    },
                ];
                Sublayer { entry: Entry::Plain, op: Ffn::Sum(branches), post: Some(post) }
            }
        };
        let per_layer = (width > 0).then(|| per_layer_input(checkpoint, &at, &d, width)).transpose()?;
        let mixer = Mixer::Attention(Box::new(attention));
        let mixer = Sublayer::sandwich(norm("input_layernorm")?, mixer, norm("post_attention_layernorm")?);
        let out_scale = Some(checkpoint.shaped(&format!("{at}.layer_scalar"), &[1])?);
        Ok(Layer { per_layer, out_scale, ..Layer::new(mixer, ffn) })
    });
    let layers = layers.collect::<Result<_, _>>()?;
    let mut head = checkpoint.head(&d)?;
    head.softcap = c.opt_number("final_logit_softcapping")?;
    Ok(ModelSpec {
        embed: checkpoint.embed(&d, (d.hidden as f32).sqrt())?,
        per_layer: (width > 0).then(|| per_layer_embed(checkpoint, &d, width)).transpose()?,
        head,
        ..checkpoint.model(&d, layers)?
    })
}

fn attention(checkpoint: &Checkpoint, at: &str, kind: &Kind) -> Result<Attention, ModelError> {
    let d = &kind.dims;
    let (width, kv_width) = (d.q_heads * d.head_dim, d.kv_heads * d.head_dim);
    let q = checkpoint.linear(&format!("{at}.q_proj"), width, d.hidden)?;
    let norm = |name: &str| checkpoint.norm(&format!("{at}.{name}"), d.head_dim, d.eps);
    let unweighted = Norm { weight: None, eps: d.eps };
    let (qkv, k_norm) = match kind.shares {
        Some(layer) => (Qkv::SharedWith { q, layer }, unweighted.clone()),
        None => {
            let k = checkpoint.linear(&format!("{at}.k_proj"), kv_width, d.hidden)?;
            let v_is_k = match checkpoint.config.flag("attention_k_eq_v")? {
                Some(flag) => flag && !kind.sliding,
                None => !kind.sliding && !checkpoint.index.contains(&format!("{at}.v_proj.weight")),
            };
            let v = (!v_is_k).then(|| checkpoint.linear(&format!("{at}.v_proj"), kv_width, d.hidden)).transpose()?;
            (Qkv::Split { q, k, v }, norm("k_norm")?)
        }
    };
    let out = checkpoint.linear(&format!("{at}.o_proj"), d.hidden, width)?;
    Ok(Attention {
        qk_norm: head_norms(norm("q_norm")?, k_norm),
        v_norm: Some(unweighted),
        scale: 1.0,
        ..d.attention(qkv, out, kind.rope.clone())
    })
}

fn moe(checkpoint: &Checkpoint, at: &str, d: &Dims, (experts, top_k): (usize, usize)) -> Result<Ffn, ModelError> {
    let (router, bank) = if checkpoint.is_gguf() { ("mlp.gate", "mlp.experts") } else { ("router.proj", "experts") };
    let shape = BankDims { experts, inner: checkpoint.config.size("moe_intermediate_size")?, hidden: d.hidden };
    let mut router = checkpoint.router(&format!("{at}.{router}"), d, experts, top_k)?;
    let scale = checkpoint.shaped(&format!("{at}.router.scale"), &[d.hidden])?;
    let norm = Norm { weight: Some(scale), eps: d.eps };
    router.input = RouterInput::Stream { norm, scale: (d.hidden as f32).powf(-0.5) };
    router.expert_scale = Some(checkpoint.shaped(&format!("{at}.router.per_expert_scale"), &[experts])?);
    let bank = checkpoint.bank(&format!("{at}.{bank}"), PROJECTIONS, shape, GELU)?;
    Ok(Ffn::Moe(Box::new(Moe { router, bank, shared: None })))
}

fn per_layer_input(checkpoint: &Checkpoint, at: &str, d: &Dims, width: usize) -> Result<PerLayerInput, ModelError> {
    Ok(PerLayerInput {
        gate: checkpoint.linear(&format!("{at}.per_layer_input_gate"), width, d.hidden)?,
        activation: GELU,
        projection: checkpoint.linear(&format!("{at}.per_layer_projection"), d.hidden, width)?,
        post: checkpoint.norm(&format!("{at}.post_per_layer_input_norm"), d.hidden, d.eps)?,
    })
}

fn per_layer_embed(checkpoint: &Checkpoint, d: &Dims, width: usize) -> Result<PerLayerEmbed, ModelError> {
    let all = d.layers * width;
    Ok(PerLayerEmbed {
        table: checkpoint.shaped("model.embed_tokens_per_layer.weight", &[d.vocab, all])?,
        table_scale: (width as f32).sqrt(),
        projection: checkpoint.linear("model.per_layer_model_projection", all, d.hidden)?,
        projection_scale: (d.hidden as f32).powf(-0.5),
        norm: checkpoint.norm("model.per_layer_projection_norm", width, d.eps)?,
        scale: 0.5f32.sqrt(),
        width,
    })
}
