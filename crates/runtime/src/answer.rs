//! One answer as it grows: the logits of its last token in, the next token out. Every loop chooses through here.

use crate::RuntimeError;
use crate::config::GenerationConfig;
use crate::raw_completion::{Progress, StopReason};
use crate::token_sink::TokenSink;
use foundation::{LogitValue, TokenId};
use selection::{History, Scratch, SelectError, Shaping, select};
use tokenizer::Tokenizer;

/// The answer to one prompt.
pub(crate) struct Answer {
    shaping: Shaping,
    history: History,
    scratch: Scratch,
    sink: TokenSink,
    prompt: usize,
    budget: usize,
}

/// What follows from a row of logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This token goes on; the model must see it.
    Feed(TokenId),
    /// The answer is complete.
    Stop(StopReason),
}

impl Answer {
    /// An answer of at most `budget` tokens.
    pub(crate) fn new(tokenizer: &Tokenizer, config: &GenerationConfig, prompt: &[TokenId], budget: usize) -> Self {
        let mut history = History::new();
        history.push_prompt(prompt);
        Self {
            shaping: config.shaping,
            history,
            scratch: Scratch::new(),
            sink: TokenSink::new(tokenizer, config),
            prompt: prompt.len(),
            budget,
        }
    }

    /// Chooses the next token. Its random number follows from its position alone.
    pub(crate) fn choose(
        &mut self,
        logits: &[LogitValue],
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<Choice, SelectError> {
        let position = (self.prompt + self.sink.committed()) as u64;
        let id = select(logits, &self.shaping, &self.history, position, &mut self.scratch)?;
        if let Some(reason) = self.sink.commit(id, on_progress) {
            return Ok(Choice::Stop(reason));
        }
        self.history.push(id);
        Ok(if self.sink.committed() == self.budget { Choice::Stop(StopReason::MaxTokens) } else { Choice::Feed(id) })
    }

    /// Releases what was held back; returns the text, its tokens, and how many were chosen.
    pub(crate) fn finish(self, on_progress: &mut dyn FnMut(Progress)) -> (String, Vec<TokenId>, usize) {
        self.sink.finish(on_progress)
    }
}

/// Refuses what cannot work before the model sees a token; returns the number of tokens to generate.
pub(crate) fn admit(prompt: usize, config: &GenerationConfig, context: usize) -> Result<usize, RuntimeError> {
    if prompt == 0 {
        return Err(RuntimeError::EmptyPrompt);
    }
    if prompt >= context {
        return Err(RuntimeError::PromptTooLong { prompt, context });
    }
    let new = config.max_new_tokens.unwrap_or(context - prompt);
    if new == 0 {
        return Err(RuntimeError::ZeroBudget);
    }
    let total = prompt.saturating_add(new);
    if total > context {
        return Err(RuntimeError::ContextOverflow { prompt, new, total, context });
    }
    Ok(new)
}
