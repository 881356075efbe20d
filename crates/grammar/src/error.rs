//! Why something cannot be enforced.

/// A grammar is refused, or a reply cannot follow it any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// The text of a schema is not JSON.
    #[error("the schema is not JSON: {reason}")]
    NotJson {
        /// The parser's reason, with line and column.
        reason: String,
    },
    /// A part of a schema cannot be enforced.
    #[error("the schema cannot be enforced at `{path}`: {reason}")]
    Schema {
        /// JSON pointer of the part; `#` is the whole.
        path: String,
        /// What is wrong, or not supported.
        reason: String,
    },
    /// A regular expression, or a grammar in Lark's notation, is wrong.
    #[error("the {kind} is refused: {reason}")]
    Grammar {
        /// What kind of source it is.
        kind: &'static str,
        /// What is wrong and where.
        reason: String,
    },
    /// A GBNF grammar is wrong, or says what is not supported.
    #[error("the GBNF grammar is refused at line {line}, column {column}: {reason}")]
    Gbnf {
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
        /// What is wrong.
        reason: String,
    },
    /// Calls of tools cannot be forced.
    #[error("a tool call cannot be forced: {reason}")]
    Call {
        /// What is missing.
        reason: String,
    },
    /// The vocabulary cannot be searched.
    #[error("the vocabulary cannot be constrained: {reason}")]
    Vocabulary {
        /// Why not.
        reason: String,
    },
    /// Nothing may follow, or the grammar became too large to follow.
    #[error("after {tokens} tokens the grammar cannot be followed further: {reason}")]
    Stuck {
        /// Tokens of the reply so far.
        tokens: usize,
        /// Why.
        reason: String,
    },
    /// A token that the grammar does not allow.
    #[error("token {token} is not allowed after {tokens} tokens of the reply")]
    NotAllowed {
        /// The token.
        token: u32,
        /// Tokens of the reply so far.
        tokens: usize,
    },
}
