//! One answer as it grows: the logits of its last token in, the next token out. Every loop chooses through here.

use crate::RuntimeError;
use crate::config::GenerationConfig;
use crate::follow::{self, Follow};
use crate::raw_completion::{Progress, StopReason};
use crate::token_sink::TokenSink;
use foundation::{LogitValue, TokenId};
use selection::{Candidate, History, LogProb, LogProbs, Scratch, Shaping, Step, logprobs, select, shaped_logprobs};
use tokenizer::Tokenizer;

/// The answer to one prompt.
pub(crate) struct Answer {
    shaping: Shaping,
    history: History,
    scratch: Scratch,
    sink: TokenSink,
    /// What the answer must follow.
    follow: Option<Follow>,
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
            follow: Follow::new(tokenizer, config, prompt),
            prompt: prompt.len(),
            budget,
            top: config.logprobs,
            logprobs: Vec::new(),
        }
    }

    /// Chooses the next token, and adds it to `feed` with those that the constraint leaves no choice about after it; the
    /// model must see them. A reason means that the answer is complete, and then nothing more need be fed.
    ///
    /// A token's random number follows from its position alone, and so does whether it is forced from the tokens before it:
    /// how many are fed together changes none of them.
    pub(crate) fn choose(
        &mut self,
        logits: &[LogitValue],
        feed: &mut Vec<TokenId>,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<StopReason>, RuntimeError> {
        let mut chosen = match self.follow.as_mut().and_then(Follow::forced) {
            Some(token) => self.forced(token, logits)?,
            None => self.drawn(logits)?,
        };
        loop {
            if let Some(reason) = self.commit(chosen, on_progress)? {
                return Ok(Some(reason));
            }
            feed.push(chosen.token);
            // A report needs the logits of every token.
            let next = self.follow.as_mut().filter(|follow| follow.feeds_chunks() && self.top.is_none());
            match next.and_then(Follow::forced) {
                Some(token) => chosen = Candidate { token, probability: 1.0 },
                None => return Ok(None),
            }
        }
    }

    /// The position of the next token.
    fn position(&self) -> u64 {
        (self.prompt + self.sink.committed()) as u64
    }

    fn drawn(&mut self, logits: &[LogitValue]) -> Result<Candidate, RuntimeError> {
        let position = self.position();
        let step = Step::new(&self.history, position);
        let step = match &mut self.follow {
            Some(follow) => step.masked(follow.allowed()?),
            None => step,
        };
        let chosen = select(logits, &self.shaping, step, &mut self.scratch)?;
        if let Some(top) = self.top {
            let model = logprobs(logits, chosen.token, top, position)?;
            let shaped = shaped_logprobs(logits, &self.shaping, step, (chosen, top), &mut self.scratch)?;
            self.logprobs.push(TokenLogProbs { model, shaped });
        }
        Ok(chosen)
    }

    /// The only token that may come.
    fn forced(&mut self, token: TokenId, logits: &[LogitValue]) -> Result<Candidate, RuntimeError> {
        if let Some(top) = self.top {
            let model = logprobs(logits, token, top, self.position())?;
            let chosen = LogProb { token, logprob: 0.0 };
            let shaped = LogProbs { chosen, top: vec![chosen; top.min(1)] };
            self.logprobs.push(TokenLogProbs { model, shaped });
        }
        Ok(Candidate { token, probability: 1.0 })
    }

    fn commit(
        &mut self,
        chosen: Candidate,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<StopReason>, RuntimeError> {
        let ended = match &mut self.follow {
            Some(follow) => follow.take(chosen.token)?,
            None => false,
        };
        if let Some(reason) = self.sink.commit(chosen.token, on_progress) {
            return Ok(Some(reason));
        }
        self.history.push_chosen(chosen, &self.shaping);
        Ok(if ended {
            Some(StopReason::Complete)
        } else {
            (self.sink.committed() == self.budget).then_some(StopReason::MaxTokens)
        })
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
pub(crate) fn admit(
    prompt: usize,
    (tokenizer, config): (&Tokenizer, &GenerationConfig),
    context: usize,
) -> Result<usize, RuntimeError> {
    if prompt == 0 {
        return Err(RuntimeError::EmptyPrompt);
    }
    if prompt >= context {
        return Err(RuntimeError::PromptTooLong { prompt, context });
    }
    config.check()?;
    follow::check(tokenizer, config)?;
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
