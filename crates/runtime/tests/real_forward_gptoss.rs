//! gpt-oss: sinks, YaRN, biased router, clamped experts.

#[macro_use]
mod families;

family!["gpt_oss", "gpt_oss_lim7"];
