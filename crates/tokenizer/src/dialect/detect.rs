//! Which dialect a model speaks: found in its vocabulary and chat template, or named.

use super::Dialect;
use super::table::{DIALECTS, PLAIN_TEXT};
use crate::tokenizer::Tokenizer;

/// What gives a dialect away: all of the tokens and all of the pieces of the chat template.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) tokens: &'static [&'static str],
    pub(crate) template: &'static [&'static str],
}

/// A dialect that cannot do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialectError {
    /// No dialect has this name.
    #[error("unknown dialect `{name}`; known: {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// All names, separated by commas.
        known: String,
    },
    /// Tools were offered to a model whose call syntax is not known.
    #[error(
        "this model cannot be offered tools: no syntax for tool calls is known for the dialect `{dialect}`; leave the \
         tools out, or name the dialect that the model writes"
    )]
    NoTools {
        /// The model's dialect.
        dialect: &'static str,
    },
}

impl Dialect {
    /// The dialect with this name.
    pub fn named(name: &str) -> Result<&'static Self, DialectError> {
        Self::all().find(|dialect| dialect.name == name).ok_or_else(|| DialectError::Unknown {
            name: name.to_owned(),
            known: Self::all().map(|dialect| dialect.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Every dialect, each once.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        DIALECTS
            .iter()
            .enumerate()
            .filter(|(at, (dialect, _))| !DIALECTS[..*at].iter().any(|(other, _)| other.name == dialect.name))
            .map(|(_, (dialect, _))| *dialect)
    }

    /// Refuses tools where no call syntax is known.
    pub fn check_tools(&self) -> Result<(), DialectError> {
        self.tools.as_ref().map(|_| ()).ok_or(DialectError::NoTools { dialect: self.name })
    }
}

impl Tokenizer {
    /// The dialect that the vocabulary and the chat template point to; plain text if neither does.
    pub fn dialect(&self) -> &'static Dialect {
        let template = self.chat_template().unwrap_or_default();
        let complete = |evidence: &Evidence| {
            evidence.tokens.iter().all(|token| self.added_id(token).is_some())
                && evidence.template.iter().all(|piece| template.contains(piece))
        };
        DIALECTS.iter().find(|(_, evidence)| evidence.iter().any(complete)).map_or(&PLAIN_TEXT, |(dialect, _)| *dialect)
    }
}
