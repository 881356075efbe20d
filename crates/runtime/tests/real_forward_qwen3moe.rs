//! Qwen3, dense and as mixture of experts.

#[macro_use]
mod families;

family!["qwen3", "qwen3_moe"];
