//! Gemma 4: mixture of experts and E, and Gemma 3.

#[macro_use]
mod families;

family!["gemma4_moe", "gemma4_e", "gemma3"];
