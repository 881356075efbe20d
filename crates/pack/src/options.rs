//! What a caller decides, and what it is told.

use crate::{Importance, PackError};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weights::DType;

/// How a model is packed.
#[derive(Clone, Debug, Default)]
pub struct PackOptions {
    /// The type matrices are rounded to; `None`: they stay as they are.
    pub quantize: Option<DType>,
    /// The type experts are rounded to, where it is another one.
    pub experts: Option<DType>,
    /// Tensors with a choice of their own; of several that match, the last.
    pub keep: Vec<Keep>,
    /// Round again what is rounded already.
    pub requantize: bool,
    /// How much errors in each column count.
    pub importance: Option<Importance>,
    /// Set from another thread or a signal handler to stop.
    pub cancel: Arc<AtomicBool>,
    /// Room to assume on the disk instead of asking the system.
    pub available_bytes: Option<u64>,
}

/// A choice for the tensors of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// A tensor's name, as stored or as Hugging Face spells it; `*` stands for any text.
    pub pattern: String,
    /// The type; `None`: as stored.
    pub to: Option<DType>,
}

impl Keep {
    /// Whether a name is meant.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.pattern.split('*');
        let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
        let mut last = None;
        for part in parts {
            if let Some(before) = last.replace(part) {
                let Some(at) = rest.find(before) else { return false };
                rest = &rest[at + before.len()..];
            }
        }
        last.map_or(rest.is_empty(), |last| rest.ends_with(last))
    }
}

impl FromStr for Keep {
    type Err = PackError;

    /// Reads `TENSOR=TYPE`; the type `stored` leaves the tensor as it is.
    fn from_str(text: &str) -> Result<Self, PackError> {
        let bad = |reason: String| PackError::BadValue { found: text.to_owned(), reason };
        let Some((pattern, to)) = text.split_once('=').filter(|(pattern, _)| !pattern.is_empty()) else {
            return Err(bad("expected TENSOR=TYPE, as output.weight=q8_0 or *.attn_v.weight=stored".to_owned()));
        };
        let mut known = DType::QUANTISERS.into_iter();
        let to = match to {
            "stored" => None,
            to => Some(known.find(|dtype| dtype.name().eq_ignore_ascii_case(to)).ok_or_else(|| {
                bad(format!("the type is `stored` or one of {}", DType::QUANTISERS.map(DType::name).join(", ")))
            })?),
        };
        Ok(Self { pattern: pattern.to_owned(), to })
    }
}

/// What happens while a model is written or read, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The work begins.
    Started {
        /// Bytes of the whole result.
        total: u64,
    },
    /// Bytes done so far.
    Bytes {
        /// Written or checked.
        done: u64,
    },
}

/// A model that was packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Where it is.
    pub path: PathBuf,
    /// Bytes of it.
    pub bytes: u64,
    /// Of them, those that an earlier, interrupted run had written.
    pub resumed: u64,
    /// Tensors of each type, by type.
    pub types: Vec<(&'static str, usize)>,
    /// Things the user should know.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, matches) in [
            ("output.weight", "output.weight", true),
            ("output.weight", "output.weight2", false),
            ("*", "anything", true),
            ("blk.*.attn_v.weight", "blk.12.attn_v.weight", true),
            ("blk.*.attn_v.weight", "blk.12.attn_q.weight", false),
            ("*attn*v*", "blk.1.attn_v.weight", true),
            ("*.weight", "a.bias", false),
            ("a*a", "a", false),
            ("ab*b*b", "abbb", true),
            ("ab*b*b", "abb", false),
        ] {
            let keep = Keep { pattern: pattern.to_owned(), to: None };
            assert_eq!(keep.matches(name), matches, "{pattern} {name}");
        }
        assert_eq!("a=q4_k".parse::<Keep>().ok().and_then(|k| k.to), Some(DType::Q4K));
        for bad in ["a", "=q4_k", "a=q9", "a="] {
            assert!(bad.parse::<Keep>().is_err(), "{bad}");
        }
    }
}
