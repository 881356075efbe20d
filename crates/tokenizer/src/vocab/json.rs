//! Vocabularies in Hugging Face's `tokenizer.json`, encoded by the `tokenizers` crate.

use super::added::{AddedToken, Cut, is_markup};
use super::alphabet;
use super::pieces::{Broken, Kind, Pieces};
use crate::error::TokenizerError;
use foundation::TokenId;
use serde_json::Value;
use std::collections::HashMap;
use tokenizers::normalizer::Range;
use tokenizers::{
    Model, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Token,
};

/// A loaded `tokenizer.json`.
pub(crate) struct JsonModel {
    tokenizer: tokenizers::Tokenizer,
}

/// A vocabulary ready for use.
pub(crate) struct Built {
    pub(crate) model: JsonModel,
    pub(crate) pieces: Pieces,
    pub(crate) added: Vec<AddedToken>,
    /// The id that the file's own post-processing puts in front of a text.
    pub(crate) prefix: Option<TokenId>,
}

impl JsonModel {
    pub(crate) fn build(json: &[u8]) -> Result<Built, TokenizerError> {
        let refuse = |reason: String| TokenizerError::TokenizerJson { reason };
        let parts: Parts =
            serde_json::from_slice(json).map_err(|error| refuse(error.to_string()))?;
        let decoding = Decoding::of(&parts.decoder)?;
        let mut tokenizer =
            tokenizers::Tokenizer::from_bytes(json).map_err(|error| refuse(error.to_string()))?;
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|error| refuse(error.to_string()))?;

        let texts = tokenizer.get_vocab(true);
        let count = texts.values().max().map_or(0, |&id| id as usize + 1);
        // Ids far beyond the tokens there are can only be a mistake, and would cost memory.
        if count > texts.len().saturating_mul(4) + 65_536 {
            return Err(refuse(format!(
                "it has {} tokens but the largest id is {}",
                texts.len(),
                count - 1
            )));
        }
        let mut by_id: Vec<Option<&str>> = vec![None; count];
        for (text, &id) in &texts {
            by_id[id as usize] = Some(text);
        }
        let added: HashMap<u32, &tokenizers::AddedToken> = tokenizer
            .get_added_vocabulary()
            .get_added_tokens_decoder()
            .iter()
            .map(|(&id, token)| (id, token))
            .collect();
        let mut pieces = Pieces::new(decoding.broken(), decoding.strip_leading_space);
        for (id, text) in (0u32..).zip(by_id) {
            match (added.get(&id), text) {
                (Some(token), _) => {
                    let kind = if token.special {
                        Kind::Special
                    } else {
                        Kind::Text
                    };
                    pieces.push(decoding.added(&token.content).as_bytes(), kind);
                }
                (None, Some(text)) => {
                    let (bytes, kind) = decoding.piece(text);
                    pieces.push(&bytes, kind);
                }
                (None, None) => pieces.push(&[], Kind::Hole),
            }
        }
        let mut added: Vec<AddedToken> = added
            .into_iter()
            .map(|(id, token)| AddedToken {
                text: token.content.clone(),
                id: TokenId(id),
                control: token.special || is_markup(&token.content),
                strip_left: token.lstrip,
                strip_right: token.rstrip,
                whole_word: token.single_word,
            })
            .collect();
        added.sort_by_key(|token| token.id);
        let prefix = tokenizer
            .encode("", true)
            .ok()
            .and_then(|encoding| encoding.get_ids().first().copied())
            .map(TokenId);
        Ok(Built {
            model: Self { tokenizer },
            pieces,
            added,
            prefix,
        })
    }

    /// The id of a piece, in the file's own spelling or as plain text.
    pub(crate) fn id_of(&self, piece: &str) -> Option<TokenId> {
        let spelled: String = piece.bytes().map(alphabet::letter).collect();
        let id = |text: &str| self.tokenizer.token_to_id(text);
        id(piece)
            .or_else(|| id(&piece.replace(' ', "▁")))
            .or_else(|| id(&spelled))
            .map(TokenId)
    }

    pub(crate) fn encode(
        &self,
        text: &str,
        cuts: &[Cut],
        out: &mut Vec<TokenId>,
    ) -> Result<(), TokenizerError> {
        self.tokens(text, cuts, out)
            .map_err(|error| TokenizerError::Encode {
                reason: error.to_string(),
            })
    }

    fn tokens(&self, text: &str, cuts: &[Cut], out: &mut Vec<TokenId>) -> tokenizers::Result<()> {
        let mut split = PreTokenizedString::from(text);
        if !cuts.is_empty() {
            split.split(|_, whole| {
                let mut parts = Vec::with_capacity(cuts.len() * 2 + 1);
                let slice = |start, end| {
                    whole
                        .slice(Range::Original(start..end))
                        .ok_or("a cut is not inside the text")
                };
                let mut at = 0;
                for cut in cuts {
                    if at < cut.start {
                        parts.push((slice(at, cut.start)?, None));
                    }
                    let token = Token::new(
                        cut.id.0,
                        text[cut.start..cut.end].to_owned(),
                        (0, cut.end - cut.start),
                    );
                    parts.push((slice(cut.start, cut.end)?, Some(vec![token])));
                    at = cut.end;
                }
                if at < text.len() {
                    parts.push((slice(at, text.len())?, None));
                }
                Ok(parts)
            })?;
        }
        if let Some(normalizer) = self.tokenizer.get_normalizer() {
            split.normalize(|part| normalizer.normalize(part))?;
        }
        if let Some(pre_tokenizer) = self.tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut split)?;
        }
        split.tokenize(|part| self.tokenizer.get_model().tokenize(part.get()))?;
        for (_, _, tokens) in split.get_splits(OffsetReferential::Original, OffsetType::Byte) {
            out.extend(tokens.iter().flatten().map(|token| TokenId(token.id)));
        }
        Ok(())
    }
}

