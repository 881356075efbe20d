//! The files beside a `tokenizer.json`: special tokens, end tokens and chat templates.

use crate::error::TokenizerError;
use crate::tokenizer::Tokenizer;
use foundation::TokenId;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

/// What a model's configuration says about its tokenizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerConfig {
    /// Text of the token that begins a prompt.
    pub bos_token: Option<String>,
    /// Text of the token that ends a reply.
    pub eos_token: Option<String>,
    /// Text of the padding token.
    pub pad_token: Option<String>,
    /// Text of the token for unknown characters.
    pub unk_token: Option<String>,
    /// Whether plain text is encoded with BOS in front; otherwise the vocabulary decides.
    pub add_bos: Option<bool>,
    /// End tokens beside `eos_token`.
    pub stop_ids: BTreeSet<TokenId>,
    /// Source of the default chat template.
    pub chat_template: Option<String>,
    /// Source of the template for conversations with tools, if it is another one.
    pub tool_template: Option<String>,
}

/// More end tokens than this are a mistake in the file.
const MAX_STOP_IDS: usize = 256;

impl TokenizerConfig {
    /// Reads a `tokenizer_config.json`.
    pub fn from_json(tokenizer_config: &[u8]) -> Result<Self, TokenizerError> {
        let json = parse("tokenizer_config.json", tokenizer_config)?;
        // A special token is its text, or an object with the text in `content`.
        let token = |key: &str| json[key].as_str().or(json[key]["content"].as_str()).map(str::to_owned);
        let mut config = Self {
            bos_token: token("bos_token"),
            eos_token: token("eos_token"),
            pad_token: token("pad_token"),
            unk_token: token("unk_token"),
            add_bos: json["add_bos_token"].as_bool(),
            ..Self::default()
        };
        config.read_templates(&json["chat_template"]);
        Ok(config)
    }

    /// Adds the `eos_token_id` of a `generation_config.json` or `config.json`: one id, a list, or none.
    pub fn add_stop_ids(&mut self, file: &str, json: &[u8]) -> Result<(), TokenizerError> {
        let json = parse(file, json)?;
        // Configurations of models with several parts keep the text model's values in `text_config`.
        for value in [&json["eos_token_id"], &json["text_config"]["eos_token_id"]] {
            let ids = match value {
                Value::Null => continue,
                Value::Array(ids) => ids.as_slice(),
                id => std::slice::from_ref(id),
            };
            if ids.len() > MAX_STOP_IDS {
                return Err(config_error(
                    file,
                    format!("eos_token_id lists {} ids, more than {MAX_STOP_IDS}", ids.len()),
                ));
            }
            for id in ids {
                let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                let id = id.ok_or_else(|| {
                    config_error(file, format!("eos_token_id is {value}, not an id or a list of ids"))
                })?;
                self.stop_ids.insert(TokenId(id));
            }
        }
        Ok(())
    }

    /// Takes one template source, or a list of named ones.
    fn read_templates(&mut self, value: &Value) {
        if let Some(source) = value.as_str() {
            self.chat_template = Some(source.to_owned());
        }
        for named in value.as_array().into_iter().flatten() {
            let source = named["template"].as_str().map(str::to_owned);
            match named["name"].as_str() {
                Some("default") => self.chat_template = source,
                Some("tool_use") => self.tool_template = source,
                _ => {}
            }
        }
    }
}

impl Tokenizer {
    /// Loads a model directory: `tokenizer.json`, and as far as they exist `tokenizer_config.json`,
    /// `generation_config.json`, `config.json`, `chat_template.jinja` and `chat_template.json`.
    pub fn open_dir(dir: &Path) -> Result<Self, TokenizerError> {
        let vocabulary =
            read(dir, "tokenizer.json")?.ok_or_else(|| TokenizerError::NoVocabulary { dir: dir.to_owned() })?;
        let mut config = match read(dir, "tokenizer_config.json")? {
            Some(json) => TokenizerConfig::from_json(&json)?,
            None => TokenizerConfig::default(),
        };
        for file in ["generation_config.json", "config.json"] {
            if let Some(json) = read(dir, file)? {
                config.add_stop_ids(file, &json)?;
            }
        }
        if let Some(json) = read(dir, "chat_template.json")? {
            config.read_templates(&parse("chat_template.json", &json)?["chat_template"]);
        }
        if let Some(source) = read(dir, "chat_template.jinja")? {
            let source =
                String::from_utf8(source).map_err(|_| config_error("chat_template.jinja", "it is not UTF-8".into()))?;
            config.chat_template = Some(source);
        }
        Self::from_json(&vocabulary, &config)
    }
}

fn read(dir: &Path, file: &str) -> Result<Option<Vec<u8>>, TokenizerError> {
    let path = dir.join(file);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TokenizerError::Read { path, source }),
    }
}

fn parse(file: &str, json: &[u8]) -> Result<Value, TokenizerError> {
    serde_json::from_slice(json).map_err(|error| config_error(file, error.to_string()))
}

fn config_error(file: &str, reason: String) -> TokenizerError {
    TokenizerError::Config { file: file.to_owned(), reason }
}
