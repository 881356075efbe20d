//! Where a weight's values come from: an expression over the checkpoint's tensors.
//!
//! A device evaluates it once, when it loads the weight; it is never a step at run time.

use std::fmt;

/// An expression over the checkpoint's tensors, by canonical (Hugging Face) name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// The tensor as stored.
    Tensor(String),
    /// One added to every value: a centred norm `x · (1 + w)` stored as `w`.
    PlusOne(Box<Source>),
}

impl Source {
    /// The tensor of this name, as stored.
    pub fn tensor(name: impl Into<String>) -> Self {
        Self::Tensor(name.into())
    }

    /// `1 + self`.
    pub fn plus_one(self) -> Self {
        Self::PlusOne(Box::new(self))
    }

    /// The stored tensors this expression reads.
    pub fn tensors(&self) -> Vec<&str> {
        match self {
            Self::Tensor(name) => vec![name],
            Self::PlusOne(inner) => inner.tensors(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor(name) => f.write_str(name),
            Self::PlusOne(inner) => write!(f, "1 + {inner}"),
        }
    }
}
