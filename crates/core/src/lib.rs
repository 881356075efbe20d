//! The few types every crate shares: token ids and logit values.
#![forbid(unsafe_code)]

use std::fmt;

/// An unnormalised score of one vocabulary entry.
pub type LogitValue = f32;

/// An index into a model's vocabulary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct TokenId(pub u32);

impl TokenId {
    /// The id as an index into a row of logits.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<u32> for TokenId {
    fn from(id: u32) -> Self {
        Self(id)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
