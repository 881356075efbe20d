//! Vocabularies, streams and comparisons for tests of dialects.
#![allow(dead_code)]

use super::byte_vocabulary;
use foundation::TokenId;
use turbospark_tokenizer::{Dialect, Encode, GgufVocab, ReplyEvent, ReplyParser, Tokenizer, ToolCall, Tools};

/// How a vocabulary holds the markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// As control tokens, which decode to nothing.
    Control,
    /// As tokens that decode to their text.
    Shown,
    /// Not at all: they are spelled.
    Nothing,
}

pub(crate) const HOLDS: [Holds; 3] = [Holds::Control, Holds::Shown, Holds::Nothing];

/// The markers that vocabularies of a dialect hold as tokens.
pub(crate) fn marker_tokens(dialect: &str) -> &'static [&'static str] {
    match dialect {
        "gemma4" => &["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>"],
        "harmony" => &["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"],
        "muse" => &["<|start|>", "<|message|>", "<|eom|>", "<|eot|>"],
        "mistral" | "mistral-v11" => &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"],
        "llama3" => &["<|python_tag|>", "<think>", "</think>"],
        "minimax" => &["<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>"],
        "deepseek" | "deepseek-v3" => &[
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁end｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁sep｜>",
            "<think>",
            "</think>",
        ],
        "deepseek-dsml" => &["｜DSML｜", "<think>", "</think>"],
        "glm" => &[
            "<tool_call>",
            "</tool_call>",
            "<arg_key>",
            "</arg_key>",
            "<arg_value>",
            "</arg_value>",
            "<think>",
            "</think>",
        ],
        "kimi" => &[
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_end|>",
            "<|tool_call_argument_begin|>",
            "<think>",
            "</think>",
        ],
        _ => &["<think>", "</think>", "<tool_call>", "</tool_call>"],
    }
}

/// Bytes, end tokens and these tokens.
pub(crate) fn vocabulary(tokens: &[&str], holds: Holds) -> Tokenizer {
    let mut vocab = byte_vocabulary();
    vocab.tokens.truncate(258);
    vocab.types.truncate(258);
    for token in tokens.iter().filter(|_| holds != Holds::Nothing) {
        vocab.tokens.push((*token).to_owned());
        vocab.types.push(if holds == Holds::Control { 3 } else { 4 });
    }
    Tokenizer::from_vocab(GgufVocab { ..vocab }).unwrap()
}

pub(crate) fn dialect_vocabulary(dialect: &Dialect, holds: Holds) -> Tokenizer {
    vocabulary(marker_tokens(dialect.name), holds)
}

pub(crate) fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<TokenId> {
    tokenizer.encode(text, Encode { special: true, bos: false }).unwrap()
}

/// A parser and the ids it will be fed.
pub(crate) struct Reply<'a> {
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) dialect: &'static Dialect,
    pub(crate) prompt: &'a str,
    pub(crate) tools: Option<Tools>,
}

impl Reply<'_> {
    pub(crate) fn parser(&self) -> ReplyParser {
        let prompt = encode(self.tokenizer, self.prompt);
        ReplyParser::new(self.tokenizer, self.dialect, &prompt, self.tools.clone()).unwrap()
    }

    /// The events of `text` in full.
    pub(crate) fn read(&self, text: &str) -> Vec<ReplyEvent> {
        self.read_ids(&encode(self.tokenizer, text), |_| true, true)
    }

    /// The events of `ids`; text is handed over only after the tokens that `deliver` picks.
    pub(crate) fn read_ids(&self, ids: &[TokenId], deliver: impl Fn(usize) -> bool, finish: bool) -> Vec<ReplyEvent> {
        let mut parser = self.parser();
        let mut decoder = self.tokenizer.stream(true);
        let (mut events, mut held) = (Vec::new(), String::new());
        for (at, &id) in ids.iter().enumerate() {
            held += &decoder.push(id);
            let delta = if deliver(at) { std::mem::take(&mut held) } else { String::new() };
            events.extend(parser.push(id, &delta));
        }
        if finish {
            events.extend(parser.push_text(&(held + &decoder.finish())));
            events.extend(parser.finish());
        }
        joined(events)
    }
}

/// Neighbouring texts of one kind as one.
pub(crate) fn joined(events: Vec<ReplyEvent>) -> Vec<ReplyEvent> {
    let mut out: Vec<ReplyEvent> = Vec::new();
    for event in events {
        match (out.last_mut(), event) {
            (Some(ReplyEvent::Content(text)), ReplyEvent::Content(more)) => *text += &more,
            (Some(ReplyEvent::Reasoning(text)), ReplyEvent::Reasoning(more)) => *text += &more,
            (_, event) => out.push(event),
        }
    }
    out
}

/// Whether `part` is a beginning of `whole`.
pub(crate) fn begins(whole: &[ReplyEvent], part: &[ReplyEvent]) -> bool {
    let Some((last, before)) = part.split_last() else { return true };
    let Some(same) = whole.get(..before.len()) else { return false };
    let text_begins = match (last, whole.get(before.len())) {
        (ReplyEvent::Content(part), Some(ReplyEvent::Content(text)))
        | (ReplyEvent::Reasoning(part), Some(ReplyEvent::Reasoning(text))) => text.starts_with(part),
        (part, Some(event)) => part == event,
        (_, None) => false,
    };
    same == before && text_begins
}

pub(crate) fn content(text: &str) -> ReplyEvent {
    ReplyEvent::Content(text.to_owned())
}

pub(crate) fn reasoning(text: &str) -> ReplyEvent {
    ReplyEvent::Reasoning(text.to_owned())
}

pub(crate) fn call(name: &str, arguments: &str) -> ReplyEvent {
    ReplyEvent::ToolCall(ToolCall { id: None, name: name.to_owned(), arguments: arguments.to_owned() })
}

/// The text of all events, calls left out.
pub(crate) fn text_of(events: &[ReplyEvent]) -> String {
    events
        .iter()
        .map(|event| match event {
            ReplyEvent::Content(text) | ReplyEvent::Reasoning(text) | ReplyEvent::ReleasedToolSpan { text, .. } => {
                text.as_str()
            }
            ReplyEvent::ToolCall(_) => "",
        })
        .collect()
}

pub(crate) fn calls_of(events: &[ReplyEvent]) -> Vec<&ToolCall> {
    events.iter().filter_map(|event| if let ReplyEvent::ToolCall(call) = event { Some(call) } else { None }).collect()
}
