//! Vocabularies as GGUF files embed them.

use super::Encoder;
use super::added::{AddedToken, is_markup};
use super::alphabet;
use super::bpe::{BpeModel, BpeParts, Pair, Units};
use super::pieces::{Broken, Kind, Pieces};
use super::spm::SpmModel;
use crate::error::TokenizerError;
use crate::pre::PreTokenizer;
use foundation::TokenId;
use std::collections::HashMap;

/// The `tokenizer.*` metadata of a GGUF file, under their names there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufVocab {
    /// `tokenizer.ggml.model`: `gpt2`, `llama` or `gemma4`.
    pub model: String,
    /// `tokenizer.ggml.pre`, for `gpt2`.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`; the index is the id.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`, for `llama`; one a token.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; empty means all normal.
    pub types: Vec<i32>,
    /// `tokenizer.ggml.merges`: two pieces with a space between, in order of rank; for `gpt2` and `gemma4`.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`: end of turn.
    pub eot: Option<u32>,
    /// `tokenizer.ggml.eom_token_id`: end of message.
    pub eom: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unk: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`.
    pub pad: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`; a prompt never ends with EOS, so this is not applied.
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`, for `llama`.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.ggml.remove_extra_whitespaces`; concerns no supported model.
    pub remove_extra_whitespaces: Option<bool>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

