//! Llama 2/3, SmolLM2, TinyLlama; Mistral is the same with a window on every layer, Mixtral with experts.
//!
//! ```text
//! h      = embed[id]
//! per layer:
//!   x    = rms(h, input_layernorm)
//!   q,k,v = x·Wq, x·Wk, x·Wv                       // optional biases
//!   h   += softmax(rope(q)·rope(k)ᵀ / √head_dim)·v · Wo
//!   x    = rms(h, post_attention_layernorm)
//!   h   += down(silu(gate x) · up x)
//!   h   += Σ_e p_e · w2_e(silu(w1_e x) · w3_e x)   // Mixtral: p = softmax(gate x), its top k renormalised
//! logits = head(rms(h, norm))                      // head = embed when tied
//! ```
//! GGUF files of architecture `llama` hold q and k rows permuted for interleaved pairs, and the Llama 3.1
//! frequency divisors as `rope_freqs.weight`. They cannot express Mistral's window.

use super::experts::{BankDims, PROJECTIONS};
use super::{Checkpoint, Dims};
use crate::{Activation, Ffn, Layer, Mixer, ModelError, ModelSpec, Moe, Pairing, RopeScaling};

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
    if checkpoint.is_gguf() {
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
    let experts = checkpoint.expert_counts()?;
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let norm = |name| checkpoint.norm(&format!("{at}.{name}"), d.hidden, d.eps);
        let mut attention = checkpoint.attention(&format!("{at}.self_attn"), &d, rope.clone())?;
        attention.window = window;
        let ffn = match experts {
            Some(counts) => moe(checkpoint, &at, &d, counts)?,
            None => checkpoint.mlp(&format!("{at}.mlp"), &d, Activation::Silu)?,
        };
        let mixer = Mixer::Attention(Box::new(attention));
        Ok(Layer::pre_norm((norm("input_layernorm")?, mixer), (norm("post_attention_layernorm")?, ffn)))
    });
    let layers = layers.collect::<Result<_, _>>()?;
    Ok(ModelSpec { notes, ..checkpoint.model(&d, layers)? })
}

fn moe(checkpoint: &Checkpoint, at: &str, d: &Dims, (experts, top_k): (usize, usize)) -> Result<Ffn, ModelError> {
    let (part, names) =
        if checkpoint.is_gguf() { ("mlp", PROJECTIONS) } else { ("block_sparse_moe", ["w1", "w3", "w2"]) };
    let at = format!("{at}.{part}");
    let shape = BankDims { experts, inner: checkpoint.config.size("intermediate_size")?, hidden: d.hidden };
    Ok(Ffn::Moe(Box::new(Moe {
        router: checkpoint.router(&format!("{at}.gate"), d, experts, top_k)?,
        bank: checkpoint.bank(&format!("{at}.experts"), names, shape, Activation::Silu)?,
        shared: None,
    })))
}
