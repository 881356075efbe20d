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
use crate::{Activation, Embed, Exit, Ffn, Gated, Head, Layer, Mixer, ModelError, ModelSpec, Qkv};

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let d = checkpoint.dims()?;
    let rope = checkpoint.rope(&d, 10_000.0)?;
    let inner = checkpoint.config.size("intermediate_size")?;
    let (q_width, kv_width) = (d.q_heads * d.head_dim, d.kv_heads * d.head_dim);
    let layers = (0..d.layers).map(|i| {
        let linear = |name: &str, outputs, inputs| checkpoint.linear(&format!("layer{i}.{name}"), outputs, inputs);
        let norm = |name: &str| checkpoint.norm(&format!("layer{i}.{name}"), d.hidden, d.eps);
        let qkv =
            Qkv::Split { q: linear("q_proj", q_width, d.hidden)?, k: linear("k_proj", kv_width, d.hidden)?, v: None };
        let attention = d.attention(qkv, linear("o_proj", d.hidden, q_width)?, rope.clone());
        let gated = Gated {
            gate: linear("gate_proj", inner, d.hidden)?,
            up: linear("up_proj", inner, d.hidden)?,
            down: linear("down_proj", d.hidden, inner)?,
            activation: Activation::Silu,
        };
        let mixer = Mixer::Attention(Box::new(attention));
        Ok(Layer::pre_norm((norm("norm1")?, mixer), (norm("norm2")?, Ffn::Gated(gated))))
    });
    let table = checkpoint.shaped("embed.weight", &[d.vocab, d.hidden])?;
    let linear = checkpoint.linear("embed", d.vocab, d.hidden)?;
    Ok(ModelSpec {
        family: "synthetic",
        vocab: d.vocab,
        hidden: d.hidden,
        context: d.context,
        embed: Embed { table, scale: 1.0, norm: None, streams: 1 },
        per_layer: None,
        layers: layers.collect::<Result<_, _>>()?,
        exit: Exit::Norm(checkpoint.norm("norm", d.hidden, d.eps)?),
        head: Head { linear, tied: true, scale: 1.0, softcap: None },
        notes: Vec::new(),
    })
}
