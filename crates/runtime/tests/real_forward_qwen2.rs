//! Qwen2: biased projections.

#[macro_use]
mod families;

family!["qwen2"];
