//! From tokens and decoded text to what a reply says: content, reasoning and calls.

use super::arguments::{CallError, ToolCall, Tools};
use super::detect::DialectError;
use super::inline::{Context, Inline, State};
use super::marked::{Marked, Markers};
use super::messages::MessageReader;
use super::{Dialect, Framing, Reasoning};
use crate::stream::StreamDecoder;
use crate::tokenizer::Tokenizer;
use foundation::TokenId;
use std::collections::VecDeque;

/// Part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyEvent {
    /// Text for the reader.
    Content(String),
    /// Text of the model thinking, without its markers.
    Reasoning(String),
    /// A complete call.
    ToolCall(ToolCall),
    /// Text between the markers of a call that is none, with the markers.
    ReleasedToolSpan {
        /// What the model wrote.
        text: String,
        /// Why it is no call.
        why: CallError,
    },
}

/// Takes a reply apart while it is generated.
///
/// It is fed every token with the text that the token released, which may be empty or belong to earlier tokens, as it
/// does behind a stop matcher. Markers that are tokens of the vocabulary are recognised by their ids only. The joined
/// events do not depend on how the text was cut, and those of an unfinished reply are a beginning of those of the
/// whole.
#[derive(Debug)]
pub struct ReplyParser {
    cx: Context,
    reader: Reader,
    /// Decodes along, to know where in the text a marker belongs.
    decoder: StreamDecoder,
    decoded: usize,
    received: usize,
    due: VecDeque<Due>,
    incoming: String,
}

#[derive(Debug)]
enum Reader {
    Text(Box<Inline>),
    Messages(Box<MessageReader>),
}

/// A marker whose text ends at a byte of the decoded text.
#[derive(Debug)]
struct Due {
    at: usize,
    token: u16,
    /// Bytes of it that are in the decoded text.
    shown: usize,
}

impl ReplyParser {
    /// A parser for the reply to `prompt`, whose end decides whether the reply begins inside reasoning or a message.
    ///
    /// Calls are recognised if `tools` are offered; a dialect without a call syntax refuses them. The text that will be
    /// pushed is that of [`Tokenizer::stream`] without special tokens.
    pub fn new(
        tokenizer: &Tokenizer,
        dialect: &'static Dialect,
        prompt: &[TokenId],
        tools: Option<Tools>,
    ) -> Result<Self, DialectError> {
        if tools.is_some() {
            dialect.check_tools()?;
        }
        let cx = Context { markers: Markers::new(dialect, tokenizer), tools };
        let reader = match &dialect.framing {
            Framing::Text => {
                let state = dialect.reasoning.map_or(State::Start, |r| state_after(tokenizer, &r, prompt));
                Reader::Text(Box::new(Inline::new(dialect, &cx.markers, state)))
            }
            Framing::Messages(messages) => {
                let mut reader = MessageReader::new(dialect, messages, &cx.markers);
                let text = open_message(tokenizer, messages.start, prompt, &cx.markers);
                reader.push(&text, &cx, &mut Vec::new());
                reader.begin();
                Reader::Messages(Box::new(reader))
            }
        };
        let decoder = tokenizer.stream(true);
        let (due, incoming) = (VecDeque::new(), String::new());
        Ok(Self { cx, reader, decoder, decoded: 0, received: 0, due, incoming })
    }

    /// For text from a decoder that [continues](StreamDecoder::continuing) the prompt.
    pub fn continuing(mut self) -> Self {
        self.decoder = self.decoder.continuing();
        self
    }

    /// Takes the next token and the text that was released with it.
    pub fn push(&mut self, id: TokenId, delta: &str) -> Vec<ReplyEvent> {
        self.decoded += self.decoder.push(id).len();
        if let Some(token) = self.cx.markers.index_of(id) {
            let marker = self.cx.markers.token(token);
            let shown = if marker.hidden { 0 } else { marker.literal.len() };
            self.due.push_back(Due { at: self.decoded.saturating_sub(shown), token, shown });
        }
        self.push_text(delta)
    }

