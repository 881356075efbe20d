//! Qwen4-exp in chunks.

#[macro_use]
mod families;

chunked!["qwen4_exp", "qwen4_exp_ple64"];
