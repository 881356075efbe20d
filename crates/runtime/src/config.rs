//! What one generation is asked to do.

use crate::pacing::Pace;
use foundation::TokenId;
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
            pace: Pace::default(),
            continues_prompt: false,
        }
    }
}
