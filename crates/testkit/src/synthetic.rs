//! Seeded random models of every family's shape, in memory or written as a checkpoint.

use crate::{Model, Random};
use model::{Checkpoint, Config, WeightIndex};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use weights::{DType, Tensor, Weights};

/// Whose layers the model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// The synthetic family: short tensor names, values equal keys, tied head.
    Synthetic,
    /// Llama: all layers with a window, or none.
    Llama,
    /// Qwen2: biases on q, k and v.
    Qwen2,
    /// Qwen3: norms of q and k.
    Qwen3,
    /// Gemma 3: sandwich norms, GELU, its own base for windowed layers.
    Gemma3,
}

/// The shape of a synthetic model.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The family.
    pub architecture: Architecture,
    /// Rows of the embedding table.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward part.
    pub inner: usize,
    /// Query heads.
    pub q_heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// The window of each layer.
    pub windows: Vec<Option<usize>>,
    /// The type of matrices.
    pub dtype: DType,
}

impl Options {
    /// Vocabulary 64, two layers of width 32, 4 query and 2 key/value heads of 8 channels, in f32; the first layer
    /// has a window of 4, the second sees everything.
    pub fn tiny() -> Self {
        Self {
            architecture: Architecture::Qwen2,
            vocab: 64,
            hidden: 32,
            inner: 48,
            q_heads: 4,
            kv_heads: 2,
            head_dim: 8,
            windows: vec![Some(4), None],
            dtype: DType::F32,
        }
    }

    /// The same of another family, with the windows that family can have.
    pub fn of(self, architecture: Architecture) -> Self {
        let layers = self.windows.len();
        let windows = match architecture {
            Architecture::Synthetic => vec![None; layers],
            Architecture::Llama => vec![self.windows[0]; layers],
            _ => self.windows,
        };
        Self { architecture, windows, ..self }
    }

    /// A shape drawn at random.
    pub fn random(seed: u64) -> Self {
        let r = &mut Random::new(seed);
        let kv_heads = r.pick(&[1, 2, 3]);
        let window = r.pick(&[1, 4, 31, 32, 33, 70]);
        let layers = 1 + r.below(3);
        let architecture = r.pick(&[
            Architecture::Synthetic,
            Architecture::Llama,
            Architecture::Qwen2,
            Architecture::Qwen3,
            Architecture::Gemma3,
        ]);
        Self {
            architecture,
            vocab: r.pick(&[33, 64, 101]),
            hidden: r.pick(&[24, 32, 52]),
            inner: r.pick(&[20, 48, 65]),
            q_heads: kv_heads * r.pick(&[1, 2, 3]),
            kv_heads,
            head_dim: r.pick(&[4, 8, 10, 24]),
            windows: (0..layers).map(|_| r.pick(&[None, Some(window)])).collect(),
            dtype: r.pick(&[DType::F32, DType::F16, DType::BF16]),
        }
        .of(architecture)
    }

    /// The window of those layers that have one.
    fn window(&self) -> Option<usize> {
        let mut windows = self.windows.iter().flatten();
        let first = windows.next().copied();
        assert!(windows.all(|w| Some(*w) == first), "a config has one width for all windows");
        first
    }

    fn config(&self) -> Value {
        let all = |like| self.windows.iter().all(|w| w.is_some() == like);
        let class = match self.architecture {
            Architecture::Synthetic => "SyntheticForCausalLM",
            Architecture::Llama => "LlamaForCausalLM",
            Architecture::Qwen2 => "Qwen2ForCausalLM",
            Architecture::Qwen3 => "Qwen3ForCausalLM",
            Architecture::Gemma3 => "Gemma3ForCausalLM",
        };
        let mut config = json!({
            "architectures": [class],
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.windows.len(),
            "num_attention_heads": self.q_heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
        });
        let layer_types: Vec<_> =
            self.windows.iter().map(|w| if w.is_some() { "sliding_attention" } else { "full_attention" }).collect();
        let own = match self.architecture {
            Architecture::Synthetic => {
                assert!(all(false), "the synthetic family has no windows");
                json!({})
            }
            Architecture::Llama => {
                assert!(all(true) || all(false), "llama's layers are alike");
                json!({ "sliding_window": self.window(), "tie_word_embeddings": false })
            }
            Architecture::Qwen2 | Architecture::Qwen3 => json!({
                "use_sliding_window": self.window().is_some(),
                "sliding_window": self.window(),
                "layer_types": layer_types,
                "tie_word_embeddings": true,
            }),
            Architecture::Gemma3 => json!({
                "sliding_window": self.window().unwrap_or(4),
                "layer_types": layer_types,
                "query_pre_attn_scalar": self.head_dim + 1,
            }),
        };
        let (Some(config_map), Value::Object(own)) = (config.as_object_mut(), own) else {
            unreachable!("both are objects")
        };
        config_map.extend(own);
        config
    }

    fn tensors(&self, seed: u64) -> Weights {
        let mut writer = Writer { random: Random::new(seed), options: self, weights: Weights::default() };
        match self.architecture {
            Architecture::Synthetic => writer.synthetic(),
            _ => writer.llama_like(),
        }
        writer.weights
    }
}

struct Writer<'a> {
    random: Random,
    options: &'a Options,
    weights: Weights,
}

