//! Gemma 4 and 3 in chunks.

#[macro_use]
mod families;

chunked!["gemma4_dense", "gemma4_moe", "gemma4_e", "gemma3"];
