//! Qwen4-exp: hyper-connections, indexed attention, n-gram embedding.

#[macro_use]
mod families;

family!["qwen4_exp", "qwen4_exp_ple64"];
