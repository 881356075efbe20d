//! A reader of little-endian fields that checks every length against the bytes left.

use super::value::GgufString;
use crate::WeightsError;
use std::fmt;
use std::path::Path;

/// What is being read, for errors; cheap to make for every array element.
#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    /// A field of the file header, or an entry whose name is not known yet.
    Plain(&'static str),
    /// The value of a metadata key.
    Key(&'a str),
    /// An element of an array under a metadata key.
    Element(&'a str, usize),
    /// A part of a tensor's description.
    Tensor(&'a str, &'static str),
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(field) => f.write_str(field),
            Self::Key(key) => write!(f, "value of key `{key}`"),
            Self::Element(key, index) => write!(f, "element {index} of key `{key}`"),
            Self::Tensor(name, part) => write!(f, "{part} of tensor `{name}`"),
        }
    }
}

pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    path: &'a Path,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], path: &'a Path) -> Self {
        Self { bytes, at: 0, path }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn take(&mut self, what: What<'_>, n: usize) -> Result<&'a [u8], WeightsError> {
        match self.bytes[self.at..].get(..n) {
            Some(taken) => {
                self.at += n;
                Ok(taken)
            }
            None => Err(self.truncated(what, n as u64)),
        }
    }

    pub(super) fn array<const N: usize>(&mut self, what: What<'_>) -> Result<[u8; N], WeightsError> {
        Ok(self.take(what, N)?.try_into().expect("N bytes were taken"))
    }

    pub(super) fn u32(&mut self, what: What<'_>) -> Result<u32, WeightsError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: What<'_>) -> Result<u64, WeightsError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A count of items that take at least `least` bytes each: refused if they cannot be in the bytes left.
    pub(super) fn count(&mut self, what: What<'_>, least: usize) -> Result<usize, WeightsError> {
        let count = self.u64(what)?;
        let needed = count.saturating_mul(least as u64);
        if needed > self.left() {
            return Err(self.truncated(what, needed));
        }
        Ok(count as usize)
    }

    pub(super) fn string(&mut self, what: What<'_>) -> Result<GgufString, WeightsError> {
        let length = self.count(what, 1)?;
        Ok(GgufString::from(self.take(what, length)?.to_vec()))
    }

    /// A string that names something: UTF-8 and not empty.
    pub(super) fn name(&mut self, what: What<'_>) -> Result<String, WeightsError> {
        let start = self.at;
        let length = self.count(what, 1)?;
        let bytes = self.take(what, length)?;
        match std::str::from_utf8(bytes) {
            Ok(name) if !name.is_empty() => Ok(name.to_owned()),
            _ => {
                let found = format!("{:?}", GgufString::from(bytes.to_vec()));
                Err(self.field(what, start, "a name of one or more UTF-8 characters", found))
            }
        }
    }

    /// An error about the value of the field that starts at `start`.
    pub(super) fn field(
        &self,
        what: What<'_>,
        start: usize,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> WeightsError {
        WeightsError::Field {
            path: self.path.into(),
            field: what.to_string(),
            offset: start as u64,
            expected: expected.into(),
            found: found.into(),
            remedy: "the file is damaged or of a kind not served, download or convert it again",
        }
    }

    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    fn truncated(&self, what: What<'_>, needed: u64) -> WeightsError {
        WeightsError::Truncated {
            path: self.path.into(),
            field: what.to_string(),
            offset: self.at as u64,
            needed,
            left: self.left(),
        }
    }
}