/// A vocabulary ready for use.
pub(crate) struct Built {
    pub(crate) encoder: Encoder,
    pub(crate) pieces: Pieces,
    pub(crate) added: Vec<AddedToken>,
    pub(crate) add_bos: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl GgufVocab {
    pub(crate) fn build(&self) -> Result<Built, TokenizerError> {
        self.check_lengths()?;
        match self.model.as_str() {
            "gpt2" => self.build_byte_level(),
            "llama" => self.build_spm(),
            "gemma4" => self.build_characters(),
            _ => Err(TokenizerError::UnknownModel { model: self.model.clone() }),
        }
    }

    fn check_lengths(&self) -> Result<(), TokenizerError> {
        let count = self.tokens.len();
        let malformed = |reason| Err(TokenizerError::Vocabulary { reason });
        if count == 0 {
            return malformed("it has no tokens".into());
        }
        if !self.types.is_empty() && self.types.len() != count {
            return malformed(format!("it has {count} tokens but {} token types", self.types.len()));
        }
        if self.model == "llama" && self.scores.len() != count {
            return malformed(format!("it has {count} tokens but {} scores", self.scores.len()));
        }
        for (name, id) in [
            ("bos", self.bos),
            ("eos", self.eos),
            ("eot", self.eot),
            ("eom", self.eom),
            ("unknown", self.unk),
            ("padding", self.pad),
        ] {
            if let Some(id) = id.filter(|&id| id as usize >= count) {
                return malformed(format!("its {name} token is {id}, but it has only {count} tokens"));
            }
        }
        Ok(())
    }

    fn token_type(&self, index: usize) -> Type {
        match self.types.get(index) {
            Some(2) => Type::Unknown,
            Some(3) => Type::Control,
            Some(4) => Type::UserDefined,
            Some(5) => Type::Unused,
            Some(6) => Type::Byte,
            _ => Type::Normal,
        }
    }

    /// (id, text, type) of every token.
    fn entries(&self) -> impl Iterator<Item = (u32, &str, Type)> {
        self.tokens.iter().enumerate().map(|(index, text)| (index as u32, text.as_str(), self.token_type(index)))
    }

    fn added(&self) -> Vec<AddedToken> {
        self.entries()
            .filter(|(_, _, kind)| matches!(kind, Type::Control | Type::UserDefined | Type::Unknown))
            .map(|(id, text, kind)| {
                AddedToken::plain(text.to_owned(), TokenId(id), kind != Type::UserDefined || is_markup(text))
            })
            .collect()
    }

    fn build_byte_level(&self) -> Result<Built, TokenizerError> {
        let pre = PreTokenizer::named(self.pre.as_deref())?;
        let mut pieces = Pieces::new(Broken::PerSequence, false);
        let mut ids = HashMap::with_capacity(self.tokens.len());
        for (id, text, kind) in self.entries() {
            match kind {
                Type::Control | Type::Unknown => pieces.push(text.as_bytes(), Kind::Special),
                Type::UserDefined => {
                    pieces.push(text.as_bytes(), Kind::Text);
                    if is_content(text, kind) {
                        ids.entry(text.as_bytes().into()).or_insert(id);
                    }
                }
                Type::Normal | Type::Unused | Type::Byte => {
                    let bytes = alphabet::bytes(text);
                    pieces.push(&bytes, Kind::Text);
                    ids.entry(bytes.into_boxed_slice()).or_insert(id);
                }
            }
        }
        let mut bytes = [None; 256];
        for (value, slot) in (0..=u8::MAX).zip(&mut bytes) {
            *slot = ids.get([value].as_slice()).copied();
        }
        let merges = self.merge_pairs(alphabet::bytes)?;
        let units = Units::Bytes { splitter: pre.compile(), whole_words: pre.whole_words, composed: pre.composed };
        let model = BpeModel::new(BpeParts { units, ids, merges, bytes, unknown: self.unk })?;
        let add_bos = self.add_bos.unwrap_or(pre.add_bos);
        Ok(Built { encoder: Encoder::Bpe(Box::new(model)), pieces, added: self.added(), add_bos })
    }

    fn build_characters(&self) -> Result<Built, TokenizerError> {
        let pieces = self.escaped_pieces(false)?;
        let mut ids = HashMap::with_capacity(self.tokens.len());
        for (id, text, kind) in self.entries() {
            if is_content(text, kind) {
                ids.entry(text.as_bytes().into()).or_insert(id);
            }
        }
        let merges = self.merge_pairs(|piece| piece.as_bytes().to_vec())?;
        let parts = BpeParts {
            units: Units::Characters { space_prefix: false },
            ids,
            merges,
            bytes: self.byte_tokens()?,
            unknown: self.unk,
        };
        // Files of this model say `add_bos = false` by a converter's mistake.
        let add_bos = self.bos.is_some();
        Ok(Built { encoder: Encoder::Bpe(Box::new(BpeModel::new(parts)?)), pieces, added: self.added(), add_bos })
    }

    fn build_spm(&self) -> Result<Built, TokenizerError> {
        let space_prefix = self.add_space_prefix.unwrap_or(true);
        let pieces = self.escaped_pieces(space_prefix)?;
        let scored = self
            .entries()
            .zip(&self.scores)
            .filter(|((_, text, kind), _)| is_content(text, *kind))
            .map(|((id, text, _), &score)| (text.into(), score, id))
            .collect();
        let model = SpmModel::new(scored, self.byte_tokens()?, self.unk, space_prefix);
        let add_bos = self.add_bos.unwrap_or(true);
        Ok(Built { encoder: Encoder::Spm(Box::new(model)), pieces, added: self.added(), add_bos })
    }

    /// The display form of pieces that write `▁` for a space.
    fn escaped_pieces(&self, strip_leading_space: bool) -> Result<Pieces, TokenizerError> {
        let mut pieces = Pieces::new(Broken::PerByte, strip_leading_space);
        for (_, text, kind) in self.entries() {
            match kind {
                Type::Control | Type::Unknown => pieces.push(text.as_bytes(), Kind::Special),
                Type::Byte => pieces.push(&[byte_value(text)?], Kind::Byte),
                Type::Normal | Type::UserDefined | Type::Unused => {
                    pieces.push(text.replace('▁', " ").as_bytes(), Kind::Text)
                }
            }
        }
        Ok(pieces)
    }

    fn byte_tokens(&self) -> Result<[Option<u32>; 256], TokenizerError> {
        let mut bytes = [None; 256];
        for (id, text, _) in self.entries().filter(|entry| entry.2 == Type::Byte) {
            bytes[usize::from(byte_value(text)?)].get_or_insert(id);
        }
        Ok(bytes)
    }

    fn merge_pairs(&self, bytes: impl Fn(&str) -> Vec<u8>) -> Result<Vec<Pair>, TokenizerError> {
        let split = |(rank, merge): (usize, &String)| {
            let first = merge.chars().next().map_or(0, char::len_utf8);
            match merge[first..].split_once(' ') {
                Some((rest, right)) if !right.is_empty() => Ok((bytes(&merge[..first + rest.len()]), bytes(right))),
                _ => Err(TokenizerError::Vocabulary {
                    reason: format!("merge {rank} is `{merge}`, not two pieces with a space between"),
                }),
            }
        };
        self.merges.iter().enumerate().map(split).collect()
    }
}

/// May plain text become this token by merging?
fn is_content(text: &str, kind: Type) -> bool {
    match kind {
        Type::Normal | Type::Unused => true,
        Type::UserDefined => !is_markup(text),
        Type::Unknown | Type::Control | Type::Byte => false,
    }
}

/// The value of a byte token's text, such as `<0x0A>`.
fn byte_value(text: &str) -> Result<u8, TokenizerError> {
    text.strip_prefix("<0x")
        .and_then(|rest| rest.strip_suffix('>'))
        .filter(|digits| digits.len() == 2)
        .and_then(|digits| u8::from_str_radix(digits, 16).ok())
        .ok_or_else(|| TokenizerError::Vocabulary {
            reason: format!("`{text}` is typed as a byte but is not written like <0x0A>"),
        })
}
