//! Vocabularies: what every token stands for, and how plain text becomes tokens.

pub(crate) mod added;
pub(crate) mod alphabet;
pub(crate) mod bpe;
pub(crate) mod decoding;
pub(crate) mod gguf;
pub(crate) mod json;
pub(crate) mod merge;
pub(crate) mod pieces;
pub(crate) mod spm;

use crate::error::TokenizerError;
use added::Cut;
use foundation::TokenId;

/// How text between special tokens becomes tokens.
pub(crate) enum Encoder {
    /// A `tokenizer.json`, run by the `tokenizers` crate.
    Json(Box<json::JsonModel>),
    /// Ranked merges inside the words of a pre-tokenizer.
    Bpe(Box<bpe::BpeModel>),
    /// Scored merges over the whole text, with byte fallback.
    Spm(Box<spm::SpmModel>),
}

impl Encoder {
    /// The ordinary token with this text.
    pub(crate) fn id_of(&self, piece: &str) -> Option<TokenId> {
        match self {
            Self::Json(model) => model.id_of(piece),
            Self::Bpe(model) => model.id_of(piece),
            Self::Spm(model) => model.id_of(piece),
        }
    }

    /// Encodes `text`, where `cuts` are already known to be the given tokens.
    pub(crate) fn encode(&self, text: &str, cuts: &[Cut], out: &mut Vec<TokenId>) -> Result<(), TokenizerError> {
        match self {
            Self::Json(model) => model.encode(text, cuts, out),
            Self::Bpe(model) => {
                each_fragment(text, cuts, out, |text, out| model.encode(text, out));
                Ok(())
            }
            Self::Spm(model) => {
                each_fragment(text, cuts, out, |text, out| model.encode(text, out));
                Ok(())
            }
        }
    }
}

/// Calls `encode` for the text between the cuts and writes the cuts' tokens, in order.
fn each_fragment(text: &str, cuts: &[Cut], out: &mut Vec<TokenId>, encode: impl Fn(&str, &mut Vec<TokenId>)) {
    let mut at = 0;
    for cut in cuts {
        if at < cut.start {
            encode(&text[at..cut.start], out);
        }
        out.push(cut.id);
        at = cut.end;
    }
    if at < text.len() {
        encode(&text[at..], out);
    }
}
