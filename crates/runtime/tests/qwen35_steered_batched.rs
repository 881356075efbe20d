//! The delta-net hybrids, steered: many rows at once and single ones.

#[macro_use]
mod steered;

steered!["qwen3_5", "qwen3_5_moe"];