/// The parts of the file that say how texts of tokens are joined.
#[derive(serde::Deserialize)]
struct Parts {
    #[serde(default)]
    decoder: Value,
}

/// What the file's decoder does to token texts.
#[derive(Default)]
struct Decoding {
    byte_level: bool,
    byte_fallback: bool,
    /// (text, replacement)
    replace: Option<(String, String)>,
    strip_leading_space: bool,
}

impl Decoding {
    fn of(decoder: &Value) -> Result<Self, TokenizerError> {
        let mut decoding = Self::default();
        decoding.read(decoder)?;
        Ok(decoding)
    }

    fn read(&mut self, decoder: &Value) -> Result<(), TokenizerError> {
        let text = |key: &str| decoder[key].as_str().map(str::to_owned);
        let refuse = |reason: String| Err(TokenizerError::TokenizerJson { reason });
        match decoder["type"].as_str() {
            None if decoder.is_null() => {}
            Some("Fuse") => {}
            Some("ByteLevel") => self.byte_level = true,
            Some("ByteFallback") => self.byte_fallback = true,
            Some("Sequence") => {
                for part in decoder["decoders"].as_array().into_iter().flatten() {
                    self.read(part)?;
                }
            }
            Some("Replace") => match (decoder["pattern"]["String"].as_str(), text("content")) {
                (Some(from), Some(to)) if self.replace.is_none() => {
                    self.replace = Some((from.to_owned(), to))
                }
                _ => return refuse("its decoder replaces more than one literal text".into()),
            },
            Some("Metaspace") => {
                let never =
                    decoder["prepend_scheme"] == "never" || decoder["add_prefix_space"] == false;
                self.replace = Some((
                    text("replacement").unwrap_or_else(|| "▁".into()),
                    " ".into(),
                ));
                self.strip_leading_space = !never;
            }
            Some("Strip")
                if decoder["content"] == " " && decoder["start"] == 1 && decoder["stop"] == 0 =>
            {
                self.strip_leading_space = true;
            }
            kind => {
                return refuse(format!(
                    "its decoder `{}` is not supported; supported: ByteLevel, Metaspace, and sequences of Replace, \
                     ByteFallback, Fuse and Strip of one leading space",
                    kind.unwrap_or("without a type")
                ));
            }
        }
        Ok(())
    }

    fn broken(&self) -> Broken {
        if self.byte_fallback {
            Broken::PerByte
        } else {
            Broken::PerSequence
        }
    }

    fn added(&self, text: &str) -> String {
        match &self.replace {
            Some((from, to)) => text.replace(from, to),
            None => text.to_owned(),
        }
    }

    fn piece(&self, text: &str) -> (Vec<u8>, Kind) {
        if self.byte_level {
            return (alphabet::bytes(text), Kind::Text);
        }
        let byte = || {
            u8::from_str_radix(
                text.strip_prefix("<0x")?
                    .strip_suffix('>')
                    .filter(|digits| digits.len() == 2)?,
                16,
            )
            .ok()
        };
        match self.byte_fallback.then(byte).flatten() {
            Some(byte) => (vec![byte], Kind::Byte),
            None => (self.added(text).into_bytes(), Kind::Text),
        }
    }
}
