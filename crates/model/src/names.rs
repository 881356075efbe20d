//! Tensor names: the canonical ones are Hugging Face's; these tables map other spellings to them.

use weights::Weights;

/// GGUF name → canonical name, outside the blocks.
const GLOBAL: &[(&str, &str)] = &[
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("output.weight", "lm_head.weight"),
    ("per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"),
    ("per_layer_model_proj.weight", "model.per_layer_model_projection.weight"),
    ("per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"),
    ("output_hc_norm.weight", "model.hyper_connection_mixer.hc_norm.weight"),
    ("output_hc_down.weight", "model.hyper_connection_mixer.input_mix_weight_down.weight"),
    ("output_hc_up.weight", "model.hyper_connection_mixer.input_mix_weight_up.weight"),
];

/// GGUF name → canonical name inside block N (`blk.N.` → `model.layers.N.`), where the suffix changes too.
const BLOCK_WHOLE: &[(&str, &str)] = &[
    ("attn_sinks.weight", "self_attn.sinks"),
    ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
    ("ffn_down_exps.scale", "router.per_expert_scale"),
    ("ffn_gate_inp.scale", "router.scale"),
    ("layer_output_scale.weight", "layer_scalar"),
    ("ssm_a", "linear_attn.a"),
    ("ssm_dt.bias", "linear_attn.dt_bias"),
];

