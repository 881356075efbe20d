//! The synthetic family: a tiny llama-like stack under short tensor names, for tests without a checkpoint.
//!
//! ```text
//! h      = embed[id]
//! per layer i:
//!   x    = rms(h, layer{i}.norm1)
//!   k    = x·layer{i}.k_proj;  v = k               // values are the raw keys
//!   h   += softmax(rope(x·q_proj)·rope(k)ᵀ / √head_dim)·v · o_proj
//!   h   += down(silu(gate x) · up x),  x = rms(h, layer{i}.norm2)
//! logits = embed · rms(h, norm)
//! ```

use super::Checkpoint;
use crate::{Activation, Attention, Embed, Ffn, Gated, Head, Layer, Mixer, ModelError, ModelSpec, Qkv, Sublayer};

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let d = checkpoint.dims()?;
    let rope = checkpoint.rope(&d, 10_000.0)?;
    let (q_width, kv_width) = (d.q_heads * d.head_dim, d.kv_heads * d.head_dim);
    let layers = (0..d.layers).map(|i| {
        let linear = |name: &str, outputs, inputs| checkpoint.linear(&format!("layer{i}.{name}"), outputs, inputs);
        let norm = |name: &str| checkpoint.norm(&format!("layer{i}.{name}"), d.hidden, d.eps);
        Ok(Layer {
            mixer: Sublayer {
                entry: norm("norm1")?,
                op: Mixer::Attention(Attention {
                    q_heads: d.q_heads,
                    kv_heads: d.kv_heads,
                    head_dim: d.head_dim,
                    qkv: Qkv::Split {
                        q: linear("q_proj", q_width, d.hidden)?,
                        k: linear("k_proj", kv_width, d.hidden)?,
                        v: None,
                    },
                    out: linear("o_proj", d.hidden, q_width)?,
                    qk_norm: None,
                    rope: Some(rope.clone()),
                    window: None,
                    scale: (d.head_dim as f32).powf(-0.5),
                }),
                post: None,
            },
            ffn: Sublayer {
                entry: norm("norm2")?,
                op: Ffn::Gated(Gated {
                    gate: linear("gate_proj", d.inner, d.hidden)?,
                    up: linear("up_proj", d.inner, d.hidden)?,
                    down: linear("down_proj", d.hidden, d.inner)?,
                    activation: Activation::Silu,
                }),
                post: None,
            },
        })
    });
    Ok(ModelSpec {
        family: "synthetic",
        vocab: d.vocab,
        hidden: d.hidden,
        context: d.context,
        embed: Embed { table: checkpoint.shaped("embed.weight", &[d.vocab, d.hidden])?, scale: 1.0 },
        layers: layers.collect::<Result<_, _>>()?,
        exit: checkpoint.norm("norm", d.hidden, d.eps)?,
        head: Head { linear: checkpoint.linear("embed", d.vocab, d.hidden)?, tied: true },
        notes: Vec::new(),
    })
}
