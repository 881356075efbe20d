//! Llama, Mistral and dense Qwen in chunks.

#[macro_use]
mod families;

chunked!["llama", "llama_rope3", "llama_tied", "mistral", "qwen2", "qwen3", "olmo2"];
