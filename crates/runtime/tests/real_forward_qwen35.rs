//! Qwen3.5, dense: gated delta net and attention with packed gates.

#[macro_use]
mod families;

family!["qwen3_5"];
