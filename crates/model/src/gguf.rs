//! GGUF metadata as a Hugging Face config: one table of keys, so that a family reads one spelling.
//!
//! Keys of the architecture that the table does not know keep their GGUF name; the unread-key check of
//! [`Config`] then refuses them by that name.

use crate::{Config, ModelError, WeightIndex};
use serde_json::{Map, Number, Value as Json};
use weights::gguf::{Array, Metadata, Value};

/// GGUF key without its architecture prefix → Hugging Face key.
const KEYS: &[(&str, &str)] = &[
    ("block_count", "num_hidden_layers"),
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("embedding_length_per_layer_input", "hidden_size_per_layer_input"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.value_length", "value_head_dim"),
    ("attention.key_length_swa", "swa_head_dim"),
    ("attention.value_length_swa", "swa_value_head_dim"),
    ("attention.key_length_mla", "qk_head_dim"),
    ("attention.value_length_mla", "v_head_dim"),
    ("attention.q_lora_rank", "q_lora_rank"),
    ("attention.kv_lora_rank", "kv_lora_rank"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.sliding_window", "sliding_window"),
    ("attention.sliding_window_pattern", "sliding_window_pattern"),
    ("attention.shared_kv_layers", "num_kv_shared_layers"),
    ("attention.recurrent_layers", "recurrent_layers"),
    ("attention.compress_ratios", "compress_ratios"),
    ("attention.indexer.head_count", "index_n_heads"),
    ("attention.indexer.key_length", "index_head_dim"),
    ("attention.indexer.top_k", "index_top_k"),
    ("attention.indexer.block_size", "index_block_size"),
    ("attention.indexer.local_blocks", "index_local_blocks"),
    ("expert_count", "num_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ("expert_shared_count", "n_shared_experts"),
    ("expert_group_count", "n_group"),
    ("expert_group_used_count", "topk_group"),
    ("expert_weights_scale", "routed_scaling_factor"),
    ("expert_weights_norm", "norm_topk_prob"),
    ("leading_dense_block_count", "first_k_dense_replace"),
    ("logit_scale", "output_multiplier"),
    ("rope.dimension_count", "rotary_dim"),
    ("rope.dimension_count_swa", "swa_rotary_dim"),
    ("rope.dimension_sections", "mrope_section"),
    ("rope.freq_base", "rope_theta"),
    ("rope.freq_base_swa", "rope_local_base_freq"),
    ("ssm.conv_kernel", "linear_conv_kernel_dim"),
    ("ssm.state_size", "linear_key_head_dim"),
    ("ssm.group_count", "linear_num_key_heads"),
    ("ssm.time_step_rank", "linear_num_value_heads"),
    ("ssm.inner_size", "linear_inner_size"),
    ("hyper_connection.count", "hc_count"),
    ("hyper_connection.low_rank", "hc_lowrank"),
];

/// Keys of the `rope.scaling` group → keys of Hugging Face's `rope_scaling` object.
const SCALING_KEYS: &[(&str, &str)] = &[
    ("rope.scaling.type", "rope_type"),
    ("rope.scaling.factor", "factor"),
    ("rope.scaling.original_context_length", "original_max_position_embeddings"),
    ("rope.scaling.yarn_beta_fast", "beta_fast"),
    ("rope.scaling.yarn_beta_slow", "beta_slow"),
    ("rope.scaling.yarn_log_multiplier", "yarn_log_multiplier"),
    ("rope.scaling.finetuned", "finetuned"),
];

/// The config of a GGUF file whose tensors are indexed under canonical names, with its architecture.
pub(crate) fn config(metadata: &Metadata, index: &WeightIndex) -> Result<(String, Config), ModelError> {
    let arch = metadata.str("general.architecture").ok_or(ModelError::NoArchitecture)?.to_owned();
    let prefix = format!("{arch}.");
    let mut map = Map::new();
    let mut scaling = Map::new();
    for (key, value) in metadata.iter() {
        let Some(key) = key.strip_prefix(&prefix) else {
            continue;
        };
        if let Some((_, hf)) = SCALING_KEYS.iter().find(|(gguf, _)| gguf == &key) {
            scaling.insert((*hf).to_owned(), json(value));
        } else {
            let hf = KEYS.iter().find(|(gguf, _)| gguf == &key).map_or(key, |(_, hf)| hf);
            map.insert(hf.to_owned(), json(value));
        }
    }
    if !scaling.is_empty() {
        map.insert("rope_scaling".to_owned(), Json::Object(scaling));
    }
    // The table's rows are what the file can really embed; `vocab_size` is optional and may disagree.
    if let Some([rows, _]) = index.shape("model.embed_tokens.weight") {
        map.insert("vocab_size".to_owned(), Json::from(*rows));
    }
    map.insert("tie_word_embeddings".to_owned(), Json::Bool(!index.contains("lm_head.weight")));
    for key in ["general.name", "general.basename"] {
        if let Some(name) = metadata.str(key) {
            map.insert(key.to_owned(), Json::from(name));
        }
    }
    Ok((arch, Config::from_map(map)))
}

fn json(value: &Value) -> Json {
    match value {
        Value::U8(x) => Json::from(*x),
        Value::I8(x) => Json::from(*x),
        Value::U16(x) => Json::from(*x),
        Value::I16(x) => Json::from(*x),
        Value::U32(x) => Json::from(*x),
        Value::I32(x) => Json::from(*x),
        Value::U64(x) => Json::from(*x),
        Value::I64(x) => Json::from(*x),
        Value::F32(x) => float(*x as f64),
        Value::F64(x) => float(*x),
        Value::Bool(x) => Json::Bool(*x),
        Value::String(x) => Json::from(x.to_string()),
        Value::Array(array) => list(array),
    }
}

fn float(x: f64) -> Json {
    Number::from_f64(x).map_or(Json::Null, Json::Number)
}

fn list(array: &Array) -> Json {
    match array {
        Array::Bool(v) => v.iter().copied().map(Json::from).collect(),
        Array::I32(v) => v.iter().copied().map(Json::from).collect(),
        Array::U32(v) => v.iter().copied().map(Json::from).collect(),
        Array::U64(v) => v.iter().copied().map(Json::from).collect(),
        Array::F32(v) => v.iter().map(|x| float(*x as f64)).collect(),
        other => Json::from(format!("an array of {} values", other.len())),
    }
}
