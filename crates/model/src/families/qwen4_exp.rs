//! Qwen4-exp (Qwen3.8-Flash-Next): several residual streams, gated delta rule and sparse attention, experts, n-grams.
//!
//! ```text
//! x[c]   = embed[id] for each of C streams                     // every norm centred, x̂ · (1 + w), but the delta rule's
//! HC(x): n = rms of each x[c];  m = mean_c sigmoid(Up silu(Down n / C))[c] · n[c];  inj = 2 sigmoid(Inject n / C)
//! per layer:
//!   some layers: x += v + silu(conv(rms(v))),  v[c] = sigmoid(s(rms(Wk e)[c]·rms(x)[c] / √H)) · Wv e
//!                e: rows of a table by hash of the last 2 and of the last 3 tokens; s(z) = sign(z) √max(|z|, 1e-6)
//!   m,inj = HC(x);  x[c] += inj[c] · mixer(m)                   // mixers of Qwen 3.5; the delta rule's gate is a sigmoid
//!     attention: of the complete blocks of r keys, the best budget / r by Σ_heads relu(rope(rms(qi))·rope(rms(mean ki)))
//!                are read, and what comes after the last complete block
//!   m,inj = HC(x);  x[c] += inj[c] · moe(m)
//! logits = lm_head · HC(x)                                      // without inj
//! ```
//! GGUF files store `1 + w`, value heads in tiled order, and the hash's numbers as metadata, which safetensors
//! checkpoints derive from a seed. llama.cpp reads up to r - 1 keys too many; the publisher's code is followed.

use super::parts::Dims;
use super::{Checkpoint, delta, ngram, qwen3_5};
use crate::{
    Attention, Entry, Exit, HyperMix, IndexScore, Indexer, Layer, Linear, Mixer, ModelError, ModelSpec, Rope, Sublayer,
};

/// The residual streams.
#[derive(Clone, Copy)]
struct Streams {
    count: usize,
    rank: usize,
}

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let c = &checkpoint.config;
    let d = checkpoint.dims()?;
    checkpoint.expect_activation("hidden_act", &["silu"])?;
    checkpoint.expect_activation("output_gate_type", &["sigmoid"])?;
    for (key, only) in [("norm_topk_prob", true), ("attention_bias", false), ("attn_output_gate", true)] {
        c.only(key, only)?;
    }
    for described in ["number_of_conv_states", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"] {
        c.get(described);
    }
    let streams = Streams { count: c.size("hc_count")?, rank: c.size("hc_lowrank")? };
    let rope = qwen3_5::rope(checkpoint, &d)?;
    let linear = delta::linear_layers(checkpoint, d.layers)?;
    let grams = ngram::layers(checkpoint, d.layers)?;
    let counts = checkpoint.expert_counts()?.ok_or_else(|| c.missing("num_experts"))?;
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let mixer = if linear[i] {
            let delta = delta::delta_net(checkpoint, &format!("{at}.linear_attn"), &d)?;
            Mixer::DeltaNet(Box::new(crate::DeltaNet { silu_gate: false, ..delta }))
        } else {
            let attn = format!("{at}.self_attn");
            let attention = qwen3_5::attention(checkpoint, &attn, &d, rope.clone())?;
            let indexer = indexer(checkpoint, &format!("{attn}.indexer"), &d, (i, &rope))?;
            Mixer::Attention(Box::new(Attention { indexer, ..attention }))
        };
        let hyper = |name: &str| hyper(checkpoint, &format!("{at}.{name}"), &d, streams, true);
        let ffn = qwen3_5::moe(checkpoint, &format!("{at}.mlp"), &d, counts)?;
        let mixer = Sublayer { entry: Entry::Hyper(hyper("attn_hyper_connection")?), op: mixer, post: None };
        let ffn = Sublayer { entry: Entry::Hyper(hyper("mlp_hyper_connection")?), op: ffn, post: None };
        let own = grams.iter().position(|layer| *layer == i);
        let ngram = own.map(|n| ngram::ngram(checkpoint, &format!("{at}.ple"), &d, (n, streams.count))).transpose()?;
        Ok(Layer { ngram, ..Layer::new(mixer, ffn) })
    });
    let mut embed = checkpoint.embed(&d, 1.0)?;
    embed.streams = streams.count;
    Ok(ModelSpec {
        family: "qwen4_exp",
        vocab: d.vocab,
        hidden: d.hidden,
        context: d.context,
        embed,
        per_layer: None,
        layers: layers.collect::<Result<_, _>>()?,
        exit: Exit::Hyper(hyper(checkpoint, "model.hyper_connection_mixer", &d, streams, false)?),
        head: checkpoint.head(&d)?,
        notes: Vec::new(),
    })
}

