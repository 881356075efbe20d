//! A hybrid of Qwen3.5's shape with random weights, for measuring: no real one is small enough for a test machine.

use anyhow::Context;
use serde_json::json;
use std::path::Path;
use testkit::Random;
use weights::safetensors;
use weights::{DType, Tensor};

const VOCAB: usize = 32_768;
const HIDDEN: usize = 768;
const INNER: usize = 2_048;
const LAYERS: usize = 12;
/// Full attention in every fourth layer, as the published models have it.
const PERIOD: usize = 4;
const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 128;
const LINEAR_KEY_HEADS: usize = 6;
const LINEAR_VALUE_HEADS: usize = 12;
const LINEAR_HEAD_DIM: usize = 64;
const TAPS: usize = 4;

/// Writes `FOLDER/config.json` and `FOLDER/model.safetensors`, 0.1 billion weights in BF16.
pub(crate) fn write(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    std::fs::write(folder.join("config.json"), serde_json::to_string_pretty(&config())?)?;
    safetensors::write(&folder.join("model.safetensors"), &tensors(), &Default::default())?;
    println!("{}: a random hybrid of {LAYERS} layers", folder.display());
    Ok(())
}

fn full_attention(layer: usize) -> bool {
    layer % PERIOD == PERIOD - 1
}

fn config() -> serde_json::Value {
    let kind = |layer| if full_attention(layer) { "full_attention" } else { "linear_attention" };
    json!({
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "layer_types": (0..LAYERS).map(kind).collect::<Vec<_>>(),
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "attention_bias": false,
        "linear_conv_kernel_dim": TAPS,
        "linear_num_key_heads": LINEAR_KEY_HEADS,
        "linear_num_value_heads": LINEAR_VALUE_HEADS,
        "linear_key_head_dim": LINEAR_HEAD_DIM,
        "linear_value_head_dim": LINEAR_HEAD_DIM,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 32_768,
        "rope_parameters": { "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25 },
        "tie_word_embeddings": true,
    })
}

fn tensors() -> Vec<Tensor> {
    let mut random = Random::new(3_5);
    let mut tensors = vec![random.matrix("model.embed_tokens.weight", DType::BF16, [VOCAB, HIDDEN])];
    // A norm's weight is stored as its distance from one, but for the gated norm of linear attention.
    let norm = |random: &mut Random, name: String, width, mean| {
        Tensor::from_f32(&name, vec![width], &random.normals(width, mean, 0.05))
    };
    tensors.push(norm(&mut random, "model.norm.weight".to_owned(), HIDDEN, 0.0));
    for layer in 0..LAYERS {
        let name = |part: &str| format!("model.layers.{layer}.{part}");
        for part in ["input_layernorm.weight", "post_attention_layernorm.weight"] {
            tensors.push(norm(&mut random, name(part), HIDDEN, 0.0));
        }
        let mut matrices = vec![
            ("mlp.gate_proj", [INNER, HIDDEN]),
            ("mlp.up_proj", [INNER, HIDDEN]),
            ("mlp.down_proj", [HIDDEN, INNER]),
        ];
        if full_attention(layer) {
            let (queries, keys) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
            matrices.extend([
                // Beside each query stands its gate.
                ("self_attn.q_proj", [2 * queries, HIDDEN]),
                ("self_attn.k_proj", [keys, HIDDEN]),
                ("self_attn.v_proj", [keys, HIDDEN]),
                ("self_attn.o_proj", [HIDDEN, queries]),
            ]);
            for part in ["self_attn.q_norm.weight", "self_attn.k_norm.weight"] {
                tensors.push(norm(&mut random, name(part), HEAD_DIM, 0.0));
            }
        } else {
            let (keys, values) = (LINEAR_KEY_HEADS * LINEAR_HEAD_DIM, LINEAR_VALUE_HEADS * LINEAR_HEAD_DIM);
            let mixed = 2 * keys + values;
            matrices.extend([
                ("linear_attn.in_proj_qkv", [mixed, HIDDEN]),
                ("linear_attn.in_proj_z", [values, HIDDEN]),
                ("linear_attn.in_proj_a", [LINEAR_VALUE_HEADS, HIDDEN]),
                ("linear_attn.in_proj_b", [LINEAR_VALUE_HEADS, HIDDEN]),
                ("linear_attn.out_proj", [HIDDEN, values]),
            ]);
            let convolution = random.normals(mixed * TAPS, 0.0, 0.5);
            tensors.push(Tensor::from_f32(name("linear_attn.conv1d.weight"), vec![mixed, 1, TAPS], &convolution));
            // Decays between 1 and 16, as the published models begin training.
            let decay: Vec<f32> = (0..LINEAR_VALUE_HEADS).map(|_| (1.0 + 15.0 * random.unit()).ln()).collect();
            tensors.push(Tensor::from_f32(name("linear_attn.A_log"), vec![LINEAR_VALUE_HEADS], &decay));
            tensors.push(norm(&mut random, name("linear_attn.dt_bias"), LINEAR_VALUE_HEADS, -4.0));
            tensors.push(norm(&mut random, name("linear_attn.norm.weight"), LINEAR_HEAD_DIM, 1.0));
        }
        for (part, shape) in matrices {
            tensors.push(random.matrix(&name(&format!("{part}.weight")), DType::BF16, shape));
        }
    }
    tensors
}
