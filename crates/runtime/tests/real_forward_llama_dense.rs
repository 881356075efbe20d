//! Llama, with every rope scaling and a tied head, and Mistral.

#[macro_use]
mod families;

family!["llama", "llama_rope3", "llama_tied", "mistral"];
