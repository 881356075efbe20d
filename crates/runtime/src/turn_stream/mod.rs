//! A turn as its readers want it: content, reasoning and tool calls in order, then how it ended and what it took.
//!
//! [`TurnSplitter`] makes the events out of a generation's progress. They reach a reader by a callback
//! ([`Engine::turn`](crate::Engine::turn)) or from a queue of their own ([`TurnStream`]); both are the same events.

mod channel;
mod splitter;

use crate::raw_completion::{RawDecodeResult, StopReason};
pub use channel::TurnStream;
pub use splitter::TurnSplitter;
use tokenizer::{CallError, Dialect, Tokenizer, ToolCall, Tools};

/// How a reply is taken apart.
#[derive(Clone, Debug, Default)]
pub struct TurnOptions {
    /// How the model writes reasoning and calls; `None`: all it writes is content.
    pub dialect: Option<&'static Dialect>,
    /// The tools on offer. Without any, what looks like a call is content, as it was written.
    pub tools: Option<Tools>,
}

impl TurnOptions {
    /// The dialect that a vocabulary points to, and no tools.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        Self { dialect: Some(tokenizer.dialect()), tools: None }
    }
}

/// What happens in a turn. Texts are never empty, and `Finished` is the last.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEvent {
    /// As [`Progress::Recompute`](crate::Progress::Recompute).
    Recompute {
        /// Tokens of the prompt that are known.
        known: usize,
        /// Those that need not be computed.
        reused: usize,
    },
    /// Prompt tokens now in the cache, of all; reused ones count.
    Prefill {
        /// In the cache.
        done: usize,
        /// In the prompt.
        total: usize,
    },
    /// Text for the reader.
    Content(String),
    /// Text of the model thinking.
    Reasoning(String),
    /// A complete call of a tool on offer.
    ToolCall(ToolCall),
    /// A call that cannot be handed on, as the text it was.
    ReleasedToolSpan {
        /// What the model wrote, markers included.
        text: String,
        /// Why it is no call.
        why: CallError,
    },
    /// The end.
    Finished(Box<TurnEnd>),
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnEnd {
    /// In a word.
    pub finish: FinishReason,
    /// What it took.
    pub usage: Usage,
    /// The record of the generation.
    pub record: RawDecodeResult,
}

/// Tokens of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt.
    pub prompt: usize,
    /// Those of the prompt that were not computed again.
    pub reused: usize,
    /// Chosen, the stopping one included.
    pub completion: usize,
}

/// Why a turn ended, as APIs tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model, or a stop text, ended it.
    Stop,
    /// The model ended it to have tools called.
    ToolCalls,
    /// The budget or the context was used up.
    Length,
    /// The caller cancelled, or is gone.
    Cancelled,
    /// The caller left too many events unread.
    SlowConsumer,
}

impl FinishReason {
    /// The reason of a turn with so many calls.
    fn new(reason: StopReason, calls: usize) -> Self {
        match reason {
            StopReason::Eos | StopReason::EndOfTurn | StopReason::StopToken | StopReason::Complete if calls > 0 => {
                Self::ToolCalls
            }
            StopReason::Eos
            | StopReason::EndOfTurn
            | StopReason::StopToken
            | StopReason::StopString
            | StopReason::Complete => Self::Stop,
            StopReason::MaxTokens => Self::Length,
            StopReason::Cancelled => Self::Cancelled,
            StopReason::SlowConsumer => Self::SlowConsumer,
        }
    }

    /// The reason as one word, for machines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
            Self::SlowConsumer => "slow_consumer",
        }
    }
}
