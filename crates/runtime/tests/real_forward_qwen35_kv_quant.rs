//! Qwen 2, 3 and 3.5 with every type of cached keys and values.

#[macro_use]
mod families;

kv_quant!["qwen2", "qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_moe"];
