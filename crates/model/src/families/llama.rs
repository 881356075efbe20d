//! Llama 2/3, SmolLM2, TinyLlama; Mistral is the same with a window on every layer.
//!
//! ```text
//! h      = embed[id]
//! per layer:
//!   x    = rms(h, input_layernorm)
//!   q,k,v = x·Wq, x·Wk, x·Wv                       // optional biases
//!   h   += softmax(rope(q)·rope(k)ᵀ / √head_dim)·v · Wo
//!   x    = rms(h, post_attention_layernorm)
//!   h   += down(silu(gate x) · up x)
//! logits = head(rms(h, norm))                      // head = embed when tied
//! ```
//! GGUF files of architecture `llama` hold q and k rows permuted for interleaved pairs, and the Llama 3.1
//! frequency divisors as `rope_freqs.weight`. They cannot express Mistral's window.

use super::{Checkpoint, Container};
use crate::{Activation, Layer, Mixer, ModelError, ModelSpec, Pairing, RopeScaling, Sublayer};

const ROPE_FREQS: &str = "rope_freqs.weight";

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let c = &checkpoint.config;
    let d = checkpoint.dims()?;
    checkpoint.expect_activation("hidden_act", &["silu"])?;
    for biases in ["attention_bias", "mlp_bias"] {
        c.flag(biases)?; // the tensors themselves decide
    }
    let mut rope = checkpoint.rope(&d, 10_000.0)?;
    let mut notes = Vec::new();
    let used = c.flag("use_sliding_window")?.unwrap_or(true);
    let window = c.opt_size("sliding_window")?.filter(|_| used);
    if checkpoint.container == Container::Gguf {
        rope.pairing = Pairing::Interleaved;
        if checkpoint.index.contains(ROPE_FREQS) {
            rope.scaling = RopeScaling::Divisors(checkpoint.shaped(ROPE_FREQS, &[rope.rotary_dim / 2])?);
        }
        let named = |key| c.text(key).map(|name| name.is_some_and(|n| n.to_lowercase().contains("mistral")));
        if window.is_none() && (named("general.name")? | named("general.basename")?) {
            notes.push(
                "this GGUF names no sliding window, which some Mistral models were trained with: \
                 every layer attends to the whole context"
                    .to_owned(),
            );
        }
    }
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let mut attention = checkpoint.attention(&format!("{at}.self_attn"), &d, rope.clone())?;
        attention.window = window;
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
        family: "llama",
        vocab: d.vocab,
        hidden: d.hidden,
        context: d.context,
        embed: checkpoint.embed(&d, 1.0)?,
        layers: layers.collect::<Result<_, _>>()?,
        exit: checkpoint.norm("model.norm", d.hidden, d.eps)?,
        head: checkpoint.head(&d, false)?,
        notes,
    })
}
