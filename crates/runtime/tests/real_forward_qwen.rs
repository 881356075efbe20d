//! Qwen3.5 and 3.6 as mixture of experts, with a gated shared expert.

#[macro_use]
mod families;

family!["qwen3_5_moe"];
