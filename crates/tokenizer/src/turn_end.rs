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

/// Control tokens of `pieces` that end a turn by their text.
pub(crate) fn find(pieces: &Pieces) -> BTreeSet<TokenId> {
    let mut found = BTreeSet::new();
    let (mut end, mut harmony) = (None, 0);
    for id in (0..).map(TokenId).take(pieces.len()) {
        if pieces.kind(id) != Kind::Special {
            continue;
        }
        let Some(text) = std::str::from_utf8(pieces.bytes(id)).ok().filter(|text| TURN_ENDS.contains(text)) else {
            continue;
        };
        found.insert(id);
        match text {
            "<|end|>" => end = Some(id),
            "<|return|>" | "<|call|>" => harmony += 1,
            _ => {}
        }
    }
    // In harmony vocabularies `<|end|>` ends a message inside the turn.
    if let (Some(end), 2) = (end, harmony) {
        found.remove(&end);
    }
    found
}
