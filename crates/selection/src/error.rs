//! Why a row of logits gives no token.

use foundation::TokenId;
use thiserror::Error;

/// Why a row of logits gives no token. Positions are those of the token to be chosen, counted from the start of the prompt.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SelectError {
    /// The row has no entries.
    #[error("the row of logits for position {position} is empty; expected one logit per vocabulary entry")]
    Empty {
        /// The token's position.
        position: u64,
    },
    /// A logit is not a number.
    #[error(
        "position {position}: the logit of token {token} of {len} is NaN; expected a number or -infinity. The forward \
         pass or the weights are broken, and no token can be chosen"
    )]
    NotANumber {
        /// The first such token.
        token: TokenId,
        /// Length of the row.
        len: usize,
        /// The position the row is for.
        position: u64,
    },
    /// A logit is +∞, which leaves no distribution.
    #[error(
        "position {position}: the logit of token {token} of {len} is +infinity; expected a number or -infinity. The \
         forward pass overflowed, and no token can be chosen"
    )]
    PositiveInfinity {
        /// The first such token.
        token: TokenId,
        /// Length of the row.
        len: usize,
        /// The position the row is for.
        position: u64,
    },
    /// Every logit is −∞.
    #[error(
        "position {position}: all {len} tokens are masked; a grammar, a mask or logit biases must leave at least one"
    )]
    AllMasked {
        /// Length of the row.
        len: usize,
        /// The position the row is for.
        position: u64,
    },
    /// A token asked about, or biased, has no logit.
    #[error("token {id} has no logit: the row has {len} entries, so tokens are from 0 to {}", len.saturating_sub(1))]
    NoSuchToken {
        /// The token.
        id: TokenId,
        /// Length of the row.
        len: usize,
    },
}
