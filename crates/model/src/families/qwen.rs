//! Qwen2/2.5 and Qwen3, dense.
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
//! logits = head(rms(h, norm))
//! ```

use super::{Checkpoint, Dims, qk_norm};
use crate::{Activation, Layer, Mixer, ModelError, ModelSpec, Sublayer};

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let d = checkpoint.dims()?;
    checkpoint.expect_activation("hidden_act", &["silu"])?;
    checkpoint.config.flag("attention_bias")?; // the tensors themselves decide
    let rope = checkpoint.rope(&d, 1_000_000.0)?;
    let windows = windows(checkpoint, &d)?;
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let attn = format!("{at}.self_attn");
        let mut attention = checkpoint.attention(&attn, &d, rope.clone())?;
        attention.window = windows[i];
        if checkpoint.index.contains(&format!("{attn}.q_norm.weight")) {
            attention.qk_norm = qk_norm(
                checkpoint.norm(&format!("{attn}.q_norm"), d.head_dim, d.eps)?,
                checkpoint.norm(&format!("{attn}.k_norm"), d.head_dim, d.eps)?,
            );
        } else if checkpoint.architecture.to_lowercase().starts_with("qwen3") {
            checkpoint.tensor(&format!("{attn}.q_norm.weight"))?;
        }
        Ok(Layer {
            mixer: Sublayer {
                entry: checkpoint.norm(&format!("{at}.input_layernorm"), d.hidden, d.eps)?,
                op: Mixer::Attention(attention),
                post: None,
            },
            ffn: Sublayer {
                entry: checkpoint.norm(&format!("{at}.post_attention_layernorm"), d.hidden, d.eps)?,
                op: checkpoint.gated(&format!("{at}.mlp"), &d, Activation::Silu)?,
                post: None,
            },
        })
    });
    Ok(ModelSpec {
        family: "qwen",
        vocab: d.vocab,
        hidden: d.hidden,
        context: d.context,
        embed: checkpoint.embed(&d, 1.0)?,
        layers: layers.collect::<Result<_, _>>()?,
        exit: checkpoint.norm("model.norm", d.hidden, d.eps)?,
        head: checkpoint.head(&d, false)?,
        notes: Vec::new(),
    })
}

/// The window of each layer: only where `use_sliding_window` is set, then by `layer_types`, else from
/// `max_window_layers` on.
fn windows(checkpoint: &Checkpoint, d: &Dims) -> Result<Vec<Option<usize>>, ModelError> {
    let c = &checkpoint.config;
    let (used, window) = (c.flag("use_sliding_window")?.unwrap_or(false), c.opt_size("sliding_window")?);
    let sliding = checkpoint.sliding(d)?;
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
