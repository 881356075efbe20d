//! OLMo 2.
//!
//! ```text
//! h      = embed[id]
//! per layer:
//!   q,k  = rms(h·Wq, q_norm), rms(h·Wk, k_norm)    // over the whole projection, all heads together
//!   a    = softmax(rope(q)·rope(k)ᵀ / √head_dim)·(h·Wv) · Wo
//!   h   += rms(a, post_attention_layernorm)        // no norm before a branch
//!   h   += rms(down(silu(gate h) · up h), post_feedforward_layernorm)
//! logits = head(rms(h, norm))                      // head = embed when tied
//! ```
//! GGUF files hold the same values under their own names. With a window and a pattern of layers they are OLMo 3,
//! which is refused by those keys.

use super::Checkpoint;
use crate::{Activation, Layer, Mixer, ModelError, ModelSpec, NormSpan, QkNorm, Sublayer};

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let d = checkpoint.dims()?;
    checkpoint.expect_activation("hidden_act", &["silu"])?;
    checkpoint.config.flag("attention_bias")?; // the tensors themselves decide
    let rope = checkpoint.rope(&d, 10_000.0)?;
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let norm = |name: &str, width| checkpoint.norm(&format!("{at}.{name}"), width, d.eps);
        let mut attention = checkpoint.attention(&format!("{at}.self_attn"), &d, rope.clone())?;
        attention.qk_norm = Some(QkNorm {
            q: norm("self_attn.q_norm", d.q_heads * d.head_dim)?,
            k: norm("self_attn.k_norm", d.kv_heads * d.head_dim)?,
            span: NormSpan::Projection,
        });
        Ok(Layer::new(
            Sublayer::post_norm(Mixer::Attention(Box::new(attention)), norm("post_attention_layernorm", d.hidden)?),
            Sublayer::post_norm(
                checkpoint.mlp(&format!("{at}.mlp"), &d, Activation::Silu)?,
                norm("post_feedforward_layernorm", d.hidden)?,
            ),
        ))
    });
    let layers = layers.collect::<Result<_, _>>()?;
    checkpoint.model(&d, layers)
}
