//! Tensor names: the canonical ones are Hugging Face's; this table maps GGUF's to them.

/// GGUF name → canonical name, outside the blocks.
const GLOBAL: &[(&str, &str)] = &[
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("output.weight", "lm_head.weight"),
];

/// GGUF name → canonical name inside block N (`blk.N.` → `model.layers.N.`), without `.weight` or `.bias`.
const BLOCK: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Names whose meaning depends on the architecture: pre-norm families call the second norm of a block
/// `ffn_norm`, sandwich families use that name for the norm before the feed-forward part.
const PRE_NORM: &[(&str, &str)] = &[("ffn_norm", "post_attention_layernorm")];
const SANDWICH: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// The canonical name of a tensor of a GGUF file of architecture `arch`; unknown names stay as they are.
pub fn canonical_of_gguf(arch: &str, name: &str) -> String {
    if let Some((_, canonical)) = GLOBAL.iter().find(|(gguf, _)| *gguf == name) {
        return (*canonical).to_owned();
    }
    let special = if arch == "gemma3" { SANDWICH } else { PRE_NORM };
    let in_block = || {
        let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        let (stem, suffix) = rest.rsplit_once('.')?;
        let (_, canonical) = BLOCK.iter().chain(special).find(|(gguf, _)| *gguf == stem)?;
        Some(format!("model.layers.{layer}.{canonical}.{suffix}"))
    };
    in_block().unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::canonical_of_gguf;

    #[test]
    fn every_kind_of_name_maps() {
        for (arch, gguf, hf) in [
            ("llama", "token_embd.weight", "model.embed_tokens.weight"),
            ("llama", "blk.12.attn_q.weight", "model.layers.12.self_attn.q_proj.weight"),
            ("qwen2", "blk.0.attn_k.bias", "model.layers.0.self_attn.k_proj.bias"),
            ("qwen3", "blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
            ("gemma3", "blk.3.ffn_norm.weight", "model.layers.3.pre_feedforward_layernorm.weight"),
            ("gemma3", "blk.3.post_attention_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
            ("llama", "rope_freqs.weight", "rope_freqs.weight"),
            ("llama", "blk.x", "blk.x"),
        ] {
            assert_eq!(canonical_of_gguf(arch, gguf), hf);
        }
    }
}
