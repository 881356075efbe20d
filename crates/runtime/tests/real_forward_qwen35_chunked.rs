//! The delta-net hybrids in chunks.

#[macro_use]
mod families;

chunked!["qwen3_5", "qwen3_5_moe"];
