//! gpt-oss 20B and 120B.
//!
//! ```text
//! h      = embed[id]
//! per layer, sliding and full in turn:
//!   x    = rms(h, input_layernorm)
//!   q,k,v = x·Wq + bq, x·Wk + bk, x·Wv + bv
//!   rope: YaRN, cosines and sines times 0.1 ln(factor) + 1, the ramp's ends not rounded
//!   p    = softmax([rope(q)·rope(k)ᵀ / √head_dim | sink])      // one sink logit a head, without a value
//!   h   += (p v)·Wo + bo
//!   x    = rms(h, post_attention_layernorm)
//!   e    = top k of router x + b;  w = softmax(e)
//!   h   += Σ_e w_e · (down_e((up + 1) · g · sigmoid(alpha g)) + b_e)
//!          g = min(gate, limit), up = clamp(up, ±limit), rows of gate and up alternate
//! logits = head(rms(h, norm))
//! ```
//! BF16 checkpoints hold the experts transposed, `[E, in, out]`; the released ones hold MXFP4 blocks and scales.
//! GGUF files hold gate and up apart; they name no layer pattern, no `limit` (7), no `alpha` (1.702) and say nothing
//! of the ramp, whose ends llama.cpp rounds: the publisher's code is followed.

use super::Checkpoint;
use super::experts::{BankDims, PROJECTIONS};
use super::parts::Dims;
use crate::{Activation, Bank, Ffn, Layer, Mixer, ModelError, ModelSpec, Moe, RopeScaling, Score, Source};

const PERIOD: usize = 2;
const LIMIT: f32 = 7.0;
const ALPHA: f32 = 1.702;

pub(super) fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let c = &checkpoint.config;
    let d = checkpoint.dims()?;
    checkpoint.expect_activation("hidden_act", &["silu"])?;
    c.flag("attention_bias")?; // the tensors themselves decide
    let mut rope = checkpoint.rope(&d, 150_000.0)?;
    if let (true, RopeScaling::Yarn { truncate, .. }) = (checkpoint.is_gguf(), &mut rope.scaling) {
        *truncate = false;
    }
    let window = c.size("sliding_window")?;
    let sliding = checkpoint.sliding_layers(d.layers, PERIOD)?;
    let (experts, top_k) = checkpoint.expert_counts()?.ok_or_else(|| c.missing("num_local_experts"))?;
    c.only("experts_per_token", top_k)?;
    if let RopeScaling::Yarn { original_context, .. } = rope.scaling {
        c.only("initial_context_length", original_context as usize)?;
    }
    if let Some(quantisation) = c.section("quantization_config")? {
        quantisation.only("quant_method", "mxfp4")?;
        quantisation.get("modules_to_not_convert"); // their tensors say so themselves
    }
    let layers = (0..d.layers).map(|i| {
        let at = format!("model.layers.{i}");
        let norm = |name| checkpoint.norm(&format!("{at}.{name}"), d.hidden, d.eps);
        let mut attention = checkpoint.attention(&format!("{at}.self_attn"), &d, rope.clone())?;
        checkpoint.biases(&format!("{at}.self_attn"), &["q_proj", "k_proj", "v_proj", "o_proj"])?;
        attention.window = sliding[i].then_some(window);
        attention.sinks = Some(checkpoint.shaped(&format!("{at}.self_attn.sinks"), &[d.q_heads])?);
        let stem = if checkpoint.is_gguf() { "gate" } else { "router" };
        let mut router = checkpoint.router(&format!("{at}.mlp.{stem}"), &d, experts, top_k)?;
        checkpoint.biases(&format!("{at}.mlp"), &[stem])?;
        router.routing.score = Score::SoftmaxOfChosen;
        router.routing.renormalise = false;
        let bank = bank(checkpoint, &format!("{at}.mlp.experts"), &d, experts)?;
        let ffn = Ffn::Moe(Box::new(Moe { router, bank, shared: None }));
        let mixer = Mixer::Attention(Box::new(attention));
        Ok(Layer::pre_norm((norm("input_layernorm")?, mixer), (norm("post_attention_layernorm")?, ffn)))
    });
    let layers = layers.collect::<Result<_, _>>()?;
    checkpoint.model(&d, layers)
}

fn bank(checkpoint: &Checkpoint, at: &str, d: &Dims, experts: usize) -> Result<Bank, ModelError> {
    let c = &checkpoint.config;
    let activation = Activation::Clamped {
        limit: c.opt_number("swiglu_limit")?.unwrap_or(LIMIT),
        alpha: c.opt_number("swiglu_alpha")?.unwrap_or(ALPHA),
    };
    if checkpoint.is_gguf() {
        c.opt_size("intermediate_size")?; // repeats the experts' width
        let shape = BankDims { experts, inner: c.size("moe_intermediate_size")?, hidden: d.hidden };
        let bias = |name: &str, width| checkpoint.shaped(&format!("{at}.{name}.bias"), &[experts, width]);
        let [gate, up, down] = PROJECTIONS;
        let biases = [bias(gate, shape.inner)?, bias(up, shape.inner)?, bias(down, shape.hidden)?];
        return Ok(Bank { biases: Some(biases), ..checkpoint.bank(at, PROJECTIONS, shape, activation)? });
    }
    let inner = c.size("intermediate_size")?;
    let matrices = |name: &str, outputs, inputs| {
        let (blocks, scales) = (format!("{at}.{name}_blocks"), format!("{at}.{name}_scales"));
        if checkpoint.index.contains(&blocks) || checkpoint.index.contains(&scales) {
            checkpoint.shaped(&blocks, &[experts, outputs, inputs / 32, 16])?;
            checkpoint.shaped(&scales, &[experts, outputs, inputs / 32])?;
            return Ok(Source::Mxfp4 { blocks, scales });
        }
        let transposed = checkpoint.shaped(&format!("{at}.{name}"), &[experts, inputs, outputs])?;
        Ok(transposed.transpose(experts))
    };
    let both = matrices("gate_up_proj", 2 * inner, d.hidden)?;
    let both_bias = checkpoint.shaped(&format!("{at}.gate_up_proj_bias"), &[experts, 2 * inner])?.column();
    let down_bias = checkpoint.shaped(&format!("{at}.down_proj_bias"), &[experts, d.hidden])?;
    Ok(Bank {
        experts,
        inner,
        gate: both.clone().rows(0, 1, 2),
        up: both.rows(1, 1, 2),
        down: matrices("down_proj", d.hidden, inner)?,
        biases: Some([both_bias.clone().rows(0, 1, 2), both_bias.rows(1, 1, 2), down_bias]),
        activation,
    })
}
