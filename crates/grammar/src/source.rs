//! What a caller can ask a reply to follow.

use crate::error::GrammarError;
use std::path::Path;

/// A description of replies, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A JSON schema; replies are JSON with `", "` and `": "` as separators and properties in declared order.
    JsonSchema(String),
    /// A regular expression that the whole reply matches.
    Regex(String),
    /// A grammar in Lark's notation, beginning at the rule `start`.
    Lark(String),
    /// A grammar in GBNF, beginning at the rule `root`.
    Gbnf(String),
}

impl Source {
    /// A grammar in the notation that the file's extension names (`lark`, `gbnf`); otherwise the text shows it: only GBNF
    /// has `::=`.
    ///
    /// # Errors
    /// A text without anything in it.
    pub fn grammar(text: String, file: &Path) -> Result<Self, GrammarError> {
        if text.trim().is_empty() {
            return Err(GrammarError::Grammar { kind: "grammar", reason: "it is empty".to_owned() });
        }
        let extension = file.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        Ok(match extension.as_deref() {
            Some("gbnf") => Self::Gbnf(text),
            Some("lark") => Self::Lark(text),
            _ if text.contains("::=") => Self::Gbnf(text),
            _ => Self::Lark(text),
        })
    }
}
