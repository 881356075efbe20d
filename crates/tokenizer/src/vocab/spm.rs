//! SentencePiece vocabularies of GGUF files: neighbouring pieces are joined in the order of the joint piece's score.

use super::bpe::{escape, position, push};
use super::merge::{Merge, Scratch, Symbol, merge};
use foundation::TokenId;
use std::collections::HashMap;

/// A vocabulary with scores and byte fallback.
pub(crate) struct SpmModel {
    /// Pieces that plain text may become, with `▁` for spaces, and their place in the order of falling scores.
    pieces: HashMap<Box<str>, Merge>,
    longest: usize,
    bytes: [Option<u32>; 256],
    unknown: Option<u32>,
    /// Text at the start and after a special token gets a space in front.
    space_prefix: bool,
}

impl SpmModel {
    /// `pieces` are (text, score, id).
    pub(crate) fn new(
        mut pieces: Vec<(Box<str>, f32, u32)>,
        bytes: [Option<u32>; 256],
        unknown: Option<u32>,
        space_prefix: bool,
    ) -> Self {
        pieces.sort_by(|a, b| b.1.total_cmp(&a.1));
        let longest = pieces.iter().map(|piece| piece.0.len()).max().unwrap_or(0);
        let mut priority = 0;
        let mut last = None;
        let mut map = HashMap::with_capacity(pieces.len());
        for (text, score, id) in pieces {
            if last.is_some_and(|last| last != score) {
                priority += 1;
            }
            last = Some(score);
            map.insert(text, Merge { priority, id });
        }
        Self { pieces: map, longest, bytes, unknown, space_prefix }
    }

    pub(crate) fn id_of(&self, piece: &str) -> Option<TokenId> {
        self.pieces.get(piece.replace(' ', "▁").as_str()).map(|merge| TokenId(merge.id))
    }

    pub(crate) fn encode(&self, text: &str, out: &mut Vec<TokenId>) {
        let escaped = escape(text, self.space_prefix);
        let piece = |start: u32, len: u32| self.pieces.get(&escaped[start as usize..(start + len) as usize]).copied();
        let mut symbols: Vec<Symbol> = escaped
            .char_indices()
            .map(|(start, c)| {
                let (start, len) = (position(start), position(c.len_utf8()));
                Symbol { start, len, id: piece(start, len).map(|merge| merge.id) }
            })
            .collect();
        merge(&mut symbols, &mut Scratch::default(), |left, right| {
            let len = left.len + right.len;
            if len as usize > self.longest { None } else { piece(left.start, len) }
        });
        for symbol in symbols {
            let bytes = || &escaped.as_bytes()[symbol.start as usize..(symbol.start + symbol.len) as usize];
            push(symbol.id, bytes, &self.bytes, self.unknown, out);
        }
    }
}
