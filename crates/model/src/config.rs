//! Typed reads of a model's configuration, in Hugging Face's key names whatever the container.
//!
//! Every read is remembered. When the family is done, a key nobody read is an error unless it is known
//! not to change the mathematics: a new option must never be ignored silently.

use crate::ModelError;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Keys that describe, train or serve a model but do not enter its equations.
const INERT: &[&str] = &[
    "_from_model_config",
    "_name_or_path",
    "_sliding_window_pattern",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "auto_map",
    "aux_loss_alpha",
    "bos_token_id",
    "cache_implementation",
    "dtype",
    "eos_token_id",
    "ep_size",
    "finetuned",
    "general.basename",
    "general.name",
    "hidden_dropout",
    "initializer_range",
    "is_llama_config",
    "mamba_ssm_dtype",
    "max_window_layers",
    "model_type",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "resid_pdrop",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "seq_aux",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
];

/// Keys of a multimodal config that count for its language model where that does not say otherwise.
const INHERITED: &[&str] = &["tie_word_embeddings", "model_type"];

/// Keys of a multimodal config that describe what is around its language model.
const AROUND: &[&str] = &[
    "audio_config",
    "audio_token_id",
    "boa_token_id",
    "boi_token_id",
    "eoa_token_id",
    "eoa_token_index",
    "eoi_token_id",
    "image_seq_length",
    "image_token_id",
    "image_token_index",
    "language_model_only",
    "out_hidden_size",
    "projector_hidden_act",
    "projector_hidden_size",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_soft_tokens_per_image",
    "vision_start_token_id",
];

/// A JSON object read by key, with the path for messages.
#[derive(Clone, Debug)]
pub struct Config {
    map: Map<String, Value>,
    prefix: String,
    family: String,
    read: Rc<RefCell<BTreeSet<String>>>,
}

impl Config {
    /// Parses the text of a `config.json`.
    pub fn from_json(text: &[u8]) -> Result<Self, ModelError> {
        let value = serde_json::from_slice(text).map_err(|e| ModelError::NotJson { reason: e.to_string() })?;
        match value {
            Value::Object(map) => Ok(Self::from_map(map)),
            other => Err(ModelError::NotJson { reason: format!("found {}", kind(&other)) }),
        }
    }

    /// The part of a multimodal checkpoint's config that describes its language model, under the architecture of the
    /// whole; a plain config as it is.
    pub(crate) fn language_model(self) -> Result<Self, ModelError> {
        let Some(Value::Object(text)) = self.map.get("text_config") else {
            return Ok(self);
        };
        let mut text = text.clone();
        for (key, value) in &self.map {
            if INHERITED.contains(&key.as_str()) {
                text.entry(key.clone()).or_insert(value.clone());
            } else if key == "architectures" {
                text.insert(key.clone(), value.clone());
            } else if key != "text_config" && ![INERT, AROUND].concat().contains(&key.as_str()) && !says_nothing(value)
            {
                let family = "multimodal".to_owned();
                return Err(ModelError::UnreadKey { key: key.clone(), found: value.to_string(), family });
            }
        }
        Ok(Self::from_map(text))
    }

    pub(crate) fn from_map(map: Map<String, Value>) -> Self {
        Self { map, prefix: String::new(), family: String::new(), read: Rc::default() }
    }

    pub(crate) fn for_family(&self, family: &str) -> Self {
        Self { family: family.to_owned(), ..self.clone() }
    }

