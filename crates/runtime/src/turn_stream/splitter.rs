//! From a generation's progress to a turn's events.

use super::{FinishReason, TurnEnd, TurnEvent, TurnOptions, Usage};
use crate::RuntimeError;
use crate::config::GenerationConfig;
use crate::raw_completion::{Progress, RawDecodeResult, StopReason};
use foundation::TokenId;
use tokenizer::{DialectError, ReplyEvent, ReplyParser, Tokenizer};

/// Takes one generation apart. It must see every event, those without text included: tokens decide where markers are.
#[derive(Debug)]
pub struct TurnSplitter {
    /// `None`: all is content.
    parser: Option<ReplyParser>,
    calls: usize,
    /// Tokens seen, and bytes of text.
    tokens: usize,
    bytes: usize,
}

impl TurnSplitter {
    /// For the answer that `config` makes after `prompt`, whose end decides whether the answer begins inside reasoning.
    ///
    /// # Errors
    /// Tools for a dialect without a call syntax.
    pub fn new(
        tokenizer: &Tokenizer,
        prompt: &[TokenId],
        config: &GenerationConfig,
        options: &TurnOptions,
    ) -> Result<Self, RuntimeError> {
        let parser = match (options.dialect, &options.tools) {
            (Some(dialect), tools) => Some(ReplyParser::new(tokenizer, dialect, prompt, tools.clone())?),
            (None, Some(_)) => return Err(DialectError::NoTools { dialect: "none" }.into()),
            (None, None) => None,
        };
        let parser = parser.map(|parser| if config.continues_prompt { parser.continuing() } else { parser });
        Ok(Self { parser, calls: 0, tokens: 0, bytes: 0 })
    }

    /// Takes what happened; returns what follows from it.
    pub fn take(&mut self, progress: Progress) -> Vec<TurnEvent> {
        match progress {
            Progress::Recompute { known, reused } => vec![TurnEvent::Recompute { known, reused }],
            Progress::Prefill { done, total } => vec![TurnEvent::Prefill { done, total }],
            Progress::Token { id, delta, .. } => self.token(id, delta),
            Progress::Tail(text) => self.text(text),
        }
    }

    /// Ends the turn: what was held back, also what never arrived because its reader was too slow, and the end that
    /// [`TurnEvent::Finished`] is to tell after it.
    pub fn finish(mut self, record: RawDecodeResult) -> (Vec<TurnEvent>, TurnEnd) {
        let missing = record.ids.get(self.tokens..).unwrap_or_default();
        let mut events: Vec<_> = missing.iter().flat_map(|id| self.token(*id, String::new())).collect();
        let rest = record.text.get(self.bytes..).unwrap_or_default().to_owned();
        events.extend(self.text(rest));
        if let Some(parser) = &mut self.parser {
            let ended = matches!(
                record.reason,
                StopReason::Eos | StopReason::EndOfTurn | StopReason::StopToken | StopReason::Complete
            );
            let last = if ended { parser.finish() } else { parser.cut_off() };
            events.extend(self.events(last));
        }
        let finish = FinishReason::new(record.reason, self.calls);
        let usage =
            Usage { prompt: record.prompt_tokens, reused: record.reused_prefix_tokens, completion: record.new_tokens };
        (events, TurnEnd { finish, usage, record })
    }

    fn token(&mut self, id: TokenId, delta: String) -> Vec<TurnEvent> {
        self.tokens += 1;
        self.bytes += delta.len();
        match &mut self.parser {
            Some(parser) => {
                let events = parser.push(id, &delta);
                self.events(events)
            }
            None => content(delta),
        }
    }

    fn text(&mut self, text: String) -> Vec<TurnEvent> {
        self.bytes += text.len();
        match &mut self.parser {
            Some(parser) => {
                let events = parser.push_text(&text);
                self.events(events)
            }
            None => content(text),
        }
    }

    fn events(&mut self, events: Vec<ReplyEvent>) -> Vec<TurnEvent> {
        self.calls += events.iter().filter(|event| matches!(event, ReplyEvent::ToolCall(_))).count();
        let said = |event: &ReplyEvent| match event {
            ReplyEvent::Content(text) | ReplyEvent::Reasoning(text) => !text.is_empty(),
            ReplyEvent::ToolCall(_) | ReplyEvent::ReleasedToolSpan { .. } => true,
        };
        events.into_iter().filter(said).map(TurnEvent::from).collect()
    }
}

impl From<ReplyEvent> for TurnEvent {
    fn from(event: ReplyEvent) -> Self {
        match event {
            ReplyEvent::Content(text) => Self::Content(text),
            ReplyEvent::Reasoning(text) => Self::Reasoning(text),
            ReplyEvent::ToolCall(call) => Self::ToolCall(call),
            ReplyEvent::ReleasedToolSpan { text, why } => Self::ReleasedToolSpan { text, why },
        }
    }
}

fn content(text: String) -> Vec<TurnEvent> {
    if text.is_empty() { Vec::new() } else { vec![TurnEvent::Content(text)] }
}
