//! Gemma 3 and 4 with every type of cached keys and values.

#[macro_use]
mod families;

kv_quant!["gemma3", "gemma4_dense", "gemma4_moe", "gemma4_e"];
