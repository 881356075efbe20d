//! The families: each file transcribes a layer's equations and maps a config to them.

mod deepseek2;
mod delta;
mod experts;
mod gemma3;
mod gemma4;
mod gpt_oss;
mod llama;
mod minimax_m2;
mod minimax_m3;
mod muse_glimmer;
mod ngram;
mod olmo2;
mod parts;
mod qwen;
mod qwen3_5;
mod qwen4_exp;
mod spark2_5;
mod synthetic;

use crate::{Config, ModelError, ModelSpec, WeightIndex};
use parts::Dims;
use weights::gguf::Metadata;

/// Which container a checkpoint came in; some conversions bake a change into the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// Safetensors with a `config.json`.
    Safetensors,
    /// GGUF.
    Gguf,
}

/// A checkpoint's description: everything a family may look at.
#[derive(Debug)]
pub struct Checkpoint {
    /// The architecture's name, as the checkpoint spells it.
    pub architecture: String,
    /// The container the checkpoint came in.
    pub container: Container,
    /// Configuration in Hugging Face's keys.
    pub config: Config,
    /// Tensors by canonical name.
    pub index: WeightIndex,
}

type Build = fn(&Checkpoint) -> Result<ModelSpec, ModelError>;

/// Architecture name (`architectures[0]`, `model_type`, or GGUF `general.architecture`) → family, builder.
pub const FAMILIES: &[(&str, &str, Build)] = &[
    ("LlamaForCausalLM", "llama", llama::build),
    ("llama", "llama", llama::build),
    ("MistralForCausalLM", "mistral", llama::build),
    ("mistral", "mistral", llama::build),
    ("MixtralForCausalLM", "mixtral", llama::build),
    ("mixtral", "mixtral", llama::build),
    ("Qwen2ForCausalLM", "qwen2", qwen::build),
    ("qwen2", "qwen2", qwen::build),
    ("Qwen3ForCausalLM", "qwen3", qwen::build),
    ("qwen3", "qwen3", qwen::build),
    ("Qwen3MoeForCausalLM", "qwen3_moe", qwen::build),
    ("qwen3_moe", "qwen3_moe", qwen::build),
    ("qwen3moe", "qwen3_moe", qwen::build),
    ("Qwen3_5ForCausalLM", "qwen3_5", qwen3_5::build),
    ("Qwen3_5ForConditionalGeneration", "qwen3_5", qwen3_5::build),
    ("qwen3_5", "qwen3_5", qwen3_5::build),
    ("qwen3_5_text", "qwen3_5", qwen3_5::build),
    ("qwen35", "qwen3_5", qwen3_5::build),
    ("Qwen3_5MoeForCausalLM", "qwen3_5_moe", qwen3_5::build),
    ("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", qwen3_5::build),
    ("qwen3_5_moe", "qwen3_5_moe", qwen3_5::build),
    ("qwen3_5_moe_text", "qwen3_5_moe", qwen3_5::build),
    ("qwen35moe", "qwen3_5_moe", qwen3_5::build),
    ("Qwen4ExpForCausalLM", "qwen4_exp", qwen4_exp::build),
    ("Qwen4ExpForConditionalGeneration", "qwen4_exp", qwen4_exp::build),
    ("qwen4_exp", "qwen4_exp", qwen4_exp::build),
    ("qwen4_exp_text", "qwen4_exp", qwen4_exp::build),
    ("qwen4exp", "qwen4_exp", qwen4_exp::build),
    ("GptOssForCausalLM", "gpt_oss", gpt_oss::build),
    ("gpt_oss", "gpt_oss", gpt_oss::build),
    ("gpt-oss", "gpt_oss", gpt_oss::build),
    ("Gemma4ForCausalLM", "gemma4", gemma4::build),
    ("Gemma4ForConditionalGeneration", "gemma4", gemma4::build),
    ("gemma4", "gemma4", gemma4::build),
    ("gemma4_text", "gemma4", gemma4::build),
    ("Spark2_5ForCausalLM", "spark2_5", spark2_5::build),
    ("spark2_5", "spark2_5", spark2_5::build),
    ("MuseGlimmerForConditionalGeneration", "muse_glimmer", muse_glimmer::build),
    ("muse_glimmer", "muse_glimmer", muse_glimmer::build),
    ("muse-glimmer", "muse_glimmer", muse_glimmer::build),
    ("MiniMaxM2ForCausalLM", "minimax_m2", minimax_m2::build),
    ("minimax_m2", "minimax_m2", minimax_m2::build),
    ("minimax-m2", "minimax_m2", minimax_m2::build),
    ("MiniMaxM3VLForCausalLM", "minimax_m3", minimax_m3::build),
    ("MiniMaxM3SparseForConditionalGeneration", "minimax_m3", minimax_m3::build),
    ("minimax_m3_vl", "minimax_m3", minimax_m3::build),
    ("minimax-m3", "minimax_m3", minimax_m3::build),
    ("DeepseekV2ForCausalLM", "deepseek2", deepseek2::build),
    ("deepseek_v2", "deepseek2", deepseek2::build),
    ("deepseek2", "deepseek2", deepseek2::build),
    ("Gemma3ForCausalLM", "gemma3", gemma3::build),
    ("gemma3", "gemma3", gemma3::build),
    ("gemma3_text", "gemma3", gemma3::build),
    ("Olmo2ForCausalLM", "olmo2", olmo2::build),
    ("olmo2", "olmo2", olmo2::build),
    ("SyntheticForCausalLM", "synthetic", synthetic::build),
    ("synthetic", "synthetic", synthetic::build),
];

impl Checkpoint {
    /// Describes a safetensors checkpoint by its `config.json`.
    pub fn from_config(config: Config, index: WeightIndex) -> Result<Self, ModelError> {
        let config = config.language_model()?;
        let listed = config.get("architectures").and_then(|a| a.get(0)).and_then(|a| a.as_str());
        let architecture = match listed {
            Some(name) => name.to_owned(),
            None => config.text("model_type")?.ok_or(ModelError::NoArchitecture)?.to_owned(),
        };
        Ok(Self { architecture, container: Container::Safetensors, config, index })
    }

    /// Describes a GGUF file by its metadata; `index` carries canonical names.
    pub fn from_gguf(metadata: &Metadata, index: WeightIndex) -> Result<Self, ModelError> {
        let (architecture, config) = crate::gguf::config(metadata, &index)?;
        Ok(Self { architecture, container: Container::Gguf, config, index })
    }
}

/// Builds the description of a checkpoint's model; every option it does not understand is an error.
pub fn build(checkpoint: &Checkpoint) -> Result<ModelSpec, ModelError> {
    let entry = FAMILIES.iter().find(|(name, ..)| *name == checkpoint.architecture);
    let Some((_, family, build)) = entry else {
        let mut known: Vec<_> = FAMILIES.iter().map(|(_, family, _)| *family).collect();
        known.dedup();
        return Err(ModelError::UnknownArchitecture {
            found: checkpoint.architecture.clone(),
            known: known.join(", "),
        });
    };
    let checkpoint = Checkpoint {
        architecture: checkpoint.architecture.clone(),
        container: checkpoint.container,
        config: checkpoint.config.for_family(family),
        index: checkpoint.index.clone(),
    };
    let spec = ModelSpec { family, ..build(&checkpoint)? };
    checkpoint.config.finish()?;
    Ok(spec)
}
