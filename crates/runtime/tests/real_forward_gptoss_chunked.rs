//! gpt-oss in chunks.

#[macro_use]
mod families;

chunked!["gpt_oss", "gpt_oss_lim7"];