/// GGUF name → canonical name inside block N, without `.weight` or `.bias`.
const BLOCK: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_q_a", "self_attn.q_a_proj"),
    ("attn_q_a_norm", "self_attn.q_a_layernorm"),
    ("attn_q_b", "self_attn.q_b_proj"),
    ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
    ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
    ("attn_kv_b", "self_attn.kv_b_proj"),
    ("attn_k_b", "self_attn.k_b_proj"),
    ("attn_v_b", "self_attn.v_b_proj"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.experts.gate_proj"),
    ("ffn_up_exps", "mlp.experts.up_proj"),
    ("ffn_down_exps", "mlp.experts.down_proj"),
    ("ffn_gate_up_exps", "mlp.experts.gate_up_proj"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    ("ssm_alpha", "linear_attn.in_proj_a"),
    ("ssm_beta", "linear_attn.in_proj_b"),
    ("ssm_conv1d", "linear_attn.conv1d"),
    ("ssm_norm", "linear_attn.norm"),
    ("ssm_out", "linear_attn.out_proj"),
    ("inp_gate", "per_layer_input_gate"),
    ("proj", "per_layer_projection"),
    ("post_norm", "post_per_layer_input_norm"),
    ("pre_ffw_norm_2", "pre_feedforward_layernorm_2"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
    ("post_ffw_norm_1", "post_feedforward_layernorm_1"),
    ("post_ffw_norm_2", "post_feedforward_layernorm_2"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("indexer.q_proj", "self_attn.indexer.q_proj"),
    ("indexer.k_proj", "self_attn.indexer.k_proj"),
    ("indexer.q_norm", "self_attn.indexer.q_norm"),
    ("indexer.k_norm", "self_attn.indexer.k_norm"),
    ("hc_attn_norm", "attn_hyper_connection.hc_norm"),
    ("hc_attn_down", "attn_hyper_connection.input_mix_weight_down"),
    ("hc_attn_up", "attn_hyper_connection.input_mix_weight_up"),
    ("hc_attn_inject", "attn_hyper_connection.block_inject_weight"),
    ("hc_ffn_norm", "mlp_hyper_connection.hc_norm"),
    ("hc_ffn_down", "mlp_hyper_connection.input_mix_weight_down"),
    ("hc_ffn_up", "mlp_hyper_connection.input_mix_weight_up"),
    ("hc_ffn_inject", "mlp_hyper_connection.block_inject_weight"),
    ("ple_key", "ple.key_proj"),
    ("ple_value", "ple.value_proj"),
    ("ple_norm_key", "ple.norm_key"),
    ("ple_norm_query", "ple.norm_query"),
    ("ple_norm_conv", "ple.norm_conv"),
    ("ple_conv1d", "ple.conv1d"),
];

/// Names whose meaning depends on the architecture, looked up before the others: pre-norm families call the second
/// norm of a block `ffn_norm`, sandwich families use that name for the norm before the feed-forward part; `attn_qkv`
/// and `attn_gate` belong to whatever mixer the architecture has.
const PRE_NORM: &[(&str, &str)] = &[("ffn_norm", "post_attention_layernorm")];
const SANDWICH: &[(&str, &str)] = &[("ffn_norm", "pre_feedforward_layernorm")];
const MUSE: &[(&str, &str)] = &[("ffn_norm", "pre_feedforward_layernorm"), ("attn_gate", "self_attn.gate_proj")];
const SPARK: &[(&str, &str)] = &[
    ("ffn_norm", "post_attention_layernorm"),
    ("attn_qkv", "self_attn.q_k_v_proj"),
    ("attn_gate", "self_attn.g_proj"),
    ("attn_output", "self_attn.out_proj"),
];
const DELTA: &[(&str, &str)] = &[("attn_qkv", "linear_attn.in_proj_qkv"), ("attn_gate", "linear_attn.in_proj_z")];

/// Prefixes that wrap a language model's own names in multimodal checkpoints.
const WRAPPERS: &[(&str, &str)] = &[
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
];

/// The canonical name of a tensor of a safetensors checkpoint.
pub fn canonical_of_hf(name: &str) -> String {
    let wrapped = WRAPPERS.iter().find_map(|(from, to)| Some(format!("{to}{}", name.strip_prefix(from)?)));
    wrapped.unwrap_or_else(|| name.to_owned())
}

/// The canonical name of a tensor of a GGUF file of architecture `arch`; unknown names stay as they are.
pub fn canonical_of_gguf(arch: &str, name: &str) -> String {
    if let Some((_, canonical)) = GLOBAL.iter().find(|(gguf, _)| *gguf == name) {
        return (*canonical).to_owned();
    }
    let special = match arch {
        "gemma3" | "gemma4" => SANDWICH,
        "muse-glimmer" => MUSE,
        "spark2_5" => SPARK,
        "qwen35" | "qwen35moe" | "qwen4exp" => DELTA,
        _ => PRE_NORM,
    };
    let in_block = || {
        let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        if let Some((_, canonical)) = BLOCK_WHOLE.iter().find(|(gguf, _)| *gguf == rest) {
            return Some(format!("model.layers.{layer}.{canonical}"));
        }
        let (stem, suffix) = rest.rsplit_once('.')?;
        let (_, canonical) = special.iter().chain(BLOCK).find(|(gguf, _)| *gguf == stem)?;
        Some(format!("model.layers.{layer}.{canonical}.{suffix}"))
    };
    in_block().unwrap_or_else(|| name.to_owned())
}

/// The same tensors under canonical names: those of a GGUF file of architecture `gguf`, or of safetensors.
pub fn canonical(gguf: Option<&str>, weights: &Weights) -> Weights {
    let name = |name: &str| match gguf {
        Some(arch) => canonical_of_gguf(arch, name),
        None => canonical_of_hf(name),
    };
    weights.iter().map(|t| t.renamed(name(t.name()))).collect()
}

#[cfg(test)]
mod tests {
    use super::{canonical_of_gguf, canonical_of_hf};

    #[test]
    fn every_kind_of_name_maps() {
        for (arch, gguf, hf) in [
            ("llama", "token_embd.weight", "model.embed_tokens.weight"),
            ("llama", "blk.12.attn_q.weight", "model.layers.12.self_attn.q_proj.weight"),
            ("qwen2", "blk.0.attn_k.bias", "model.layers.0.self_attn.k_proj.bias"),
            ("qwen3", "blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
            ("gemma3", "blk.3.ffn_norm.weight", "model.layers.3.pre_feedforward_layernorm.weight"),
            ("gemma3", "blk.3.post_attention_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
            ("qwen35", "blk.0.attn_gate.weight", "model.layers.0.linear_attn.in_proj_z.weight"),
            ("spark2_5", "blk.0.attn_gate.weight", "model.layers.0.self_attn.g_proj.weight"),
            ("qwen35", "blk.0.ssm_a", "model.layers.0.linear_attn.a"),
            ("minimax-m2", "blk.0.exp_probs_b.bias", "model.layers.0.mlp.gate.e_score_correction_bias"),
            ("llama", "rope_freqs.weight", "rope_freqs.weight"),
            ("llama", "blk.x", "blk.x"),
        ] {
            assert_eq!(canonical_of_gguf(arch, gguf), hf);
        }
    }

    #[test]
    fn multimodal_prefixes_fall_away() {
        for (name, canonical) in [
            ("model.language_model.layers.0.mlp.gate.weight", "model.layers.0.mlp.gate.weight"),
            ("language_model.model.norm.weight", "model.norm.weight"),
            ("language_model.lm_head.weight", "lm_head.weight"),
            ("model.visual.blocks.0.norm1.weight", "model.visual.blocks.0.norm1.weight"),
            ("model.layers.0.input_layernorm.weight", "model.layers.0.input_layernorm.weight"),
        ] {
            assert_eq!(canonical_of_hf(name), canonical);
        }
    }
}
