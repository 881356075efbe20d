//! Gemma 4, steered.

#[macro_use]
mod steered;

steered!["gemma4_moe", "gemma4_e"];
