//! One answer as it grows: the logits of its last token in, the next token out. Every loop chooses through here.

use crate::RuntimeError;
use crate::config::GenerationConfig;
use crate::raw_completion::{Progress, StopReason};
use crate::token_sink::TokenSink;
use foundation::{LogitValue, TokenId};
use selection::{History, LogProbs, Scratch, SelectError, Shaping, Step, logprobs, select, shaped_logprobs};
use tokenizer::Tokenizer;

/// The answer to one prompt.
pub(crate) struct Answer {
    shaping: Shaping,
    history: History,
    scratch: Scratch,
    sink: TokenSink,
    prompt: usize,
    budget: usize,
    /// How many of the best tokens to report beside each chosen one, and what was reported.
    top: Option<usize>,
    logprobs: Vec<TokenLogProbs>,
}

/// How probable a chosen token was, and which others were.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogProbs {
    /// Under the model's own distribution: the softmax of the raw logits.
    pub model: LogProbs,
    /// In the distribution that was drawn from, after every sampler, bias and mask.
    pub shaped: LogProbs,
}

/// An answer that is complete.
pub(crate) struct Finished {
    pub(crate) text: String,
    /// Without the token that stopped it.
    pub(crate) ids: Vec<TokenId>,
    /// Tokens chosen, the stopping one included.
    pub(crate) new_tokens: usize,
    /// One for each of `ids`, if they were asked for.
    pub(crate) logprobs: Option<Vec<TokenLogProbs>>,
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
        let mut history = History::for_shaping(&config.shaping);
        history.push_prompt(prompt);
        Self {
            shaping: config.shaping.clone(),
            history,
            scratch: Scratch::new(),
            sink: TokenSink::new(tokenizer, config),
            prompt: prompt.len(),
            budget,
            top: config.logprobs,
            logprobs: Vec::new(),
        }
    }

    /// Chooses the next token. Its random number follows from its position alone.
    pub(crate) fn choose(
        &mut self,
        logits: &[LogitValue],
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<Choice, SelectError> {
        let position = (self.prompt + self.sink.committed()) as u64;
        let step = Step::new(&self.history, position);
        let chosen = select(logits, &self.shaping, step, &mut self.scratch)?;
        let id = chosen.token;
        if let Some(top) = self.top {
            let model = logprobs(logits, id, top, position)?;
            let shaped = shaped_logprobs(logits, &self.shaping, step, (chosen, top), &mut self.scratch)?;
            self.logprobs.push(TokenLogProbs { model, shaped });
        }
        if let Some(reason) = self.sink.commit(id, on_progress) {
            return Ok(Choice::Stop(reason));
        }
        self.history.push_chosen(chosen, &self.shaping);
        Ok(if self.sink.committed() == self.budget { Choice::Stop(StopReason::MaxTokens) } else { Choice::Feed(id) })
    }

    /// Releases what was held back.
    pub(crate) fn finish(self, on_progress: &mut dyn FnMut(Progress)) -> Finished {
        let Self { sink, top, mut logprobs, .. } = self;
        let (text, ids, new_tokens) = sink.finish(on_progress);
        logprobs.truncate(ids.len());
        Finished { text, ids, new_tokens, logprobs: top.map(|_| logprobs) }
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
    config.check()?;
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
