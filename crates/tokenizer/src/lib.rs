//! Text to tokens and back: vocabularies, chat templates, the streaming detokeniser and stop strings.
//!
//! Knows nothing about models, sampling or transports: it turns text into [`TokenId`](foundation::TokenId)s,
//! token ids into text (all at once or one by one), and conversations into prompts. It reads no clock and no
//! environment, and prints nothing.
#![forbid(unsafe_code)]

mod chat;
mod dialect;
mod error;
mod files;
mod guard;
mod pre;
mod stop;
mod stream;
mod template;
mod tokenizer;
mod turn_end;
mod vocab;

pub use chat::{ChatRequest, Content, ContentPart, Message};
pub use dialect::{
    CallError, CallSyntax, Dialect, DialectError, Framing, Messages, NamedSyntax, Reasoning, ReplyEvent, ReplyParser,
    Span, TagSyntax, ToolCall, ToolSyntax, Tools,
};
pub use error::{TemplateError, TokenizerError};
pub use files::TokenizerConfig;
pub use stop::{StopMatcher, StopOutcome};
pub use stream::StreamDecoder;
pub use template::{ChatTemplate, CivilTime};
pub use tokenizer::{Encode, Tokenizer};
pub use vocab::gguf::GgufVocab;
