//! Byte-pair vocabularies of GGUF files: merges in ranked order, inside words or over the whole text.

use super::merge::{Merge, Scratch, Symbol, merge};
use crate::error::TokenizerError;
use crate::pre::Splitter;
use foundation::TokenId;
use std::borrow::Cow;
use std::collections::HashMap;

/// How text is prepared and cut before merging.
pub(crate) enum Units {
    /// Words of a pre-tokenizer, as bytes.
    Bytes {
        splitter: Splitter,
        /// A word that is a token by itself needs no merges.
        whole_words: bool,
        /// Text is brought into Unicode's composed form first.
        composed: bool,
    },
    /// The whole text as characters with `▁` for spaces; characters without a piece become byte tokens.
    Characters {
        /// Text at the start and after a special token gets a space in front.
        space_prefix: bool,
    },
}

/// A vocabulary with ranked merges.
pub(crate) struct BpeModel {
    units: Units,
    /// Token texts that plain text may become, in the form that is merged.
    ids: HashMap<Box<[u8]>, u32>,
    merges: HashMap<(u32, u32), Merge>,
    bytes: [Option<u32>; 256],
    unknown: Option<u32>,
}

/// The left and the right piece of a merge.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// The parts of a [`BpeModel`].
pub(crate) struct BpeParts {
    pub(crate) units: Units,
    pub(crate) ids: HashMap<Box<[u8]>, u32>,
    /// In order of rank, in the form of `ids`.
    pub(crate) merges: Vec<Pair>,
    pub(crate) bytes: [Option<u32>; 256],
    pub(crate) unknown: Option<u32>,
}

impl BpeModel {
    pub(crate) fn new(parts: BpeParts) -> Result<Self, TokenizerError> {
        let mut merges = HashMap::with_capacity(parts.merges.len());
        let mut joint = Vec::new();
        for (rank, (left, right)) in parts.merges.iter().enumerate() {
            joint.clear();
            joint.extend_from_slice(left);
            joint.extend_from_slice(right);
            let id = |piece: &[u8]| {
                parts.ids.get(piece).copied().ok_or_else(|| TokenizerError::Vocabulary {
                    reason: format!(
                        "merge {rank} needs the piece `{}`, which is no token",
                        String::from_utf8_lossy(piece)
                    ),
                })
            };
            let priority =
                u32::try_from(rank).map_err(|_| TokenizerError::Vocabulary { reason: "too many merges".into() })?;
            merges.entry((id(left)?, id(right)?)).or_insert(Merge { priority, id: id(&joint)? });
        }
        Ok(Self { units: parts.units, ids: parts.ids, merges, bytes: parts.bytes, unknown: parts.unknown })
    }

    pub(crate) fn id_of(&self, piece: &str) -> Option<TokenId> {
        let piece = match self.units {
            Units::Bytes { .. } => Cow::Borrowed(piece),
            Units::Characters { .. } => Cow::Owned(piece.replace(' ', "▁")),
        };
        self.ids.get(piece.as_bytes()).copied().map(TokenId)
    }

    pub(crate) fn encode(&self, text: &str, out: &mut Vec<TokenId>) {
        let mut symbols = Vec::new();
        let mut scratch = Scratch::default();
        match &self.units {
            Units::Bytes { splitter, whole_words, composed } => {
                let text = if *composed { compose(text) } else { Cow::Borrowed(text) };
                splitter.split(&text, &mut |word| {
                    let word = word.as_bytes();
                    if let Some(&id) = self.ids.get(word).filter(|_| *whole_words || word.len() == 1) {
                        out.push(TokenId(id));
                        return;
                    }
                    symbols.clear();
                    symbols.extend((0..).zip(word).map(|(start, &byte)| Symbol {
                        start,
                        len: 1,
                        id: self.bytes[usize::from(byte)],
                    }));
                    self.merge(word, &mut symbols, &mut scratch, out);
                });
            }
            Units::Characters { space_prefix } => {
                let text = escape(text, *space_prefix);
                for (start, c) in text.char_indices() {
                    let (start, len) = (position(start), c.len_utf8());
                    let id = self.ids.get(&text.as_bytes()[start as usize..start as usize + len]).copied();
                    symbols.push(Symbol { start, len: position(len), id });
                }
                self.merge(text.as_bytes(), &mut symbols, &mut scratch, out);
            }
        }
    }

    fn merge(&self, text: &[u8], symbols: &mut Vec<Symbol>, scratch: &mut Scratch, out: &mut Vec<TokenId>) {
        merge(symbols, scratch, |left, right| self.merges.get(&(left.id?, right.id?)).copied());
        for symbol in symbols.iter() {
            let fallback = || &text[symbol.start as usize..(symbol.start + symbol.len) as usize];
            push(symbol.id, fallback, &self.bytes, self.unknown, out);
        }
    }
}

/// Writes a symbol's token; without one its bytes' tokens, and without those the unknown token.
pub(crate) fn push<'a>(
    id: Option<u32>,
    text: impl Fn() -> &'a [u8],
    bytes: &[Option<u32>; 256],
    unknown: Option<u32>,
    out: &mut Vec<TokenId>,
) {
    if let Some(id) = id {
        out.push(TokenId(id));
    } else if text().iter().all(|&byte| bytes[usize::from(byte)].is_some()) {
        out.extend(text().iter().filter_map(|&byte| bytes[usize::from(byte)]).map(TokenId));
    } else {
        out.extend(unknown.map(TokenId));
    }
}

/// A length or position inside a text.
pub(crate) fn position(value: usize) -> u32 {
    u32::try_from(value).expect("a text is smaller than 4 GiB")
}

/// `text` with `▁` for spaces, and one in front if asked for.
pub(crate) fn escape(text: &str, space_prefix: bool) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 2 + 3);
    if space_prefix {
        escaped.push('▁');
    }
    escaped.extend(text.chars().map(|c| if c == ' ' { '▁' } else { c }));
    escaped
}

fn compose(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut normalized = tokenizers::NormalizedString::from(text);
    normalized.nfc();
    Cow::Owned(normalized.get().to_owned())
}