fn hyper(checkpoint: &Checkpoint, at: &str, d: &Dims, s: Streams, returns: bool) -> Result<HyperMix, ModelError> {
    let width = s.count * d.hidden;
    let linear = |name: &str, outputs, inputs| checkpoint.linear(&format!("{at}.{name}"), outputs, inputs);
    Ok(HyperMix {
        streams: s.count,
        norm: checkpoint.centred_norm(&format!("{at}.hc_norm"), width, d.eps)?,
        down: linear("input_mix_weight_down", s.rank, width)?,
        up: linear("input_mix_weight_up", width, s.rank)?,
        inject: returns.then(|| linear("block_inject_weight", s.count, width)).transpose()?,
    })
}

/// The indexer of a layer; a GGUF file switches it off by a ratio of 0.
fn indexer(
    checkpoint: &Checkpoint,
    at: &str,
    d: &Dims,
    (layer, rope): (usize, &Rope),
) -> Result<Option<Indexer>, ModelError> {
    let c = &checkpoint.config;
    let gguf = checkpoint.is_gguf();
    let keys = if gguf {
        ["index_n_heads", "index_head_dim", "index_top_k"]
    } else {
        ["indexer_n_heads", "indexer_head_dim", "indexer_budget"]
    };
    let [heads, head_dim, budget] = keys.map(|key| c.size(key));
    let (heads, head_dim, budget) = (heads?, head_dim?, budget?);
    c.only("indexer_kv_heads", 1)?;
    let block = if gguf {
        let ratios = c.get("compress_ratios").and_then(|v| v.as_array());
        let ratio = ratios.filter(|r| r.len() == d.layers).and_then(|r| r[layer].as_u64());
        ratio.ok_or_else(|| c.missing("attention.compress_ratios"))? as usize
    } else {
        c.size("indexer_compress_ratio")?
    };
    if block == 0 {
        return Ok(None);
    }
    let (width, all) = (heads * head_dim, (heads + 1) * head_dim);
    let (q, k, norms) = if gguf {
        let linear = |name: &str, outputs| checkpoint.linear(&format!("{at}.{name}"), outputs, d.hidden);
        (linear("q_proj", width)?, linear("k_proj", head_dim)?, ["q_norm", "k_norm"])
    } else {
        let both = checkpoint.linear(&format!("{at}.index_qk_proj"), all, d.hidden)?;
        let rows =
            |first, outputs| Linear { weight: both.weight.clone().rows(first, outputs, all), outputs, ..both.clone() };
        (rows(0, width), rows(width, head_dim), ["q_layernorm", "k_layernorm"])
    };
    let norm = |name: &str| checkpoint.centred_norm(&format!("{at}.{name}"), head_dim, d.eps);
    let (q_norm, k_norm) = (norm(norms[0])?, norm(norms[1])?);
    let (rope, count) = (rope.clone(), budget / block);
    Ok(Some(Indexer { q, k, heads, head_dim, q_norm, k_norm, rope, block, count, score: IndexScore::MeanKey }))
}