impl Writer<'_> {
    fn matrix(&mut self, name: &str, rows: usize, cols: usize) {
        self.weights.insert(self.random.matrix(&format!("{name}.weight"), self.options.dtype, [rows, cols]));
    }

    fn vector(&mut self, name: &str, width: usize, mean: f32) {
        self.weights.insert(Tensor::from_f32(name, vec![width], &self.random.normals(width, mean, 0.2)));
    }

    fn norm(&mut self, name: &str, width: usize) {
        // Gemma's norms are centred: the file holds w of 1 + w.
        let mean = if self.options.architecture == Architecture::Gemma3 { 0.0 } else { 1.0 };
        self.vector(&format!("{name}.weight"), width, mean);
    }

    /// The embedding table, of unit values.
    fn embed(&mut self, name: &str) {
        let Options { vocab, hidden, dtype, .. } = *self.options;
        self.weights.insert(self.random.tensor(name, dtype, [vocab, hidden], 1.0));
    }

    fn synthetic(&mut self) {
        let o = self.options;
        let (q_width, kv_width) = (o.q_heads * o.head_dim, o.kv_heads * o.head_dim);
        self.embed("embed.weight");
        self.norm("norm", o.hidden);
        for i in 0..o.windows.len() {
            let at = |name: &str| format!("layer{i}.{name}");
            self.norm(&at("norm1"), o.hidden);
            self.norm(&at("norm2"), o.hidden);
            for (name, outputs, inputs) in [
                ("q_proj", q_width, o.hidden),
                ("k_proj", kv_width, o.hidden),
                ("o_proj", o.hidden, q_width),
                ("gate_proj", o.inner, o.hidden),
                ("up_proj", o.inner, o.hidden),
                ("down_proj", o.hidden, o.inner),
            ] {
                self.matrix(&at(name), outputs, inputs);
            }
        }
    }

    fn llama_like(&mut self) {
        let o = self.options;
        let (q_width, kv_width) = (o.q_heads * o.head_dim, o.kv_heads * o.head_dim);
        self.embed("model.embed_tokens.weight");
        self.norm("model.norm", o.hidden);
        if o.architecture == Architecture::Llama {
            self.matrix("lm_head", o.vocab, o.hidden);
        }
        for i in 0..o.windows.len() {
            let at = |name: &str| format!("model.layers.{i}.{name}");
            let norms: &[&str] = match o.architecture {
                Architecture::Gemma3 => &["pre_feedforward_layernorm", "post_feedforward_layernorm"],
                _ => &[],
            };
            for name in ["input_layernorm", "post_attention_layernorm"].iter().chain(norms) {
                self.norm(&at(name), o.hidden);
            }
            if matches!(o.architecture, Architecture::Qwen3 | Architecture::Gemma3) {
                self.norm(&at("self_attn.q_norm"), o.head_dim);
                self.norm(&at("self_attn.k_norm"), o.head_dim);
            }
            for (name, outputs, inputs) in [
                ("self_attn.q_proj", q_width, o.hidden),
                ("self_attn.k_proj", kv_width, o.hidden),
                ("self_attn.v_proj", kv_width, o.hidden),
                ("self_attn.o_proj", o.hidden, q_width),
                ("mlp.gate_proj", o.inner, o.hidden),
                ("mlp.up_proj", o.inner, o.hidden),
                ("mlp.down_proj", o.hidden, o.inner),
            ] {
                self.matrix(&at(name), outputs, inputs);
                if o.architecture == Architecture::Qwen2
                    && inputs == o.hidden
                    && name.starts_with("self_attn")
                    && !name.contains("o_proj")
                {
                    self.vector(&format!("{}.bias", at(name)), outputs, 0.0);
                }
            }
        }
    }
}

/// A random model's config and tensors.
#[derive(Clone, Debug)]
pub struct Synthetic {
    /// The content of its `config.json`.
    pub config: Value,
    /// Its tensors.
    pub weights: Weights,
}

/// The model of a seed; the same seed and options give the same bits.
///
/// # Panics
/// If the family cannot have these windows, or the storage type's blocks do not fit the widths.
pub fn synthetic(seed: u64, options: &Options) -> Synthetic {
    Synthetic { config: options.config(), weights: options.tensors(seed) }
}

impl Synthetic {
    /// The description a family sees.
    ///
    /// # Panics
    /// If the config is broken, which a test may have done.
    pub fn checkpoint(&self) -> Checkpoint {
        let config = Config::from_json(self.config.to_string().as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        Checkpoint::from_config(config, WeightIndex::of(&self.weights)).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The model, ready to be lowered.
    ///
    /// # Panics
    /// If the family refuses it.
    pub fn model(&self) -> Model {
        Model::of(&self.checkpoint(), self.weights.clone())
    }

    /// The config's keys, to change some.
    ///
    /// # Panics
    /// If a test has replaced the object by something else.
    pub fn keys(&mut self) -> &mut Map<String, Value> {
        self.config.as_object_mut().expect("a config is an object")
    }

    /// Writes `config.json` and `model.safetensors` into a folder.
    ///
    /// # Panics
    /// If they cannot be written, or the storage type is one safetensors files cannot hold.
    pub fn write(&self, folder: &Path) {
        std::fs::write(folder.join("config.json"), self.config.to_string()).unwrap_or_else(|e| panic!("{e}"));
        let tensors: Vec<_> = self.weights.iter().cloned().collect();
        weights::safetensors::write(&folder.join("model.safetensors"), &tensors, &BTreeMap::new())
            .unwrap_or_else(|e| panic!("{e}"));
    }
}
