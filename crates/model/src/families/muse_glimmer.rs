//! Muse Glimmer, text.
//!
//! ```text
//! h      = rms(embed[id])                                       // no weight
//! per layer, every fourth counted from the last one full:
//!   x    = rms(h, input_layernorm)                              // layer norms centred: x̂ · (1 + w)
//!   q,k  = 3.87 rms(x·Wq), rms(x·Wk)                            // per head, no weight
//!   sliding: rope theta 5e5, keys in (p - window, p];  full: no rope
//!   a    = (softmax(q·kᵀ / √head_dim)·v · sigmoid(x·Wg)) · Wo
//!   h   += rms(a, post_attention_layernorm)                     // eps 1e-8
//!   x    = rms(h, pre_feedforward_layernorm)
//!   h   += rms(down(silu(gate x) · up x), post_feedforward_layernorm)    // eps 1e-8
//! logits = cap · tanh(multiplier · lm_head · rms(h, norm) / cap)         // norm plain
//! ```
//! GGUF files store `1 + w`, q and k rows for interleaved pairs, and norms of 3.87 and 1; the second eps is not in them.

use super::Checkpoint;
use super::parts::{Dims, head_norms};
use crate::{Activation, Attention, Gate, Layer, Mixer, ModelError, ModelSpec, Norm, Pairing, Rope, Sublayer};

const PERIOD: usize = 4;
const POST_EPS: f32 = 1e-8;

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let c = &checkpoint.config;
    let d = checkpoint.dims()?;
    checkpoint.expect_activation("hidden_activation", &["silu"])?;
    c.flag("attention_bias")?; // the tensors themselves decide
    let mut rope = checkpoint.rope(&d, 500_000.0)?;
    if checkpoint.is_gguf() {
        rope.pairing = Pairing::Interleaved;
    }
    let window = c.size("sliding_window")?;
    let sliding = sliding_layers(checkpoint, &d, rope.theta)?;
    let post_eps = c.opt_number("post_norm_eps")?.unwrap_or(POST_EPS);
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let norm = |name: &str, eps| checkpoint.centred_norm(&format!("{at}.{name}"), d.hidden, eps);
        let rope = sliding[i].then(|| rope.clone());
        let mut attention = attention(checkpoint, &format!("{at}.self_attn"), &d, rope)?;
        attention.window = sliding[i].then_some(window);
        let mixer = Mixer::Attention(Box::new(attention));
        let ffn = checkpoint.mlp(&format!("{at}.mlp"), &d, Activation::Silu)?;
        Ok(Layer::new(
            Sublayer::sandwich(norm("input_layernorm", d.eps)?, mixer, norm("post_attention_layernorm", post_eps)?),
            Sublayer::sandwich(
                norm("pre_feedforward_layernorm", d.eps)?,
                ffn,
                norm("post_feedforward_layernorm", post_eps)?,
            ),
        ))
    });
    let layers = layers.collect::<Result<_, _>>()?;
    let mut model = checkpoint.model(&d, layers)?;
    model.embed.norm = Some(Norm { weight: None, eps: d.eps });
    model.head.scale = c.opt_number("output_multiplier")?.unwrap_or(1.0);
    model.head.softcap = c.opt_number("final_logit_softcapping")?;
    Ok(model)
}

/// Sliding layers turn, full ones do not; a list of bases a layer says the same with zeros.
fn sliding_layers(checkpoint: &Checkpoint, d: &Dims, theta: f32) -> Result<Vec<bool>, ModelError> {
    let c = &checkpoint.config;
    let mut sliding = checkpoint.sliding_layers(d.layers, PERIOD)?;
    if c.get("layer_types").is_none() && c.get("sliding_window_pattern").is_none() {
        sliding = (0..d.layers).map(|i| !(d.layers - 1 - i).is_multiple_of(PERIOD)).collect();
    }
    if let Some(bases) = c.get("layer_rope_theta") {
        let expected = sliding.iter().map(|turns| if *turns { theta } else { 0.0 });
        let found =
            bases.as_array().map(|a| a.iter().map(|v| v.as_f64().unwrap_or(f64::NAN) as f32).collect::<Vec<_>>());
        if found != Some(expected.collect()) {
            return Err(c.bad("layer_rope_theta", "rope_theta on sliding layers and 0 on full ones", bases));
        }
    }
    Ok(sliding)
}

fn attention(checkpoint: &Checkpoint, at: &str, d: &Dims, rope: Option<Rope>) -> Result<Attention, ModelError> {
    let width = d.q_heads * d.head_dim;
    let plain = Rope { theta: 1.0, rotary_dim: 0, pairing: Pairing::Half, scaling: crate::RopeScaling::None };
    let mut attention = checkpoint.attention(at, d, plain)?;
    attention.rope = rope;
    attention.gate = Gate::Full(checkpoint.linear(&format!("{at}.gate_proj"), width, d.hidden)?);
    if checkpoint.is_gguf() {
        let norm = |name: &str| checkpoint.norm(&format!("{at}.{name}"), d.head_dim, d.eps);
        attention.qk_norm = head_norms(norm("q_norm")?, norm("k_norm")?);
    } else {
        // The factor on q joins the scale of the products.
        attention.scale *= checkpoint.config.number("qk_scale_factor")?;
        let unweighted = Norm { weight: None, eps: d.eps };
        attention.qk_norm = head_norms(unweighted.clone(), unweighted);
    }
    Ok(attention)
}
