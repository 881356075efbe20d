//! What many families share: the usual keys, names and shapes.

use super::{Checkpoint, Container};
use crate::{
    Activation, Attention, Config, Embed, Exit, Ffn, Gate, Gated, Head, Layer, Linear, ModelError, ModelSpec, Norm,
    NormSpan, Pairing, QkNorm, Qkv, Rope, RopeScaling, Source,
};

/// The embedding table's usual name.
const EMBED: &str = "model.embed_tokens";

/// The numbers every llama-like config holds.
pub(super) struct Dims {
    pub(super) vocab: usize,
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) context: usize,
    pub(super) q_heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) eps: f32,
    /// Whether the head is the embedding table where the config does not say.
    pub(super) tied: bool,
}

impl Checkpoint {
    pub(super) fn dims(&self) -> Result<Dims, ModelError> {
        let c = &self.config;
        let kv_heads = c.opt_size("num_key_value_heads")?;
        let d = self.dims_of(kv_heads)?;
        if let Some(value_dim) = c.opt_size("value_head_dim")?
            && value_dim != d.head_dim
        {
            return Err(c.bad("value_head_dim", &format!("{}, as the keys", d.head_dim), &value_dim.into()));
        }
        Ok(d)
    }

    /// As [`Self::dims`], where the number of kv heads is not one plain key.
    pub(super) fn dims_of(&self, kv_heads: Option<usize>) -> Result<Dims, ModelError> {
        let c = &self.config;
        let (hidden, q_heads) = (c.size("hidden_size")?, c.size("num_attention_heads")?);
        let head_dim = match c.opt_size("head_dim")? {
            Some(d) => d,
            None if hidden % q_heads == 0 => hidden / q_heads,
            None => return Err(c.missing("head_dim")),
        };
        let kv_heads = kv_heads.unwrap_or(q_heads);
        if q_heads % kv_heads != 0 {
            let expected = format!("a divisor of num_attention_heads = {q_heads}");
            return Err(c.bad("num_key_value_heads", &expected, &kv_heads.into()));
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
            q_heads,
            kv_heads,
            head_dim,
            eps: c.positive("rms_norm_eps")?,
            tied: false,
        })
    }

    /// The model of these layers with an embedding, a final norm and a head under the usual names.
    pub(super) fn model(&self, d: &Dims, layers: Vec<Layer>) -> Result<ModelSpec, ModelError> {
        self.model_under(d, layers, EMBED)
    }

    /// As [`Self::model`], with another name for the embedding table.
    pub(super) fn model_under(&self, d: &Dims, layers: Vec<Layer>, embed: &str) -> Result<ModelSpec, ModelError> {
        let table = self.shaped(&format!("{embed}.weight"), &[d.vocab, d.hidden])?;
        Ok(ModelSpec {
            family: "",
            vocab: d.vocab,
            hidden: d.hidden,
            context: d.context,
            embed: Embed { table, scale: 1.0, norm: None, streams: 1 },
            per_layer: None,
            layers,
            exit: Exit::Norm(self.norm("model.norm", d.hidden, d.eps)?),
            head: self.head_under(d, embed)?,
            notes: Vec::new(),
        })
    }

    /// Whether it came as GGUF.
    pub(super) fn is_gguf(&self) -> bool {
        self.container == Container::Gguf
    }

    /// The tensor `name`, checked to be there.
    pub(super) fn tensor(&self, name: &str) -> Result<Source, ModelError> {
        if self.index.contains(name) {
            Ok(Source::tensor(name))
        } else {
            Err(ModelError::MissingTensor { name: name.to_owned(), family: self.architecture.clone() })
        }
    }

    /// `stem.weight` as `[outputs, inputs]`, with `stem.bias` where the checkpoint has one.
    pub(super) fn linear(&self, stem: &str, outputs: usize, inputs: usize) -> Result<Linear, ModelError> {
        let weight = self.shaped(&format!("{stem}.weight"), &[outputs, inputs])?;
        let bias = format!("{stem}.bias");
        let bias = self.index.contains(&bias).then(|| self.shaped(&bias, &[outputs])).transpose()?;
        Ok(Linear { weight, bias, inputs, outputs })
    }

    /// Fails unless each of these products under `at` has a bias.
    pub(super) fn biases(&self, at: &str, stems: &[&str]) -> Result<(), ModelError> {
        stems.iter().try_for_each(|stem| self.tensor(&format!("{at}.{stem}.bias")).map(|_| ()))
    }

    /// The tensor `name`, checked to have this shape.
    pub(super) fn shaped(&self, name: &str, expected: &[usize]) -> Result<Source, ModelError> {
        let source = self.tensor(name)?;
        match self.index.shape(name) {
            Some(found) if found != expected => {
                Err(ModelError::BadShape { name: name.to_owned(), expected: expected.to_vec(), found: found.to_vec() })
            }
            _ => Ok(source),
        }
    }

    /// A norm with weight `w`.
    pub(super) fn norm(&self, stem: &str, width: usize, eps: f32) -> Result<Norm, ModelError> {
        Ok(Norm { weight: Some(self.shaped(&format!("{stem}.weight"), &[width])?), eps })
    }

    /// A norm with weight `1 + w`; converters to GGUF store the sum.
    pub(super) fn centred_norm(&self, stem: &str, width: usize, eps: f32) -> Result<Norm, ModelError> {
        let norm = self.norm(stem, width, eps)?;
        Ok(match self.container {
            Container::Safetensors => Norm { weight: norm.weight.map(Source::plus_one), ..norm },
            Container::Gguf => norm,
        })
    }

    pub(super) fn embed(&self, d: &Dims, scale: f32) -> Result<Embed, ModelError> {
        let table = self.shaped(&format!("{EMBED}.weight"), &[d.vocab, d.hidden])?;
        Ok(Embed { table, scale, norm: None, streams: 1 })
    }

    /// `lm_head`, or the embedding table when the config ties them.
    pub(super) fn head(&self, d: &Dims) -> Result<Head, ModelError> {
        self.head_under(d, EMBED)
    }

    fn head_under(&self, d: &Dims, embed: &str) -> Result<Head, ModelError> {
        let tied = self.config.flag("tie_word_embeddings")?.unwrap_or(d.tied);
        let stem = if tied { embed } else { "lm_head" };
        Ok(Head { linear: self.linear(stem, d.vocab, d.hidden)?, tied, scale: 1.0, softcap: None })
    }

    /// The rope of a config with one kind of layer: `rope_parameters` (newer files), or `rope_theta` with
    /// `rope_scaling` beside it. `rotary_dim`, or a `partial_rotary_factor`, says how many channels turn.
    pub(super) fn rope(&self, d: &Dims, default_theta: f32) -> Result<Rope, ModelError> {
        let c = &self.config;
        let (own_theta, own_scaling) = (c.opt_positive("rope_theta")?, c.section("rope_scaling")?);
        let (theta, scaling_of) = match c.section("rope_parameters")? {
            Some(parameters) => (parameters.opt_positive("rope_theta")?.or(own_theta), Some(parameters)),
            None => (own_theta, own_scaling),
        };
        let factor = match &scaling_of {
            Some(section) => section.opt_number("partial_rotary_factor")?,
            None => None,
        };
        let factor = factor.or(c.opt_number("partial_rotary_factor")?);
        let from_factor = factor.map(|f| (d.head_dim as f32 * f) as usize);
        let rotary_dim = c.opt_size("rotary_dim")?.or(from_factor).unwrap_or(d.head_dim);
        if rotary_dim % 2 != 0 || rotary_dim > d.head_dim || rotary_dim == 0 {
            let expected = format!("an even number up to head_dim = {}", d.head_dim);
            return Err(c.bad("rotary_dim", &expected, &rotary_dim.into()));
        }
        let scaling = match scaling_of {
            Some(section) => scaling(&section)?,
            None => RopeScaling::None,
        };
        let theta = theta.unwrap_or(default_theta);
        Ok(Rope { theta, rotary_dim, pairing: Pairing::Half, scaling })
    }

    /// Attention with separate projections under `model.layers.N.self_attn`.
    pub(super) fn attention(&self, at: &str, d: &Dims, rope: Rope) -> Result<Attention, ModelError> {
        let (q_width, kv_width) = (d.q_heads * d.head_dim, d.kv_heads * d.head_dim);
        let qkv = Qkv::Split {
            q: self.linear(&format!("{at}.q_proj"), q_width, d.hidden)?,
            k: self.linear(&format!("{at}.k_proj"), kv_width, d.hidden)?,
            v: Some(self.linear(&format!("{at}.v_proj"), kv_width, d.hidden)?),
        };
        let out = self.linear(&format!("{at}.o_proj"), d.hidden, q_width)?;
        Ok(d.attention(qkv, out, rope))
    }

    /// A gated layer of `inner` channels under `at`.
    pub(super) fn gated(&self, at: &str, d: &Dims, inner: usize, activation: Activation) -> Result<Gated, ModelError> {
        Ok(Gated {
            gate: self.linear(&format!("{at}.gate_proj"), inner, d.hidden)?,
            up: self.linear(&format!("{at}.up_proj"), inner, d.hidden)?,
            down: self.linear(&format!("{at}.down_proj"), d.hidden, inner)?,
            activation,
        })
    }

    /// The gated layer of `intermediate_size` channels under `at`.
    pub(super) fn mlp(&self, at: &str, d: &Dims, activation: Activation) -> Result<Ffn, ModelError> {
        Ok(Ffn::Gated(self.gated(at, d, self.config.size("intermediate_size")?, activation)?))
    }

    /// Fails unless the config's activation is one of `names`.
    pub(super) fn expect_activation(&self, key: &str, names: &[&str]) -> Result<(), ModelError> {
        match self.config.text(key)? {
            Some(found) if !names.contains(&found) => Err(self.config.bad(key, &names.join(" or "), &found.into())),
            _ => Ok(()),
        }
    }

    /// Which layers slide by `layer_types`, if the config lists them.
    pub(super) fn sliding_by_type(&self, layers: usize) -> Result<Option<Vec<bool>>, ModelError> {
        let Some(types) = self.config.texts("layer_types", layers)? else {
            return Ok(None);
        };
        let slides = |kind: &&str| match *kind {
            "sliding_attention" => Ok(true),
            "full_attention" => Ok(false),
            other => Err(self.config.bad("layer_types", "sliding_attention or full_attention", &other.into())),
        };
        types.iter().map(slides).collect::<Result<_, _>>().map(Some)
    }

    /// Which layers slide: `layer_types`, or a list of booleans, or every layer but each `period`-th, the period being
    /// `sliding_window_pattern` or `default`.
    pub(super) fn sliding_layers(&self, layers: usize, default: usize) -> Result<Vec<bool>, ModelError> {
        let c = &self.config;
        if let Some(sliding) = self.sliding_by_type(layers)? {
            return Ok(sliding);
        }
        if let Some(flags) = c.flags("sliding_window_pattern", layers)? {
            return Ok(flags);
        }
        let period = c.opt_size("sliding_window_pattern")?.unwrap_or(default);
        Ok((0..layers).map(|i| (i + 1) % period != 0).collect())
    }
}

