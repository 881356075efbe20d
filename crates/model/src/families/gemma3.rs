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

use super::parts::{head_norms, scaling};
use super::{Checkpoint, Dims};
use crate::{Activation, Exit, Layer, Mixer, ModelError, ModelSpec, Pairing, Rope, RopeScaling, Sublayer};

const PATTERN: usize = 6;
const LOCAL_THETA: f32 = 10_000.0;
const LAYERS_27B: usize = 62;

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let c = &checkpoint.config;
    let d = Dims { tied: true, ..checkpoint.dims()? };
    checkpoint.expect_activation("hidden_activation", &["gelu_pytorch_tanh"])?;
    c.flag("attention_bias")?; // the tensors themselves decide
    let window = c.size("sliding_window")?;
    let sliding = checkpoint.sliding_layers(d.layers, PATTERN)?;
    let (local, global) = ropes(checkpoint, &d)?;
    let scalar = match c.opt_positive("query_pre_attn_scalar")? {
        Some(scalar) => scalar,
        None if checkpoint.is_gguf() && d.layers == LAYERS_27B => d.hidden as f32 / d.q_heads as f32,
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
        attention.qk_norm = head_norms(norm("self_attn.q_norm", d.head_dim)?, norm("self_attn.k_norm", d.head_dim)?);
        let ffn = checkpoint.mlp(&format!("{at}.mlp"), &d, Activation::GeluTanh)?;
        Ok(Layer::new(
            Sublayer::sandwich(
                norm("input_layernorm", d.hidden)?,
                Mixer::Attention(Box::new(attention)),
                norm("post_attention_layernorm", d.hidden)?,
            ),
            Sublayer::sandwich(
                norm("pre_feedforward_layernorm", d.hidden)?,
                ffn,
                norm("post_feedforward_layernorm", d.hidden)?,
            ),
        ))
    });
    let layers = layers.collect::<Result<_, _>>()?;
    Ok(ModelSpec {
        embed: checkpoint.embed(&d, (d.hidden as f32).sqrt())?,
        exit: Exit::Norm(checkpoint.centred_norm("model.norm", d.hidden, d.eps)?),
        ..checkpoint.model(&d, layers)?
    })
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
