//! Llama, Mistral and dense Qwen in chunks.

#[macro_use]
mod families;

chunked!["llama", "llama_rope3", "mistral", "qwen2", "qwen3"];
