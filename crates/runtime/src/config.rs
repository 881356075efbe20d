//! What one generation is asked to do.

use crate::RuntimeError;
use crate::pacing::Pace;
use foundation::TokenId;
use grammar::Constraint;
use selection::Shaping;

/// Settings of one generation.
#[derive(Clone, Debug)]
pub struct GenerationConfig {
    /// How tokens are chosen.
    pub shaping: Shaping,
    /// Most tokens to generate, the stopping one included; `None`: until a stop or the end of the context.
    pub max_new_tokens: Option<usize>,
    /// Texts that end the answer and are not part of it.
    pub stop_strings: Vec<String>,
    /// Tokens that end the answer beside the tokenizer's own.
    pub extra_stop_tokens: Vec<TokenId>,
    /// Do not stop at the tokenizer's own stop tokens.
    pub ignore_eos: bool,
    /// Report how probable each token was, and this many of the best ones beside it; 0: the token alone.
    /// At most [`GenerationConfig::MOST_LOGPROBS`].
    pub logprobs: Option<usize>,
    /// What the answer must follow. It begins after the reasoning where the prompt leaves one open, and the answer ends where
    /// nothing more may follow. Refused in a conversation whose dialect writes messages with headers.
    pub constraint: Option<Constraint>,
    /// How fast tokens may come; changes none of them. A scheduler refuses anything but the default.
    pub pace: Pace,
    /// The text continues the prompt, so that a space in front of its first word belongs to it.
    pub continues_prompt: bool,
}

impl Default for GenerationConfig {
    fn default() -> Self {
        Self {
            shaping: Shaping::greedy(),
            max_new_tokens: None,
            stop_strings: Vec::new(),
            extra_stop_tokens: Vec::new(),
            ignore_eos: false,
            logprobs: None,
            constraint: None,
            pace: Pace::default(),
            continues_prompt: false,
        }
    }
}

impl GenerationConfig {
    /// Most tokens reported beside each chosen one.
    pub const MOST_LOGPROBS: usize = 100;

    /// Refuses what no model could do. [`Shaping`] was checked when it was made.
    ///
    /// # Errors
    /// More log-probabilities than are reported, or an empty stop string.
    pub fn check(&self) -> Result<(), RuntimeError> {
        let refuse = |found: String, reason: &str| Err(RuntimeError::BadValue { found, reason: reason.to_owned() });
        match self.logprobs {
            Some(top) if top > Self::MOST_LOGPROBS => {
                refuse(format!("logprobs {top}"), &format!("it must be from 0 to {}", Self::MOST_LOGPROBS))
            }
            _ if self.stop_strings.iter().any(String::is_empty) => {
                refuse("stop_strings [\"\"]".to_owned(), "an empty text would end every answer at once; leave it out")
            }
            _ => Ok(()),
        }
    }
}