impl Dims {
    /// Plain attention of these heads.
    pub(super) fn attention(&self, qkv: Qkv, out: Linear, rope: Rope) -> Attention {
        Attention {
            q_heads: self.q_heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            qkv,
            out,
            qk_norm: None,
            v_norm: None,
            rope: Some(rope),
            window: None,
            scale: (self.head_dim as f32).powf(-0.5),
            sinks: None,
            gate: Gate::None,
            indexer: None,
        }
    }
}

/// A `rope_scaling` object, or the scaling part of `rope_parameters`.
pub(super) fn scaling(c: &Config) -> Result<RopeScaling, ModelError> {
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
        Some("yarn") => yarn(c),
        Some(other) => Err(c.bad("rope_type", "default, linear, llama3 or yarn", &other.into())),
    }
}

/// Without a factor of its own, cosines and sines grow by `0.1 ln(factor) + 1`; two `mscale` keys give a quotient.
fn yarn(c: &Config) -> Result<RopeScaling, ModelError> {
    let factor = c.positive("factor")?;
    let growth = |mscale: f32| if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 };
    let amplitude = match (c.opt_number("attention_factor")?, c.opt_number("mscale")?, c.opt_number("mscale_all_dim")?)
    {
        (Some(own), ..) => own,
        (None, Some(mscale), Some(all)) if mscale != 0.0 && all != 0.0 => growth(mscale) / growth(all),
        _ => growth(1.0),
    };
    Ok(RopeScaling::Yarn {
        factor,
        beta_fast: c.opt_number("beta_fast")?.unwrap_or(32.0),
        beta_slow: c.opt_number("beta_slow")?.unwrap_or(1.0),
        original_context: c.positive("original_max_position_embeddings")?,
        truncate: c.flag("truncate")?.unwrap_or(true),
        amplitude,
    })
}

/// Norms of each head of q and k.
pub(super) fn head_norms(q: Norm, k: Norm) -> Option<QkNorm> {
    Some(QkNorm { q, k, span: NormSpan::Head })
}
