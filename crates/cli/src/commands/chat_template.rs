//! `chat-template`: what a conversation renders to.

use super::{print_json, text_argument, text_file};
use crate::arguments::StoreFlags;
use crate::failure::Failure;
use crate::{models, output};
use clap::Args;
use runtime::{Message, ModelFiles, byte_tokenizer};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizer::{ChatRequest, CivilTime};

/// Print the prompt that a conversation becomes with the model's chat template.
#[derive(Args, Debug)]
pub(crate) struct ChatTemplate {
    /// A catalogued name, a file or folder, hf:owner/repo[@revision][/file], or scripted:FILE
    #[arg(value_name = "MODEL")]
    model: OsString,
    /// A JSON list of messages, or an object with the lists `messages` and `tools`
    #[arg(long, value_name = "FILE")]
    messages: PathBuf,
    /// A JSON list of tools
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// A variable of the template as JSON, or as text if it is none: enable_thinking=false
    #[arg(long = "set", value_name = "NAME=VALUE")]
    variables: Vec<OsString>,
    /// Leave out the beginning of a reply
    #[arg(long)]
    no_generation_prompt: bool,
    /// Print one JSON object with `ids`, `pieces` and the `dialect` of replies
    #[arg(long)]
    ids: bool,
    #[command(flatten)]
    store: StoreFlags,
}

impl ChatTemplate {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let request = self.request()?;
        let path = self.store.models(true)?.locate(&self.model)?;
        let tokenizer = match models::is_scripted(&path) {
            true => Arc::new(byte_tokenizer()?),
            false => ModelFiles::open(Path::new(&path))?.tokenizer()?,
        };
        let dialect = tokenizer.dialect();
        if request.tools.is_some() {
            dialect.check_tools()?;
        }
        if !self.ids {
            return output::write(&tokenizer.render_chat(&request)?);
        }
        let ids = tokenizer.encode_chat(&request)?;
        let pieces: Vec<String> = ids.iter().map(|id| tokenizer.piece(*id).unwrap_or_default()).collect();
        let ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
        print_json(&json!({ "ids": ids, "pieces": pieces, "dialect": dialect.name }))
    }

    fn request(&self) -> Result<ChatRequest, Failure> {
        let mut file = read(&self.messages)?;
        let (list, mut tools) = match &mut file {
            Value::Object(fields) => {
                (fields.get_mut("messages").map(Value::take), fields.get_mut("tools").map(Value::take))
            }
            other => (Some(other.take()), None),
        };
        let messages: Result<Vec<Message>, _> = serde_json::from_value(list.unwrap_or_default());
        let messages = messages.map_err(|error| {
            let path = self.messages.display();
            Failure::message(format!("{path}: expected a list of messages with `role` and `content`: {error}"))
        })?;
        if let Some(path) = &self.tools {
            tools = Some(read(path)?);
        }
        if tools.as_ref().is_some_and(|tools| !tools.is_array()) {
            return Err(Failure::message("tools: expected a list of objects with `type` and `function`"));
        }
        let mut extra = Map::new();
        for variable in &self.variables {
            let variable = text_argument(variable)?;
            let (name, value) = variable
                .split_once('=')
                .ok_or_else(|| Failure::usage("chat-template", format!("--set {variable:?}: expected NAME=VALUE")))?;
            extra.insert(name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into()));
        }
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Ok(ChatRequest {
            messages,
            tools: tools.filter(|tools| tools.as_array().is_some_and(|list| !list.is_empty())),
            add_generation_prompt: !self.no_generation_prompt,
            extra,
            now: since_epoch.ok().map(|since| CivilTime::from_unix_seconds(since.as_secs() as i64)),
            ..ChatRequest::default()
        })
    }
}

fn read(path: &Path) -> Result<Value, Failure> {
    let text = text_file(path)?;
    serde_json::from_str(&text).map_err(|error| Failure::message(format!("{} is not JSON: {error}", path.display())))
}
