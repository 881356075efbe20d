//! The one way from a chosen token to the caller: stop tokens, detokeniser, stop strings, events.

use crate::config::GenerationConfig;
use crate::raw_completion::{Progress, StopReason};
use foundation::TokenId;
use tokenizer::{StopMatcher, StreamDecoder, Tokenizer};

pub(crate) struct TokenSink {
    /// Tokens that end the answer; where one is named twice, the first counts.
    ends: Vec<(TokenId, StopReason)>,
    decoder: StreamDecoder,
    stops: StopMatcher,
    stopped_by_text: bool,
    text: String,
    ids: Vec<TokenId>,
    committed: usize,
}

impl TokenSink {
    pub(crate) fn new(tokenizer: &Tokenizer, config: &GenerationConfig) -> Self {
        let decoder = tokenizer.stream(true);
        let eos = tokenizer.eos();
        let reason = |id: TokenId| if eos == Some(id) { StopReason::Eos } else { StopReason::EndOfTurn };
        let extra = config.extra_stop_tokens.iter().map(|id| (*id, StopReason::StopToken));
        let own = tokenizer.stop_ids().iter().filter(|_| !config.ignore_eos).map(|id| (*id, reason(*id)));
        Self {
            ends: extra.chain(own).collect(),
            decoder: if config.continues_prompt { decoder.continuing() } else { decoder },
            stops: StopMatcher::new(&config.stop_strings),
            stopped_by_text: false,
            text: String::new(),
            ids: Vec::new(),
            committed: 0,
        }
    }

    /// Tokens taken so far, the stopping one included.
    pub(crate) fn committed(&self) -> usize {
        self.committed
    }

    /// Takes the next token; a reason means that it was the last.
    pub(crate) fn commit(&mut self, id: TokenId, on_progress: &mut dyn FnMut(Progress)) -> Option<StopReason> {
        let index = self.committed;
        self.committed += 1;
        if let Some((_, reason)) = self.ends.iter().find(|(end, _)| *end == id) {
            return Some(*reason);
        }
        self.ids.push(id);
        let outcome = self.stops.push(&self.decoder.push(id));
        self.text.push_str(&outcome.text);
        self.stopped_by_text = outcome.stopped;
        on_progress(Progress::Token { index, id, delta: outcome.text });
        outcome.stopped.then_some(StopReason::StopString)
    }

    /// Releases what was held back; returns the text, its tokens, and how many were committed.
    pub(crate) fn finish(mut self, on_progress: &mut dyn FnMut(Progress)) -> (String, Vec<TokenId>, usize) {
        if !self.stopped_by_text {
            let last = self.stops.push(&self.decoder.finish());
            let mut tail = last.text;
            if !last.stopped {
                tail.push_str(&self.stops.finish());
            }
            if !tail.is_empty() {
                self.text.push_str(&tail);
                on_progress(Progress::Tail(tail));
            }
        }
        (self.text, self.ids, self.committed)
    }
}
