//! A constraint's state along one answer: which tokens may come, which must, and when nothing more may.

use crate::RuntimeError;
use crate::config::GenerationConfig;
use foundation::TokenId;
use grammar::{GrammarError, Mask, Session};
use tokenizer::{Framing, StreamDecoder, Tokenizer};

/// Where one answer stands. It depends on the answer's tokens alone, not on where or when they are computed.
pub(crate) struct Follow {
    session: Session,
    mask: Mask,
    chunks: bool,
    reasoning: Option<OpenReasoning>,
}

/// Reasoning that the prompt has left open, to which the constraint does not apply.
struct OpenReasoning {
    decoder: StreamDecoder,
    text: String,
    close: &'static str,
    /// Every token but those that end an answer: it would end without what was asked for.
    allowed: Vec<u32>,
}

/// Refuses a constraint where it cannot be said which part of the answer it is for.
pub(crate) fn check(tokenizer: &Tokenizer, config: &GenerationConfig) -> Result<(), RuntimeError> {
    let dialect = tokenizer.dialect();
    let chat = config.constraint.is_some() && !config.continues_prompt;
    match dialect.framing {
        Framing::Messages(_) if chat => Err(RuntimeError::ConstrainedMessages { dialect: dialect.name }),
        _ => Ok(()),
    }
}

impl Follow {
    /// At the beginning of the answer to `prompt`; `None` without a constraint.
    pub(crate) fn new(tokenizer: &Tokenizer, config: &GenerationConfig, prompt: &[TokenId]) -> Option<Self> {
        let constraint = config.constraint.as_ref()?;
        let close = if config.continues_prompt { None } else { tokenizer.open_reasoning(prompt) };
        let reasoning = close.map(|close| {
            let mut allowed = vec![u32::MAX; tokenizer.vocab_size().div_ceil(32)];
            for id in tokenizer.stop_ids() {
                if let Some(word) = allowed.get_mut(id.index() / 32) {
                    *word &= !(1 << (id.index() % 32));
                }
            }
            OpenReasoning { decoder: tokenizer.stream(false), text: String::new(), close, allowed }
        });
        Some(Self {
            session: constraint.session(),
            mask: Mask::default(),
            chunks: constraint.feeds_chunks(),
            reasoning,
        })
    }

    /// Whether tokens that must come may be fed together.
    pub(crate) fn feeds_chunks(&self) -> bool {
        self.chunks
    }

    /// The token that must come next, if there is but one.
    pub(crate) fn forced(&mut self) -> Option<TokenId> {
        if self.reasoning.is_some() { None } else { self.session.forced() }
    }

    /// The tokens that may come next, as bits.
    pub(crate) fn allowed(&mut self) -> Result<&[u32], GrammarError> {
        if let Some(reasoning) = &self.reasoning {
            return Ok(&reasoning.allowed);
        }
        self.mask = self.session.mask()?;
        Ok(self.mask.words())
    }

    /// Goes on by one token; true if nothing may follow it.
    pub(crate) fn take(&mut self, id: TokenId) -> Result<bool, GrammarError> {
        let Some(reasoning) = &mut self.reasoning else {
            self.session.take(id)?;
            return Ok(self.session.is_ended());
        };
        reasoning.text.push_str(&reasoning.decoder.push(id));
        if reasoning.text.contains(reasoning.close) {
            self.reasoning = None;
        } else {
            // Only what may be the beginning of the marker is still needed.
            let keep = reasoning.text.len().saturating_sub(reasoning.close.len());
            let from = (keep..=reasoning.text.len()).find(|at| reasoning.text.is_char_boundary(*at));
            reasoning.text.drain(..from.unwrap_or(0));
        }
        Ok(false)
    }
}