    /// The value of `key`, marked as read; JSON `null` counts as absent.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.read.borrow_mut().insert(self.path(key));
        self.map.get(key).filter(|v| !v.is_null())
    }

    /// A nested object.
    pub fn section(&self, key: &str) -> Result<Option<Self>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Self {
                map: map.clone(),
                prefix: format!("{}.", self.path(key)),
                family: self.family.clone(),
                read: Rc::clone(&self.read),
            })),
            Some(other) => Err(self.bad(key, "an object", other)),
        }
    }

    /// A required positive integer.
    pub fn size(&self, key: &str) -> Result<usize, ModelError> {
        self.opt_size(key)?.ok_or_else(|| self.missing(key))
    }

    /// An optional positive integer.
    pub fn opt_size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match size_of(value) {
            Some(size) => Ok(Some(size)),
            None => Err(self.bad(key, "a positive integer below 2^32", value)),
        }
    }

    /// An optional non-negative integer.
    pub fn opt_count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        match self.get(key).map(|value| value.as_u64().filter(|n| *n <= u32::MAX as u64).ok_or(value)) {
            None => Ok(None),
            Some(Ok(count)) => Ok(Some(count as usize)),
            Some(Err(value)) => Err(self.bad(key, "an integer from 0 to 2^32", value)),
        }
    }

    /// A required finite number.
    pub fn number(&self, key: &str) -> Result<f32, ModelError> {
        self.opt_number(key)?.ok_or_else(|| self.missing(key))
    }

    /// An optional finite number.
    pub fn opt_number(&self, key: &str) -> Result<Option<f32>, ModelError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(x) if x.is_finite() && (x as f32).is_finite() => Ok(Some(x as f32)),
            _ => Err(self.bad(key, "a finite number", value)),
        }
    }

    /// A required number above zero.
    pub fn positive(&self, key: &str) -> Result<f32, ModelError> {
        self.opt_positive(key)?.ok_or_else(|| self.missing(key))
    }

    /// An optional number above zero.
    pub fn opt_positive(&self, key: &str) -> Result<Option<f32>, ModelError> {
        match self.opt_number(key)? {
            Some(x) if x <= 0.0 => Err(self.bad(key, "a number above zero", &x.into())),
            other => Ok(other),
        }
    }

    /// An optional boolean.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        value.as_bool().map(Some).ok_or_else(|| self.bad(key, "true or false", value))
    }

    /// An optional string.
    pub fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        value.as_str().map(Some).ok_or_else(|| self.bad(key, "a string", value))
    }

    /// An optional list of strings, one for each of `len` layers.
    pub fn texts(&self, key: &str, len: usize) -> Result<Option<Vec<&str>>, ModelError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let list: Option<Vec<&str>> = value.as_array().and_then(|a| a.iter().map(Value::as_str).collect());
        match list {
            Some(list) if list.len() == len => Ok(Some(list)),
            _ => Err(self.bad(key, &format!("a list of {len} strings, one a layer"), value)),
        }
    }

    /// An optional list of booleans, one for each of `len` layers; another kind of value counts as absent.
    pub fn flags(&self, key: &str, len: usize) -> Result<Option<Vec<bool>>, ModelError> {
        let Some(list) = self.get(key).and_then(Value::as_array) else {
            return Ok(None);
        };
        let flags: Option<Vec<bool>> = list.iter().map(Value::as_bool).collect();
        match flags {
            Some(flags) if flags.len() == len => Ok(Some(flags)),
            _ => Err(self.bad(key, &format!("a list of {len} booleans, one a layer"), &Value::from(list.clone()))),
        }
    }

    /// A positive integer for each of `len` layers: a list, or one for all.
    pub fn sizes(&self, key: &str, len: usize) -> Result<Option<Vec<usize>>, ModelError> {
        if let Some(value @ Value::Array(list)) = self.get(key) {
            let sizes: Option<Vec<usize>> = list.iter().map(size_of).collect();
            return match sizes {
                Some(sizes) if sizes.len() == len => Ok(Some(sizes)),
                _ => Err(self.bad(key, &format!("a list of {len} positive integers, one a layer"), value)),
            };
        }
        Ok(self.opt_size(key)?.map(|size| vec![size; len]))
    }

    /// An optional list of integers below `end`.
    pub fn indices(&self, key: &str, end: usize) -> Result<Option<Vec<usize>>, ModelError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let index = |v: &Value| v.as_u64().map(|i| i as usize).filter(|i| *i < end);
        let list: Option<Vec<usize>> = value.as_array().and_then(|a| a.iter().map(index).collect());
        list.map(Some).ok_or_else(|| self.bad(key, &format!("a list of integers below {end}"), value))
    }

    /// Fails unless an option is absent or has the one value this build knows.
    pub fn only(&self, key: &str, known: impl Into<Value>) -> Result<(), ModelError> {
        let known = known.into();
        match self.get(key) {
            Some(found) if *found != known => Err(self.bad(key, &known.to_string(), found)),
            _ => Ok(()),
        }
    }

    /// An error about the value of `key`.
    pub fn bad(&self, key: &str, expected: &str, found: &Value) -> ModelError {
        let mut found = found.to_string();
        if found.len() > 200 {
            let cut = (0..=200).rev().find(|&i| found.is_char_boundary(i)).unwrap_or(0);
            found.truncate(cut);
            found.push('…');
        }
        ModelError::BadValue { key: self.path(key), expected: expected.to_owned(), found }
    }

    /// The error for a key that had to be there.
    pub fn missing(&self, key: &str) -> ModelError {
        ModelError::MissingKey { key: self.path(key), family: self.family.clone() }
    }

    /// Fails on the first key that nobody read and that is not known to be inert.
    pub(crate) fn finish(&self) -> Result<(), ModelError> {
        let read = self.read.borrow();
        check_read(&self.map, &self.prefix, &read, &self.family)
    }

    fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }
}

fn size_of(value: &Value) -> Option<usize> {
    value.as_u64().filter(|n| *n > 0 && *n <= u32::MAX as u64).map(|n| n as usize)
}

fn check_read(map: &Map<String, Value>, prefix: &str, read: &BTreeSet<String>, family: &str) -> Result<(), ModelError> {
    for (key, value) in map {
        let path = format!("{prefix}{key}");
        if read.contains(&path) {
            if let Value::Object(inner) = value {
                check_read(inner, &format!("{path}."), read, family)?;
            }
        } else if !INERT.contains(&key.as_str()) && !says_nothing(value) {
            return Err(ModelError::UnreadKey { key: path, found: value.to_string(), family: family.to_owned() });
        }
    }
    Ok(())
}

/// Values by which a config says that an option is not used.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        _ => false,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
