//! Llama, Mistral, Mixtral and MiniMax with every type of cached keys and values.

#[macro_use]
mod families;

kv_quant!["llama", "llama_rope3", "llama_tied", "mistral", "mixtral", "minimax_m2", "minimax_m3"];
