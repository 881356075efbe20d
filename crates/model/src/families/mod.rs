//! The families: each file transcribes a layer's equations and maps a config to them.

mod gemma3;
mod llama;
mod qwen;
mod synthetic;

use crate::{
    Activation, Attention, Config, Embed, Ffn, Gated, Head, Linear, ModelError, ModelSpec, Norm, QkNorm, Qkv, Rope,
    RopeScaling, Source, WeightIndex,
};
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
    ("Qwen2ForCausalLM", "qwen2", qwen::build),
    ("qwen2", "qwen2", qwen::build),
    ("Qwen3ForCausalLM", "qwen3", qwen::build),
    ("qwen3", "qwen3", qwen::build),
    ("Gemma3ForCausalLM", "gemma3", gemma3::build),
    ("gemma3", "gemma3", gemma3::build),
    ("gemma3_text", "gemma3", gemma3::build),
    ("SyntheticForCausalLM", "synthetic", synthetic::build),
    ("synthetic", "synthetic", synthetic::build),
];

impl Checkpoint {
    /// Describes a safetensors checkpoint by its `config.json`.
    pub fn from_config(config: Config, index: WeightIndex) -> Result<Self, ModelError> {
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

/// The numbers every llama-like config holds.
struct Dims {
    vocab: usize,
    hidden: usize,
    layers: usize,
    context: usize,
    inner: usize,
    q_heads: usize,
    kv_heads: usize,
    head_dim: usize,
    eps: f32,
}

impl Checkpoint {
    fn dims(&self) -> Result<Dims, ModelError> {
        let c = &self.config;
        let (hidden, q_heads) = (c.size("hidden_size")?, c.size("num_attention_heads")?);
        let head_dim = match c.opt_size("head_dim")? {
            Some(d) => d,
            None if hidden % q_heads == 0 => hidden / q_heads,
            None => return Err(c.missing("head_dim")),
        };
        let kv_heads = c.opt_size("num_key_value_heads")?.unwrap_or(q_heads);
        if q_heads % kv_heads != 0 {
            let expected = format!("a divisor of num_attention_heads = {q_heads}");
            return Err(c.bad("num_key_value_heads", &expected, &kv_heads.into()));
        }
        if let Some(value_dim) = c.opt_size("value_head_dim")?
            && value_dim != head_dim
        {
            return Err(c.bad("value_head_dim", &format!("{head_dim}, as the keys"), &value_dim.into()));
        }
        let (layers, tensors) = (c.size("num_hidden_layers")?, self.index.names().count());
        if layers > tensors {
            let expected = format!("at most {tensors}, as many as there are tensors");
            return Err(c.bad("num_hidden_layers", &expected, &layers.into()));
        }
        Ok(Dims {
            vocab: c.size("vocab_size")?,
            hidden,
            layers,
            context: c.size("max_position_embeddings")?,
            inner: c.size("intermediate_size")?,
            q_heads,
            kv_heads,
            head_dim,
            eps: c.positive("rms_norm_eps")?,
        })
    }

    /// The tensor `name`, checked to be there.
    fn tensor(&self, name: &str) -> Result<Source, ModelError> {
        if self.index.contains(name) {
            Ok(Source::tensor(name))
        } else {
            Err(ModelError::MissingTensor { name: name.to_owned(), family: self.architecture.clone() })
        }
    }

    /// `stem.weight` as `[outputs, inputs]`, with `stem.bias` where the checkpoint has one.
    fn linear(&self, stem: &str, outputs: usize, inputs: usize) -> Result<Linear, ModelError> {
        let weight = self.shaped(&format!("{stem}.weight"), &[outputs, inputs])?;
        let bias = format!("{stem}.bias");
        let bias = self.index.contains(&bias).then(|| self.shaped(&bias, &[outputs])).transpose()?;
        Ok(Linear { weight, bias, inputs, outputs })
    }

    fn shaped(&self, name: &str, expected: &[usize]) -> Result<Source, ModelError> {
        let source = self.tensor(name)?;
        match self.index.shape(name) {
            Some(found) if found != expected => {
                Err(ModelError::BadShape { name: name.to_owned(), expected: expected.to_vec(), found: found.to_vec() })
            }
            _ => Ok(source),
        }
    }

    /// A norm with weight `w`.
    fn norm(&self, stem: &str, width: usize, eps: f32) -> Result<Norm, ModelError> {
        Ok(Norm { weight: self.shaped(&format!("{stem}.weight"), &[width])?, eps })
    }

    /// A norm with weight `1 + w`; converters to GGUF store the sum.
    fn centred_norm(&self, stem: &str, width: usize, eps: f32) -> Result<Norm, ModelError> {
        let norm = self.norm(stem, width, eps)?;
        Ok(match self.container {
            Container::Safetensors => Norm { weight: norm.weight.plus_one(), ..norm },
            Container::Gguf => norm,
        })
    }

    fn embed(&self, d: &Dims, scale: f32) -> Result<Embed, ModelError> {
        Ok(Embed { table: self.shaped("model.embed_tokens.weight", &[d.vocab, d.hidden])?, scale })
    }

    /// `lm_head`, or the embedding table when the config ties them (`default` where it does not say).
    fn head(&self, d: &Dims, default: bool) -> Result<Head, ModelError> {
        let tied = self.config.flag("tie_word_embeddings")?.unwrap_or(default);
        let stem = if tied { "model.embed_tokens" } else { "lm_head" };
        Ok(Head { linear: self.linear(stem, d.vocab, d.hidden)?, tied })
    }

    /// The rope of a config with one kind of layer: `rope_parameters` (newer files), or `rope_theta` with
    /// `rope_scaling` beside it.
    fn rope(&self, d: &Dims, default_theta: f32) -> Result<Rope, ModelError> {
        let c = &self.config;
        let (own_theta, own_scaling) = (c.opt_positive("rope_theta")?, c.section("rope_scaling")?);
        let (theta, scaling_of) = match c.section("rope_parameters")? {
            Some(parameters) => (parameters.opt_positive("rope_theta")?.or(own_theta), Some(parameters)),
            None => (own_theta, own_scaling),
        };
        let rotary_dim = c.opt_size("rotary_dim")?.unwrap_or(d.head_dim);
        if rotary_dim % 2 != 0 || rotary_dim > d.head_dim {
            let expected = format!("an even number up to head_dim = {}", d.head_dim);
            return Err(c.bad("rotary_dim", &expected, &rotary_dim.into()));
        }
        let scaling = match scaling_of {
            Some(section) => scaling(&section)?,
            None => RopeScaling::None,
        };
        let theta = theta.unwrap_or(default_theta);
        Ok(Rope { theta, rotary_dim, pairing: crate::Pairing::Half, scaling })
    }

    /// Attention with separate projections under `model.layers.N.self_attn`.
    fn attention(&self, at: &str, d: &Dims, rope: Rope) -> Result<Attention, ModelError> {
        let (q_width, kv_width) = (d.q_heads * d.head_dim, d.kv_heads * d.head_dim);
        Ok(Attention {
            q_heads: d.q_heads,
            kv_heads: d.kv_heads,
            head_dim: d.head_dim,
            qkv: Qkv::Split {
                q: self.linear(&format!("{at}.q_proj"), q_width, d.hidden)?,
                k: self.linear(&format!("{at}.k_proj"), kv_width, d.hidden)?,
                v: Some(self.linear(&format!("{at}.v_proj"), kv_width, d.hidden)?),
            },
            out: self.linear(&format!("{at}.o_proj"), d.hidden, q_width)?,
            qk_norm: None,
            rope: Some(rope),
            window: None,
            scale: (d.head_dim as f32).powf(-0.5),
        })
    }

    fn gated(&self, at: &str, d: &Dims, activation: Activation) -> Result<Ffn, ModelError> {
        Ok(Ffn::Gated(Gated {
            gate: self.linear(&format!("{at}.gate_proj"), d.inner, d.hidden)?,
            up: self.linear(&format!("{at}.up_proj"), d.inner, d.hidden)?,
            down: self.linear(&format!("{at}.down_proj"), d.hidden, d.inner)?,
            activation,
        }))
    }

    /// Which layers slide by `layer_types`, if the config lists them.
    fn sliding(&self, d: &Dims) -> Result<Option<Vec<bool>>, ModelError> {
        let Some(types) = self.config.texts("layer_types", d.layers)? else {
            return Ok(None);
        };
        let slides = |kind: &&str| match *kind {
            "sliding_attention" => Ok(true),
            "full_attention" => Ok(false),
            other => Err(self.config.bad("layer_types", "sliding_attention or full_attention", &other.into())),
        };
        types.iter().map(slides).collect::<Result<_, _>>().map(Some)
    }

    /// Fails unless the config's activation is one of `names`.
    fn expect_activation(&self, key: &str, names: &[&str]) -> Result<(), ModelError> {
        match self.config.text(key)? {
            Some(found) if !names.contains(&found) => Err(self.config.bad(key, &names.join(" or "), &found.into())),
            _ => Ok(()),
        }
    }
}

/// A `rope_scaling` object, or the scaling part of `rope_parameters`.
fn scaling(c: &Config) -> Result<RopeScaling, ModelError> {
    let kind = match c.text("rope_type")? {
        Some(kind) => Some(kind),
        None => c.text("type")?,
    };
    match kind {
        None | Some("default" | "none") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear { factor: c.positive("factor")? }),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: c.positive("factor")?,
            low_freq_factor: c.positive("low_freq_factor")?,
            high_freq_factor: c.positive("high_freq_factor")?,
            original_context: c.positive("original_max_position_embeddings")?,
        }),
        Some(other) => Err(c.bad("rope_type", "default, linear or llama3", &other.into())),
    }
}

/// A head-wise norm of q and k.
fn qk_norm(q: Norm, k: Norm) -> Option<QkNorm> {
    Some(QkNorm { q, k })
}
