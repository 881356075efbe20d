//! The one way from a chosen token to the caller: stop tokens, detokeniser, stop strings, events.

use crate::config::GenerationConfig;
use crate::raw_completion::{Progress, StopReason};
use foundation::TokenId;
use tokenizer::{StopMatcher, StreamDecoder, Tokenizer};

pub(crate) struct TokenSink<'a> {
    tokenizer: &'a Tokenizer,
    config: &'a GenerationConfig,
    on_progress: &'a mut dyn FnMut(Progress),
    decoder: StreamDecoder,
    stops: StopMatcher,
    stopped_by_text: bool,
    text: String,
    ids: Vec<TokenId>,
    committed: usize,
}

impl<'a> TokenSink<'a> {
    pub(crate) fn new(
        tokenizer: &'a Tokenizer,
        config: &'a GenerationConfig,
        on_progress: &'a mut dyn FnMut(Progress),
    ) -> Self {
        let decoder = tokenizer.stream(true);
        Self {
            tokenizer,
            config,
            on_progress,
            decoder: if config.continues_prompt { decoder.continuing() } else { decoder },
            stops: StopMatcher::new(&config.stop_strings),
            stopped_by_text: false,
            text: String::new(),
            ids: Vec::new(),
            committed: 0,
        }
    }

    /// Takes the next token; a reason means that it was the last.
    pub(crate) fn commit(&mut self, id: TokenId) -> Option<StopReason> {
        let index = self.committed;
        self.committed += 1;
        if let Some(reason) = self.stop_token(id) {
            return Some(reason);
        }
        self.ids.push(id);
        let outcome = self.stops.push(&self.decoder.push(id));
        self.text.push_str(&outcome.text);
        self.stopped_by_text = outcome.stopped;
        (self.on_progress)(Progress::Token { index, id, delta: outcome.text });
        outcome.stopped.then_some(StopReason::StopString)
    }

    fn stop_token(&self, id: TokenId) -> Option<StopReason> {
        if self.config.extra_stop_tokens.contains(&id) {
            return Some(StopReason::StopToken);
        }
        if self.config.ignore_eos || !self.tokenizer.stop_ids().contains(&id) {
            return None;
        }
        Some(if self.tokenizer.eos() == Some(id) { StopReason::Eos } else { StopReason::EndOfTurn })
    }

    /// Releases what was held back; returns the text, its tokens, and how many were committed.
    pub(crate) fn finish(mut self) -> (String, Vec<TokenId>, usize) {
        if !self.stopped_by_text {
            let last = self.stops.push(&self.decoder.finish());
            let mut tail = last.text;
            if !last.stopped {
                tail.push_str(&self.stops.finish());
            }
            if !tail.is_empty() {
                self.text.push_str(&tail);
                (self.on_progress)(Progress::Tail(tail));
            }
        }
        (self.text, self.ids, self.committed)
    }
}
