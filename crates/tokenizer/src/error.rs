//! What can go wrong when a vocabulary is read, text is encoded or a conversation is rendered.

use std::path::PathBuf;

/// Failure to load a vocabulary or to encode text with it.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A file of the tokenizer could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A directory holds no vocabulary in a known format.
    #[error("{} holds no tokenizer.json; convert its vocabulary to that format or use a GGUF file", dir.display())]
    NoVocabulary {
        /// The directory searched.
        dir: PathBuf,
    },
    /// A configuration file is not the JSON that was expected.
    #[error("{file} is not a valid configuration: {reason}")]
    Config {
        /// Name of the file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tokenizer.json is malformed or uses a part that is not supported.
    #[error("tokenizer.json cannot be used: {reason}")]
    TokenizerJson {
        /// What is wrong with it.
        reason: String,
    },
    /// A GGUF vocabulary names a model that is not supported.
    #[error("unknown vocabulary model `{model}` in tokenizer.ggml.model; known: gpt2, llama, gemma4")]
    UnknownModel {
        /// The name in the file.
        model: String,
    },
    /// A GGUF vocabulary names a pre-tokenizer that is not in the table.
    #[error("unknown pre-tokenizer `{pre}` in tokenizer.ggml.pre; known: {known}")]
    UnknownPreTokenizer {
        /// The name in the file.
        pre: String,
        /// The names that are known, separated by commas.
        known: String,
    },
    /// A GGUF vocabulary contradicts itself.
    #[error("the vocabulary is malformed: {reason}")]
    Vocabulary {
        /// What is wrong with it.
        reason: String,
    },
    /// Text could not be encoded.
    #[error("the text cannot be encoded: {reason}")]
    Encode {
        /// The vocabulary's reason.
        reason: String,
    },
    /// A conversation was to be encoded, but the model brought no chat template.
    #[error("this model has no chat template; give one, or use plain completion")]
    NoChatTemplate,
    /// The chat template is broken, or refused the conversation.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// Failure to compile or render a chat template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template does not parse.
    #[error("the chat template does not parse: {message}")]
    Syntax {
        /// The parser's message, with its line.
        message: String,
    },
    /// The template itself refused the conversation with `raise_exception`.
    #[error("the chat template refuses this conversation: {message}")]
    Refused {
        /// The template's own words.
        message: String,
    },
    /// The template failed while rendering.
    #[error("the chat template failed: {message}")]
    Render {
        /// The engine's message, with its line.
        message: String,
    },
    /// The template did not end within its step budget.
    #[error("the chat template did not finish within {steps} steps")]
    Endless {
        /// The budget.
        steps: u64,
    },
    /// The template's output is larger than its input can explain.
    #[error("the chat template produced {bytes} bytes, more than the {limit} allowed for this conversation")]
    TooLong {
        /// Bytes produced.
        bytes: usize,
        /// The largest allowed.
        limit: usize,
    },
    /// A message has a content part this model cannot take.
    #[error("message {index} has a content part of type `{kind}`; this model takes only `text` parts")]
    UnsupportedPart {
        /// Position of the message in the conversation, from 0.
        index: usize,
        /// Type of the part.
        kind: String,
    },
    /// A call in the history has arguments that are no JSON object.
    #[error("messages[{index}]: the arguments of the call of `{name}` are not a JSON object: {reason}")]
    BadArguments {
        /// Position of the message in the conversation, from 0.
        index: usize,
        /// The function.
        name: String,
        /// What is wrong with them.
        reason: String,
    },
}
