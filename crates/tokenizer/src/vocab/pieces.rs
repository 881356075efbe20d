//! The text of every token, and the rules that join token texts again.

use foundation::TokenId;

/// What a token is, as far as its text is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No token has this id.
    Hole,
    /// Ordinary text.
    Text,
    /// One byte of a character that the vocabulary has no piece for.
    Byte,
    /// Control text: hidden unless special tokens are asked for.
    Special,
}

/// How bytes that are not UTF-8 are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// One U+FFFD for each maximal broken sequence, as [`String::from_utf8_lossy`] does.
    PerSequence,
    /// One U+FFFD for each broken byte, as SentencePiece does; only byte tokens can be broken.
    PerByte,
}

/// The bytes of all tokens in one buffer, and how to join them.
#[derive(Debug)]
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    kinds: Vec<Kind>,
    pub(crate) broken: Broken,
    /// The first piece's leading space is an artefact of encoding.
    pub(crate) strip_leading_space: bool,
}

impl Pieces {
    pub(crate) fn new(broken: Broken, strip_leading_space: bool) -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), kinds: Vec::new(), broken, strip_leading_space }
    }

    pub(crate) fn push(&mut self, bytes: &[u8], kind: Kind) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(u32::try_from(self.bytes.len()).expect("a vocabulary is smaller than 4 GiB"));
        self.kinds.push(kind);
    }

    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn kind(&self, id: TokenId) -> Kind {
        self.kinds.get(id.index()).copied().unwrap_or(Kind::Hole)
    }

    /// The bytes of `id`; empty for an id without a token.
    pub(crate) fn bytes(&self, id: TokenId) -> &[u8] {
        let Some(&end) = self.ends.get(id.index()) else {
            return &[];
        };
        let start = if id.index() == 0 { 0 } else { self.ends[id.index() - 1] };
        &self.bytes[start as usize..end as usize]
    }
}
