//! Llama and Mixtral, steered.

#[macro_use]
mod steered;

steered!["llama", "mixtral"];
