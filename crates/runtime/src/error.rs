//! What can go wrong between a path and a text.

use grammar::GrammarError;
use model::ModelError;
use plan::{ExecError, PlanError, PrefixFileError};
use selection::{SelectError, ShapingError};
use std::path::PathBuf;
use tokenizer::{DialectError, TokenizerError};
use weights::WeightsError;

/// A run of a model failed, or could not begin.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}; choose another path", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A value that is not understood.
    #[error("`{found}`: {reason}")]
    BadValue {
        /// The value.
        found: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Directions that do not fit the model.
    #[error("cannot steer with {}: {reason}", .file.display())]
    Steering {
        /// The file of directions.
        file: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// Something was asked for that the model does not have.
    #[error("{what} cannot be captured: {reason}; leave it out")]
    NothingToCapture {
        /// What was asked for.
        what: &'static str,
        /// Why there is none.
        reason: String,
    },
    /// A folder with more than one model.
    #[error("{} holds several GGUF models ({found}); name one of the files", .folder.display())]
    SeveralModels {
        /// The folder.
        folder: PathBuf,
        /// Their names.
        found: String,
    },
    /// Hashes were to be checked where there are none.
    #[error("{} has no hashes to verify: only a packed model (.gturbo) has; pack it with `turbospark pack`, or leave --verify full out", .path.display())]
    NothingToVerify {
        /// The model.
        path: PathBuf,
    },
    /// The weight files.
    #[error(transparent)]
    Weights(Box<WeightsError>),
    /// The model's description.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The device cannot run the model.
    #[error(transparent)]
    Plan(Box<PlanError>),
    /// Text and tokens.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Tools that the model cannot be offered.
    #[error(transparent)]
    Dialect(#[from] DialectError),
    /// Sampling values out of range.
    #[error(transparent)]
    Shaping(#[from] ShapingError),
    /// The answer cannot follow its constraint.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// A constraint where answers are messages with headers.
    #[error(
        "a constraint is not possible in a conversation with this model: its dialect, {dialect}, writes messages with headers; use raw completion (`turbospark complete`) instead"
    )]
    ConstrainedMessages {
        /// The dialect.
        dialect: &'static str,
    },
    /// No token could be chosen.
    #[error(transparent)]
    Selection(#[from] SelectError),
    /// The model could not produce logits.
    #[error(transparent)]
    Producer(#[from] ProducerError),
    /// Kept prefixes could not be saved.
    #[error("the prefix cache is not saved: {0}; choose another folder for --prefix-cache, or make room there")]
    Prefixes(#[from] PrefixFileError),
    /// Prefixes that cannot be kept as was asked.
    #[error("beginnings of conversations cannot be kept as asked: {reason}")]
    PrefixOptions {
        /// Why not, and what to do.
        reason: &'static str,
    },
    /// Something that follows one sequence was asked of many.
    #[error("{what} is not possible for many requests at once: {reason}")]
    OneSequence {
        /// What was asked for.
        what: String,
        /// Why not, and what to do.
        reason: &'static str,
    },
    /// The prompt has no tokens.
    #[error("the prompt is empty: there is nothing to continue; give it at least one token")]
    EmptyPrompt,
    /// Nothing may be generated.
    #[error("the budget of new tokens is 0; allow at least one")]
    ZeroBudget,
    /// The prompt alone fills the context.
    #[error(
        "the prompt has {prompt} tokens, but the context holds {context} and an answer needs at least one; shorten the prompt or raise --ctx"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Positions of the context.
        context: usize,
    },
    /// Prompt and answer do not fit.
    #[error(
        "the prompt has {prompt} tokens and {new} new ones were asked for, together {total}, but the context holds {context}; shorten the prompt, lower --max-new or raise --ctx"
    )]
    ContextOverflow {
        /// Tokens of the prompt.
        prompt: usize,
        /// New tokens asked for.
        new: usize,
        /// Their sum.
        total: usize,
        /// Positions of the context.
        context: usize,
    },
    /// Leaving older turns out does not make room.
    #[error(
        "the last turn alone, with what stands before the first, has {prompt} tokens and its answer needs {new}, but the context holds \
         {context}; no other turn can be left out: shorten the message, lower --max-new or raise --ctx"
    )]
    LastTurnTooLong {
        /// Tokens of the shortest prompt.
        prompt: usize,
        /// Tokens for the answer.
        new: usize,
        /// Positions of the context.
        context: usize,
    },
    /// Vocabulary and logits disagree.
    #[error(
        "the tokenizer knows {tokenizer} tokens but the model has logits for only {model}; the tokenizer belongs to another model"
    )]
    VocabularyMismatch {
        /// Ids of the tokenizer.
        tokenizer: usize,
        /// Width of the logits.
        model: usize,
    },
    /// The model does not fit into the memory given.
    #[error(
        "the model needs {needed} but {available} may be used: {arithmetic}; choose a smaller context (--ctx), a smaller cache type (--kv), a smaller model, or raise --memory"
    )]
    Memory {
        /// What it takes.
        needed: String,
        /// What there is.
        available: String,
        /// The sum, term by term.
        arithmetic: String,
    },
    /// Experts were to be kept somewhere, and there are none.
    #[error("this model has no experts to keep anywhere; leave --experts out")]
    NoExperts,
    /// Keys and values do not fit into the bytes given for them.
    #[error(
        "keys and values of {context} positions take {least} bytes even in the smallest types, and --kv auto:{bytes} allows fewer; \
         choose a smaller context (--ctx) or allow more"
    )]
    KvBudget {
        /// Bytes given.
        bytes: u64,
        /// The least they take.
        least: u64,
        /// Positions of the context.
        context: usize,
    },
    /// Types that only opening a model can choose.
    #[error("--kv auto:BYTES measures a model while opening it, and nothing is opened here; name types, as in --kv q8")]
    KvNotMeasured,
    /// A context that is not possible.
    #[error("a context of {asked} positions was asked for; {reason}")]
    Context {
        /// The context asked for.
        asked: usize,
        /// Why not.
        reason: String,
    },
    /// Conversations that cannot be kept as was asked.
    #[error("conversations cannot be parked as asked: {reason}")]
    Sessions {
        /// Why not, and what to do.
        reason: &'static str,
    },
    /// Too many requests wait already.
    #[error("{waiting} requests are waiting, as many as may; try again when one has ended")]
    QueueFull {
        /// How many wait.
        waiting: usize,
    },
    /// A device that is not there.
    #[error("device `{found}` is not one of this version's: auto, cpu, reference, cuda, cuda:N")]
    UnknownDevice {
        /// The name asked for.
        found: String,
    },
    /// A GPU in a build without them.
    #[error("this build cannot use NVIDIA GPUs; build turbospark with `--features cuda`, or use --device cpu")]
    NoCuda,
    /// A GPU that cannot be used.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] cuda::CudaError),
    /// A `scripted:` file that is not understood.
    #[error("{}: {reason}", .path.display())]
    Script {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The model has no template to chat with.
    #[error("this model has no chat template; use raw completion (`turbospark complete`) instead")]
    NoChatTemplate,
}

// Boxed, so that a result costs little to pass on.
impl From<WeightsError> for RuntimeError {
    fn from(error: WeightsError) -> Self {
        Self::Weights(Box::new(error))
    }
}

impl From<PlanError> for RuntimeError {
    fn from(error: PlanError) -> Self {
        Self::Plan(Box::new(error))
    }
}

/// A producer could not produce.
#[derive(Debug, thiserror::Error)]
pub enum ProducerError {
    /// The device.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// More tokens than the context has room for.
    #[error("{tokens} tokens at position {position} exceed the context of {context}")]
    ContextFull {
        /// Tokens to feed.
        tokens: usize,
        /// Where they would begin.
        position: usize,
        /// Positions of the context.
        context: usize,
    },
    /// The buffer does not match what was asked for.
    #[error("the logits buffer holds {found} values, the wanted rows need {expected}")]
    BufferSize {
        /// wanted rows × vocabulary.
        expected: usize,
        /// What the caller gave.
        found: usize,
    },
    /// A script without a further row.
    #[error("the script is exhausted after {prepared} rows")]
    ScriptExhausted {
        /// Rows prepared.
        prepared: usize,
    },
}
