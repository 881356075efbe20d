//! The texts by which control tokens that end a turn are recognised when a file does not list them.

use crate::vocab::pieces::{Kind, Pieces};
use foundation::TokenId;
use std::collections::BTreeSet;

const TURN_ENDS: [&str; 16] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom|>",
    "<|eot|>",
    "<end_of_turn>",
    "<turn|>",
    "<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

/// Ends the header of a message.
const HEADER_END: &[u8] = b"<|message|>";

/// Whether `id` ends a message inside a turn, whatever a file says of it.
pub(crate) fn inside_turn(pieces: &Pieces, id: TokenId) -> bool {
    pieces.bytes(id) == b"<|eom|>" && (0..).map(TokenId).take(pieces.len()).any(|id| pieces.bytes(id) == HEADER_END)
}

/// Control tokens of `pieces` that end a turn by their text.
pub(crate) fn find(pieces: &Pieces) -> BTreeSet<TokenId> {
    let mut found = BTreeSet::new();
    let (mut end, mut eom, mut harmony, mut has_headers) = (None, None, 0, false);
    for id in (0..).map(TokenId).take(pieces.len()) {
        if pieces.kind(id) != Kind::Special {
            continue;
        }
        has_headers |= pieces.bytes(id) == HEADER_END;
        let Some(text) = std::str::from_utf8(pieces.bytes(id)).ok().filter(|text| TURN_ENDS.contains(text)) else {
            continue;
        };
        found.insert(id);
        match text {
            "<|end|>" => end = Some(id),
            "<|eom|>" => eom = Some(id),
            "<|return|>" | "<|call|>" => harmony += 1,
            _ => {}
        }
    }
    // In vocabularies whose messages have headers `<|eom|>` does as well.
    if let Some(eom) = eom.filter(|_| has_headers) {
        found.remove(&eom);
    }
    // In harmony vocabularies `<|end|>` ends a message inside the turn.
    if let (Some(end), 2) = (end, harmony) {
        found.remove(&end);
    }
    found
}