    /// Takes text that was released without a token, at the end of a reply.
    pub fn push_text(&mut self, text: &str) -> Vec<ReplyEvent> {
        self.incoming.push_str(text);
        let mut ready = Marked::default();
        let mut at = 0;
        while let Some(due) = self.due.front() {
            let start = at + due.at.saturating_sub(self.received);
            let end = start + due.shown;
            if end > self.incoming.len() {
                break;
            }
            let literal = self.cx.markers.token(due.token).literal;
            // Text of another decoder does not line up; then the marker stands where it was announced.
            let aligned = self.incoming.is_char_boundary(start) && self.incoming.is_char_boundary(end);
            let (start, end) = if aligned { (start, end) } else { (at, at) };
            ready.push_text(&self.incoming[at..start]);
            if due.shown > 0 && self.incoming[start..end] != *literal {
                ready.push_text(&self.incoming[start..end]);
            }
            ready.push_token(due.token, &self.cx.markers);
            self.received += end - at;
            at = end;
            self.due.pop_front();
        }
        // Up to the next marker all text is plain; the marker itself waits until it is complete.
        let limit = self
            .due
            .front()
            .map_or(self.incoming.len(), |due| self.incoming.len().min(at + due.at.saturating_sub(self.received)));
        let limit = (at..=limit).rev().find(|&limit| self.incoming.is_char_boundary(limit)).unwrap_or(at);
        ready.push_text(&self.incoming[at..limit]);
        self.received += limit - at;
        self.incoming.drain(..limit);
        self.read(&ready)
    }

    /// Ends the reply and releases everything that was held back.
    pub fn finish(&mut self) -> Vec<ReplyEvent> {
        self.end(false)
    }

    /// As [`ReplyParser::finish`], for a reply that the model did not end: a call whose arguments had not begun is none.
    pub fn cut_off(&mut self) -> Vec<ReplyEvent> {
        self.end(true)
    }

    fn end(&mut self, cut: bool) -> Vec<ReplyEvent> {
        let mut rest = Marked::default();
        rest.push_text(&std::mem::take(&mut self.incoming));
        self.due.clear();
        let mut out = self.read(&rest);
        match &mut self.reader {
            Reader::Text(reader) => {
                if cut {
                    reader.cut_off();
                }
                reader.finish(&self.cx, &mut out);
            }
            Reader::Messages(reader) if cut => reader.cut_off(&self.cx, &mut out),
            Reader::Messages(reader) => reader.finish(&self.cx, &mut out),
        }
        out
    }

    fn read(&mut self, text: &Marked) -> Vec<ReplyEvent> {
        let mut out = Vec::new();
        if text.text().is_empty() {
            return out;
        }
        match &mut self.reader {
            Reader::Text(reader) => reader.push(text, &self.cx, &mut out),
            Reader::Messages(reader) => reader.push(text, &self.cx, &mut out),
        }
        out
    }
}

/// Whether a reply to `prompt` begins inside reasoning, after it, or before it.
fn state_after(tokenizer: &Tokenizer, reasoning: &Reasoning, prompt: &[TokenId]) -> State {
    let [open, close] = [reasoning.open, reasoning.close].map(|literal| tokenizer.added_id(literal));
    if open.is_none() {
        /// More tokens than the opening tag and white space after it take.
        const TAIL: usize = 24;
        let tail = tokenizer.decode(&prompt[prompt.len().saturating_sub(TAIL)..], false);
        let opened = tail.trim_end().ends_with(reasoning.open);
        let closed = tail.trim_end().ends_with(reasoning.close);
        return if opened {
            State::Reasoning { label: true }
        } else if closed {
            State::Content
        } else {
            State::Start
        };
    }
    for (at, &id) in prompt.iter().enumerate().rev() {
        if Some(id) == open {
            let label = tokenizer.decode(&prompt[at + 1..], true).trim().is_empty();
            return State::Reasoning { label };
        }
        if Some(id) == close {
            return State::Content;
        }
        // Other control tokens begin or end a turn.
        if tokenizer.is_special(id) {
            break;
        }
    }
    State::Start
}

impl Tokenizer {
    /// The marker that closes the reasoning in which a reply to `prompt` begins; `None` if it begins outside of any, or its
    /// dialect writes messages with headers.
    pub fn open_reasoning(&self, prompt: &[TokenId]) -> Option<&'static str> {
        let reasoning = self.dialect().reasoning.as_ref()?;
        matches!(state_after(self, reasoning, prompt), State::Reasoning { .. }).then_some(reasoning.close)
    }
}

/// The end of `prompt` from the start of its last message.
fn open_message(tokenizer: &Tokenizer, start: &'static str, prompt: &[TokenId], markers: &Markers) -> Marked {
    let mut text = Marked::default();
    let Some(id) = tokenizer.added_id(start) else { return text };
    let Some(at) = prompt.iter().rposition(|&token| token == id) else { return text };
    let mut decoder = tokenizer.stream(true);
    for &id in &prompt[at..] {
        let decoded = decoder.push(id);
        match markers.index_of(id) {
            Some(token) => text.push_token(token, markers),
            None => text.push_text(&decoded),
        }
    }
    text
}
