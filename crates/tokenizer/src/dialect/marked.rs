//! Text in which control tokens are put back in writing, with a record of which of them were tokens.
//!
//! A marker that is a token of the vocabulary is found only where that token was; the same characters written with
//! other tokens are text. A marker that no token stands for is found by its characters.

use super::Dialect;
use crate::tokenizer::Tokenizer;
use foundation::TokenId;

/// The markers of a dialect that are tokens of a vocabulary.
#[derive(Clone, Debug)]
pub(crate) struct Markers {
    tokens: Vec<MarkerToken>,
}

#[derive(Clone, Debug)]
pub(crate) struct MarkerToken {
    pub(crate) literal: &'static str,
    id: TokenId,
    /// Decodes to nothing.
    pub(crate) hidden: bool,
}

/// Text to look for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marker {
    pub(crate) literal: &'static str,
    /// The token that has to be in it: its offset in the text, and which it is.
    token: Option<(usize, u16)>,
}

impl Marker {
    /// Only a token can be this marker.
    pub(crate) fn is_token(&self) -> bool {
        self.token.is_some_and(|(offset, _)| offset == 0)
    }
}

impl Markers {
    pub(crate) fn new(dialect: &Dialect, tokenizer: &Tokenizer) -> Self {
        let tokens = dialect.literals().into_iter().filter_map(|literal| {
            let id = tokenizer.added_id(literal)?;
            Some(MarkerToken { literal, id, hidden: tokenizer.is_special(id) })
        });
        Self { tokens: tokens.collect() }
    }

    /// Which marker a token is.
    pub(crate) fn index_of(&self, id: TokenId) -> Option<u16> {
        self.tokens.iter().position(|token| token.id == id).map(|at| at as u16)
    }

    pub(crate) fn token(&self, index: u16) -> &MarkerToken {
        &self.tokens[usize::from(index)]
    }

    /// How `literal` is recognised in this vocabulary.
    pub(crate) fn marker(&self, literal: &'static str) -> Marker {
        let token = self
            .tokens
            .iter()
            .enumerate()
            .filter_map(|(index, token)| Some((literal.find(token.literal)?, index as u16, token.literal.len())))
            .max_by_key(|(_, _, length)| *length)
            .map(|(offset, index, _)| (offset, index));
        Marker { literal, token }
    }
}

/// A token at a place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    at: usize,
    token: u16,
}

/// A text under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marked {
    text: String,
    marks: Vec<Mark>,
}

impl Marked {
    pub(crate) fn push_text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(crate) fn push_token(&mut self, index: u16, markers: &Markers) {
        self.marks.push(Mark { at: self.text.len(), token: index });
        self.text.push_str(markers.token(index).literal);
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn has_tokens(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Takes the first `length` bytes off.
    pub(crate) fn take(&mut self, length: usize) -> Self {
        let rest = self.text.split_off(length);
        let split = self.marks.partition_point(|mark| mark.at < length);
        let mut later = self.marks.split_off(split);
        later.iter_mut().for_each(|mark| mark.at -= length);
        Self { text: std::mem::replace(&mut self.text, rest), marks: std::mem::replace(&mut self.marks, later) }
    }

    pub(crate) fn append(&mut self, other: &Self) {
        let base = self.text.len();
        self.text.push_str(&other.text);
        self.marks.extend(other.marks.iter().map(|mark| Mark { at: base + mark.at, ..*mark }));
    }

    pub(crate) fn body<'a>(&'a self, markers: &'a Markers) -> Body<'a> {
        Body { text: &self.text, base: 0, marks: &self.marks, markers }
    }

    /// What a reader sees: without tokens that decode to nothing.
    pub(crate) fn visible(&self, markers: &Markers) -> String {
        let mut out = String::with_capacity(self.text.len());
        let mut from = 0;
        for mark in &self.marks {
            let token = markers.token(mark.token);
            if token.hidden {
                out.push_str(&self.text[from..mark.at]);
                from = mark.at + token.literal.len();
            }
        }
        out.push_str(&self.text[from..]);
        out
    }
}

/// Part of a marked text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a> {
    pub(crate) text: &'a str,
    base: usize,
    marks: &'a [Mark],
    markers: &'a Markers,
}

impl<'a> Body<'a> {
    /// Where `literal` first stands at or after byte `from`.
    pub(crate) fn find(&self, literal: &'static str, from: usize) -> Option<usize> {
        self.find_marker(&self.markers.marker(literal), from)
    }

    pub(crate) fn find_marker(&self, marker: &Marker, from: usize) -> Option<usize> {
        let Some((offset, token)) = marker.token else {
            return self.text.get(from..)?.find(marker.literal).map(|at| from + at);
        };
        let first = self.marks.partition_point(|mark| mark.at < self.base + from + offset);
        self.marks[first..].iter().filter(|mark| mark.token == token).find_map(|mark| {
            let at = mark.at.checked_sub(self.base + offset)?;
            self.text.get(at..)?.starts_with(marker.literal).then_some(at)
        })
    }

    /// Whether `literal` stands at byte `at`.
    pub(crate) fn is_at(&self, marker: &Marker, at: usize) -> bool {
        if !self.text.get(at..).is_some_and(|text| text.starts_with(marker.literal)) {
            return false;
        }
        marker.token.is_none_or(|(offset, token)| {
            self.marks
                .binary_search_by_key(&(self.base + at + offset), |mark| mark.at)
                .is_ok_and(|found| self.marks[found].token == token)
        })
    }

    pub(crate) fn slice(&self, from: usize, to: usize) -> Self {
        let (start, end) = (self.base + from, self.base + to);
        let first = self.marks.partition_point(|mark| mark.at < start);
        let last = self.marks.partition_point(|mark| mark.at < end);
        Self { text: &self.text[from..to], base: start, marks: &self.marks[first..last.max(first)], ..*self }
    }

    pub(crate) fn from(&self, from: usize) -> Self {
        self.slice(from, self.text.len())
    }

    pub(crate) fn trim_start(&self) -> Self {
        self.from(self.text.len() - self.text.trim_start().len())
    }

    pub(crate) fn trim(&self) -> Self {
        let start = self.trim_start();
        start.slice(0, start.text.trim_end().len())
    }

    pub(crate) fn strip_prefix(&self, literal: &'static str) -> Option<Self> {
        self.is_at(&self.markers.marker(literal), 0).then(|| self.from(literal.len()))
    }

    /// The parts before and after the first `literal`.
    pub(crate) fn split_once(&self, literal: &'static str) -> Option<(Self, Self)> {
        let at = self.find(literal, 0)?;
        Some((self.slice(0, at), self.from(at + literal.len())))
    }
}

/// Bytes at the end of `text` that may be the beginning of one of `markers`.
pub(crate) fn unfinished(text: &str, markers: &[Marker]) -> usize {
    let open = |marker: &Marker| {
        let longest = (marker.literal.len() - 1).min(text.len());
        (1..=longest).rev().find(|&length| text.as_bytes().ends_with(&marker.literal.as_bytes()[..length]))
    };
    markers.iter().filter(|marker| !marker.is_token() && !marker.literal.is_empty()).filter_map(open).max().unwrap_or(0)
}
