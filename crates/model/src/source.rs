//! Where a weight's values come from: an expression over the checkpoint's tensors.
//!
//! A device evaluates it once, when it loads the weight; it is never a step at run time. A tensor counts as a matrix:
//! its last dimension are the columns, all others together the rows; a vector is one row.

use std::fmt;

/// An expression over the checkpoint's tensors, by canonical (Hugging Face) name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// The tensor as stored.
    Tensor(String),
    /// One added to every value: a centred norm `x · (1 + w)` stored as `w`.
    PlusOne(Box<Source>),
    /// `-exp` of every value: a decay stored as its logarithm.
    NegExp(Box<Source>),
    /// Some of the rows, losslessly: of each `every` rows the `len` from `first`.
    Rows {
        /// The rows to choose from.
        of: Box<Source>,
        /// First row taken of each group.
        first: usize,
        /// Rows taken of each group.
        len: usize,
        /// Rows of a group.
        every: usize,
    },
    /// One above the other, losslessly where the types agree.
    Stack(Vec<Source>),
    /// Each of `count` matrices one above the other, transposed.
    Transpose {
        /// The matrices.
        of: Box<Source>,
        /// How many.
        count: usize,
    },
    /// All values one below the other, `[n, 1]`.
    Column(Box<Source>),
    /// Blocks of 32 four-bit floats with one exponent each, in two tensors: `blocks [.., rows, blocks, 16]`, neighbours
    /// in a byte, and `scales [.., rows, blocks]` (OCP MXFP4, as gpt-oss is released).
    Mxfp4 {
        /// The codes.
        blocks: String,
        /// The exponents.
        scales: String,
    },
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

    /// `-exp(self)`.
    pub fn neg_exp(self) -> Self {
        Self::NegExp(Box::new(self))
    }

    /// Of each `every` rows the `len` from `first`.
    pub fn rows(self, first: usize, len: usize, every: usize) -> Self {
        if first == 0 && len == every { self } else { Self::Rows { of: Box::new(self), first, len, every } }
    }

    /// Each of `count` matrices transposed.
    pub fn transpose(self, count: usize) -> Self {
        Self::Transpose { of: Box::new(self), count }
    }

    /// All values one below the other.
    pub fn column(self) -> Self {
        Self::Column(Box::new(self))
    }

    /// The stored tensors this expression reads.
    pub fn tensors(&self) -> Vec<&str> {
        match self {
            Self::Tensor(name) => vec![name],
            Self::PlusOne(of) | Self::NegExp(of) | Self::Column(of) => of.tensors(),
            Self::Rows { of, .. } | Self::Transpose { of, .. } => of.tensors(),
            Self::Stack(parts) => parts.iter().flat_map(Self::tensors).collect(),
            Self::Mxfp4 { blocks, scales } => vec![blocks, scales],
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor(name) => f.write_str(name),
            Self::PlusOne(of) => write!(f, "1 + {of}"),
            Self::NegExp(of) => write!(f, "-exp({of})"),
            Self::Rows { of, first, len, every } => write!(f, "{of}[{first}..{} of {every}]", first + len),
            Self::Stack(parts) => match parts.as_slice() {
                [] => f.write_str("nothing"),
                [one] => write!(f, "{one}"),
                [first, .., last] => write!(f, "[{first} … {last}]"),
            },
            Self::Transpose { of, .. } => write!(f, "{of}ᵀ"),
            Self::Column(of) => write!(f, "column({of})"),
            Self::Mxfp4 { blocks, .. } => write!(f, "mxfp4({blocks})"),
        }
    }
}
