//! Gemma 3, text.
//!
//! ```text
//! h      = embed[id] · √hidden
//! per layer, five sliding then one full:
//!   x    = rms(h, input_layernorm)                 // every norm centred: x̂ · (1 + w)
//!   q,k  = rms(x·Wq, q_norm), rms(x·Wk, k_norm)    // per head
//!   sliding: rope theta 1e4, keys in (p - window, p];  full: theta 1e6, perhaps linearly scaled
//!   a    = softmax(rope(q)·rope(k)ᵀ · query_pre_attn_scalar^-½)·(x·Wv) · Wo
//!   h   += rms(a, post_attention_layernorm)
//!   x    = rms(h, pre_feedforward_layernorm)
//!   h   += rms(down(gelu_tanh(gate x) · up x), post_feedforward_layernorm)
//! logits = embed · rms(h, norm)
//! ```
//! GGUF files store `1 + w`, may name neither the layer pattern (5:1) nor the local base (10,000), and
//! never the query scalar: it is head_dim, but hidden / heads in the 27B model.

use super::{Checkpoint, Container, Dims, qk_norm, scaling};
use crate::{Activation, Layer, Mixer, ModelError, ModelSpec, Pairing, Rope, RopeScaling, Sublayer};

const PATTERN: usize = 6;
const LOCAL_THETA: f32 = 10_000.0;
const LAYERS_27B: usize = 62;

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let c = &checkpoint.config;
    let d = checkpoint.dims()?;
    checkpoint.expect_activation("hidden_activation", &["gelu_pytorch_tanh"])?;
    c.flag("attention_bias")?; // the tensors themselves decide
    let window = c.size("sliding_window")?;
    let sliding = sliding_layers(checkpoint, &d)?;
    let (local, global) = ropes(checkpoint, &d)?;
    let scalar = match c.opt_positive("query_pre_attn_scalar")? {
        Some(scalar) => scalar,
        None if checkpoint.container == Container::Gguf && d.layers == LAYERS_27B => d.hidden as f32 / d.q_heads as f32,
        None => d.head_dim as f32,
    };
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let attn = format!("{at}.self_attn");
        let norm = |name: &str, width| checkpoint.centred_norm(&format!("{at}.{name}"), width, d.eps);
        let rope = if sliding[i] { &local } else { &global };
        let mut attention = checkpoint.attention(&attn, &d, rope.clone())?;
        attention.window = sliding[i].then_some(window);
        attention.scale = scalar.powf(-0.5);
        attention.qk_norm = qk_norm(norm("self_attn.q_norm", d.head_dim)?, norm("self_attn.k_norm", d.head_dim)?);
        Ok(Layer {
            mixer: Sublayer {
                entry: norm("input_layernorm", d.hidden)?,
                op: Mixer::Attention(attention),
                post: Some(norm("post_attention_layernorm", d.hidden)?),
            },
            ffn: Sublayer {
                entry: norm("pre_feedforward_layernorm", d.hidden)?,
                op: checkpoint.gated(&format!("{at}.mlp"), &d, Activation::GeluTanh)?,
                post: Some(norm("post_feedforward_layernorm", d.hidden)?),
            },
        })
    });
    Ok(ModelSpec {
        family: "gemma3",
        vocab: d.vocab,
        hidden: d.hidden,
        context: d.context,
        embed: checkpoint.embed(&d, (d.hidden as f32).sqrt())?,
        layers: layers.collect::<Result<_, _>>()?,
        exit: checkpoint.centred_norm("model.norm", d.hidden, d.eps)?,
        head: checkpoint.head(&d, true)?,
        notes: Vec::new(),
    })
}

/// Which layers slide: `layer_types`, or every layer but each `sliding_window_pattern`-th.
fn sliding_layers(checkpoint: &Checkpoint, d: &Dims) -> Result<Vec<bool>, ModelError> {
    let c = &checkpoint.config;
    if let Some(sliding) = checkpoint.sliding(d)? {
        return Ok(sliding);
    }
    let flags = c.get("sliding_window_pattern").and_then(|v| v.as_array());
    if let Some(flags) = flags {
        let flags: Option<Vec<bool>> = flags.iter().map(|v| v.as_bool()).collect();
        return flags.filter(|f| f.len() == d.layers).ok_or_else(|| {
            c.bad("sliding_window_pattern", &format!("{} booleans, one a layer", d.layers), &"another array".into())
        });
    }
    let pattern = c.opt_size("sliding_window_pattern")?.unwrap_or(PATTERN);
    Ok((0..d.layers).map(|i| (i + 1) % pattern != 0).collect())
}

/// The ropes of sliding and of full layers.
fn ropes(checkpoint: &Checkpoint, d: &Dims) -> Result<(Rope, Rope), ModelError> {
    let c = &checkpoint.config;
    let plain = |theta| Rope { theta, rotary_dim: d.head_dim, pairing: Pairing::Half, scaling: RopeScaling::None };
    if let Some(parameters) = c.section("rope_parameters")? {
        let read = |key| -> Result<Rope, ModelError> {
            let part = parameters.section(key)?.ok_or_else(|| parameters.missing(key))?;
            Ok(Rope { scaling: scaling(&part)?, ..plain(part.positive("rope_theta")?) })
        };
        return Ok((read("sliding_attention")?, read("full_attention")?));
    }
    let local = plain(c.opt_positive("rope_local_base_freq")?.unwrap_or(LOCAL_THETA));
    Ok((local, checkpoint.rope(d, 1_000_000.0)?))
}
