//! Qwen 3.5, 3.6 and 3.8-27B: three layers of gated delta rule to one of gated attention, dense or with experts.
//!
//! ```text
//! h      = embed[id]                                            // every norm centred, x̂ · (1 + w), but the delta rule's
//! per layer:
//!   x    = rms(h, input_layernorm)
//!   full_attention:
//!     q,g  = x·Wq, packed head by head;  k,v = x·Wk, x·Wv
//!     q,k  = rms(q, q_norm), rms(k, k_norm)                     // per head
//!     h   += (softmax(rope(q)·rope(k)ᵀ / √head_dim)·v · sigmoid(g)) · Wo      // rope on the leading quarter
//!   linear_attention:
//!     q,k,v = silu(conv(x·Wqkv));  q,k to unit length, q / √k_dim
//!     S    = exp(-exp(A_log) · softplus(x·Wa + dt_bias)) · S
//!     S   += k ⊗ sigmoid(x·Wb) (v - Sᵀk);  o = Sᵀq
//!     h   += (rms(o, norm) · silu(x·Wz)) · Wout
//!   x    = rms(h, post_attention_layernorm)
//!   h   += down(silu(gate x) · up x)
//!   h   += Σ_e p_e · expert_e x + sigmoid(shared_gate x) · shared x   // MoE: p = softmax(router x), top k, renormalised
//! logits = head(rms(h, norm))
//! ```
//! GGUF files store `1 + w` and `-exp(A_log)`, and value heads in tiled order. A multi-token prediction block at the
//! end, and the tower of a multimodal checkpoint, are no part of this model.

use super::experts::{BankDims, PROJECTIONS};
use super::parts::{Dims, head_norms};
use super::{Checkpoint, delta};
use crate::{Activation, Attention, Ffn, Gate, Layer, Linear, Mixer, ModelError, ModelSpec, Moe, Qkv, Rope, Shared};

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let c = &checkpoint.config;
    let mut d = checkpoint.dims()?;
    checkpoint.expect_activation("hidden_act", &["silu"])?;
    c.flag("attention_bias")?; // the tensors themselves decide
    c.only("attn_output_gate", true)?;
    for drafter in ["mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"] {
        c.get(drafter);
    }
    d.layers -= c.opt_size("nextn_predict_layers")?.unwrap_or(0).min(d.layers - 1);
    let rope = rope(checkpoint, &d)?;
    let linear = delta::linear_layers(checkpoint, d.layers)?;
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let norm = |name| checkpoint.centred_norm(&format!("{at}.{name}"), d.hidden, d.eps);
        let mixer = if linear[i] {
            Mixer::DeltaNet(Box::new(delta::delta_net(checkpoint, &format!("{at}.linear_attn"), &d)?))
        } else {
            Mixer::Attention(Box::new(attention(checkpoint, &format!("{at}.self_attn"), &d, rope.clone())?))
        };
        let ffn = match checkpoint.expert_counts()? {
            Some(counts) => moe(checkpoint, &format!("{at}.mlp"), &d, counts)?,
            None => checkpoint.mlp(&format!("{at}.mlp"), &d, Activation::Silu)?,
        };
        Ok(Layer::pre_norm((norm("input_layernorm")?, mixer), (norm("post_attention_layernorm")?, ffn)))
    });
    let layers = layers.collect::<Result<_, _>>()?;
    let exit = checkpoint.centred_norm("model.norm", d.hidden, d.eps)?;
    Ok(ModelSpec { exit: crate::Exit::Norm(exit), ..checkpoint.model(&d, layers)? })
}

/// The rope, which for text turns by one position on all its axes.
pub(super) fn rope(checkpoint: &Checkpoint, d: &Dims) -> Result<Rope, ModelError> {
    let c = &checkpoint.config;
    if let Some(parameters) = c.section("rope_parameters")? {
        for axes in ["mrope_section", "mrope_interleaved"] {
            parameters.get(axes);
        }
    }
    c.get("mrope_section");
    checkpoint.rope(d, 10_000_000.0)
}

pub(super) fn attention(checkpoint: &Checkpoint, at: &str, d: &Dims, rope: Rope) -> Result<Attention, ModelError> {
    let (width, kv_width) = (d.q_heads * d.head_dim, d.kv_heads * d.head_dim);
    let packed = checkpoint.linear(&format!("{at}.q_proj"), 2 * width, d.hidden)?;
    let half = |first| Linear {
        weight: packed.weight.clone().rows(first, d.head_dim, 2 * d.head_dim),
        bias: packed.bias.clone().map(|b| b.column().rows(first, d.head_dim, 2 * d.head_dim)),
        inputs: d.hidden,
        outputs: width,
    };
    let qkv = Qkv::Split {
        q: half(0),
        k: checkpoint.linear(&format!("{at}.k_proj"), kv_width, d.hidden)?,
        v: Some(checkpoint.linear(&format!("{at}.v_proj"), kv_width, d.hidden)?),
    };
    let norm = |name: &str| checkpoint.centred_norm(&format!("{at}.{name}"), d.head_dim, d.eps);
    let out = checkpoint.linear(&format!("{at}.o_proj"), d.hidden, width)?;
    Ok(Attention {
        qk_norm: head_norms(norm("q_norm")?, norm("k_norm")?),
        gate: Gate::Full(half(d.head_dim)),
        ..d.attention(qkv, out, rope)
    })
}

pub(super) fn moe(
    checkpoint: &Checkpoint,
    at: &str,
    d: &Dims,
    (experts, top_k): (usize, usize),
) -> Result<Ffn, ModelError> {
    let c = &checkpoint.config;
    let shape = BankDims { experts, inner: c.size("moe_intermediate_size")?, hidden: d.hidden };
    let shared = Shared {
        ffn: checkpoint.gated(
            &format!("{at}.shared_expert"),
            d,
            c.size("shared_expert_intermediate_size")?,
            Activation::Silu,
        )?,
        gate: Some(shared_gate(checkpoint, at, d)?),
    };
    Ok(Ffn::Moe(Box::new(Moe {
        router: checkpoint.router(&format!("{at}.gate"), d, experts, top_k)?,
        bank: checkpoint.bank(&format!("{at}.experts"), PROJECTIONS, shape, Activation::Silu)?,
        shared: Some(shared),
    })))
}

/// One row, which GGUF files store as a vector.
fn shared_gate(checkpoint: &Checkpoint, at: &str, d: &Dims) -> Result<Linear, ModelError> {
    let name = format!("{at}.shared_expert_gate.weight");
    let vector = checkpoint.index.shape(&name).is_some_and(|shape| shape.len() == 1);
    let shape = if vector { vec![d.hidden] } else { vec![1, d.hidden] };
    let weight = checkpoint.shaped(&name, &shape)?;
    Ok(Linear { weight, bias: None, inputs: d.hidden, outputs: 1 })
}
