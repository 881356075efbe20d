//! Conversations, in the shape of the chat completions API.

use crate::template::CivilTime;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, or whatever else the template knows.
    pub role: String,
    /// What is said.
    #[serde(default)]
    pub content: Content,
    /// The speaker's or the tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The calls that an assistant message makes, as objects of the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<Value>>,
    /// The call that a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// All other fields, in their order, for the template.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    /// A message with text content.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: Content::Text(content.into()), ..Self::default() }
    }

    /// A message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// A message that sets the scene.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// A reply of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }
}

/// The content of a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// `null`, or no content at all, as in messages that only call tools.
    #[default]
    Null,
    /// Text.
    Text(String),
    /// A list of parts, which are joined without a separator.
    Parts(Vec<ContentPart>),
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// One part of a message's content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContentPart {
    /// The kind of part; `text` is the only one that a text model takes.
    #[serde(rename = "type", default = "text_type")]
    pub kind: String,
    /// The text of a `text` part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// All other fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

fn text_type() -> String {
    "text".into()
}

/// Everything that a chat template turns into a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatRequest {
    /// The conversation.
    pub messages: Vec<Message>,
    /// The tools on offer: a list of objects of the API.
    pub tools: Option<Value>,
    /// End the prompt with the start of a reply.
    pub add_generation_prompt: bool,
    /// Text of the BOS token; a [`Tokenizer`](crate::Tokenizer) fills in its own where this is absent.
    pub bos_token: Option<String>,
    /// Text of the EOS token, likewise.
    pub eos_token: Option<String>,
    /// Text of the padding token, likewise.
    pub pad_token: Option<String>,
    /// Text of the unknown token, likewise.
    pub unk_token: Option<String>,
    /// Further variables of the template, such as `enable_thinking`.
    pub extra: Map<String, Value>,
    /// The time that the template sees; a template that asks for it fails without one.
    pub now: Option<CivilTime>,
}
