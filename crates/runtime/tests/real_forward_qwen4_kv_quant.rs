//! Qwen 4 and DeepSeek 2, whose caches differ in keys and values with every type of cached keys and values.

#[macro_use]
mod families;

kv_quant!["qwen4_exp", "deepseek2", "deepseek2_lite27"];
