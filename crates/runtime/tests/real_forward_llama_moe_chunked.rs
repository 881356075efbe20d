//! Mixtures of experts in chunks.

#[macro_use]
mod families;

chunked!["mixtral", "qwen3_moe", "minimax_m2", "minimax_m3", "deepseek2"];
