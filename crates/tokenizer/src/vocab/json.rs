//! Vocabularies in Hugging Face's `tokenizer.json`.
//!
//! Most are encoded by the `tokenizers` crate. Those that merge over the whole text, without words, are encoded here:
//! there the crate needs time in the square of the text's length.

use super::Encoder;
use super::added::{AddedToken, Cut, is_markup};
use super::alphabet;
use super::bpe::{BpeModel, BpeParts, Units};
use super::decoding::Decoding;
use super::pieces::{Kind, Pieces};
use crate::error::TokenizerError;
use foundation::TokenId;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use tokenizers::normalizer::Range;
use tokenizers::{Model, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Token};

/// A vocabulary ready for use.
pub(crate) struct Built {
    pub(crate) encoder: Encoder,
    pub(crate) pieces: Pieces,
    pub(crate) added: Vec<AddedToken>,
    /// Text of the token that the file's own post-processing puts in front of a text.
    pub(crate) prefix: Option<String>,
}

/// The parts of the file that say how its vocabulary is used.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Parts {
    added_tokens: Vec<AddedEntry>,
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    model: ModelKind,
}

#[derive(Deserialize)]
struct AddedEntry {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ModelKind {
    r#type: Option<String>,
    dropout: Option<f32>,
    byte_fallback: bool,
    ignore_merges: bool,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
}

/// A vocabulary with ranked merges, as far as this crate encodes it itself.
#[derive(Deserialize)]
struct Merges {
    model: MergesModel,
}

#[derive(Deserialize)]
struct MergesModel {
    vocab: HashMap<String, u32>,
    merges: Vec<MergeEntry>,
    unk_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum MergeEntry {
    Pair(String, String),
    Joined(String),
}

pub(crate) fn build(json: &[u8]) -> Result<Built, TokenizerError> {
    let parts: Parts = parse(json)?;
    let decoding = Decoding::of(&parts.decoder)?;
    let (encoder, texts) = match parts.merges_whole_text() {
        Some(space_prefix) => whole_text_model(parse(json)?, space_prefix)?,
        None => {
            let model = JsonModel::load(json)?;
            let texts = model.tokenizer.get_vocab(true);
            (Encoder::Json(Box::new(model)), texts)
        }
    };
    let pieces = pieces(&decoding, &texts, &parts.added_tokens)?;
    let prefix = prefix(&parts.post_processor).map(str::to_owned);
    let added = parts.added_tokens.into_iter().map(|entry| AddedToken {
        control: entry.special || is_markup(&entry.content),
        text: entry.content,
        id: TokenId(entry.id),
        strip_left: entry.lstrip,
        strip_right: entry.rstrip,
        whole_word: entry.single_word,
    });
    Ok(Built { encoder, pieces, added: added.collect(), prefix })
}

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, TokenizerError> {
    serde_json::from_slice(json).map_err(|error| refuse(error.to_string()))
}

fn refuse(reason: String) -> TokenizerError {
    TokenizerError::TokenizerJson { reason }
}

impl Parts {
    /// Whether merges run over the whole text with `▁` for spaces; if so, whether each text gets a space in front.
    fn merges_whole_text(&self) -> Option<bool> {
        let is_replace =
            |part: &Value| part["type"] == "Replace" && part["pattern"]["String"] == " " && part["content"] == "▁";
        let is_prepend = |part: &Value| part["type"] == "Prepend" && part["prepend"] == "▁";
        // After the replacement no space is left to split at.
        let no_words = self.pre_tokenizer.is_null()
            || (self.pre_tokenizer["type"] == "Split" && self.pre_tokenizer["pattern"]["String"] == " ");
        let space_prefix = match self.normalizer["normalizers"].as_array().map(Vec::as_slice) {
            None if is_replace(&self.normalizer) => false,
            Some([first, second]) if is_prepend(first) && is_replace(second) => true,
            _ => return None,
        };
        let model = &self.model;
        let plain = model.r#type.as_deref() == Some("BPE")
            && model.byte_fallback
            && !model.ignore_merges
            && model.dropout.is_none()
            && model.continuing_subword_prefix.is_none()
            && model.end_of_word_suffix.is_none();
        (no_words && plain).then_some(space_prefix)
    }
}

fn whole_text_model(file: Merges, space_prefix: bool) -> Result<(Encoder, HashMap<String, u32>), TokenizerError> {
    let MergesModel { vocab, merges, unk_token } = file.model;
    let ids: HashMap<Box<[u8]>, u32> = vocab.iter().map(|(text, &id)| (text.as_bytes().into(), id)).collect();
    let mut bytes = [None; 256];
    for (value, slot) in (0..=u8::MAX).zip(&mut bytes) {
        *slot = vocab.get(&format!("<0x{value:02X}>")).copied();
    }
    let pair = |entry| match entry {
        MergeEntry::Pair(left, right) => Ok((left.into_bytes(), right.into_bytes())),
        MergeEntry::Joined(text) => match text.split_once(' ') {
            Some((left, right)) => Ok((left.as_bytes().to_vec(), right.as_bytes().to_vec())),
            None => Err(refuse(format!("the merge `{text}` is not two pieces with a space between"))),
        },
    };
    let merges = merges.into_iter().map(pair).collect::<Result<_, _>>()?;
    let unknown = unk_token.and_then(|text| vocab.get(&text).copied());
    let model = BpeModel::new(BpeParts { units: Units::Characters { space_prefix }, ids, merges, bytes, unknown })?;
    Ok((Encoder::Bpe(Box::new(model)), vocab))
}

fn pieces(decoding: &Decoding, texts: &HashMap<String, u32>, added: &[AddedEntry]) -> Result<Pieces, TokenizerError> {
    let known = texts.len() + added.len();
    let count = texts.values().copied().chain(added.iter().map(|entry| entry.id)).max().map_or(0, |id| id as usize + 1);
    // Ids far beyond the tokens there are can only be a mistake, and would cost memory.
    if count > known.saturating_mul(4) + 65_536 {
        return Err(refuse(format!("it has {known} tokens but the largest id is {}", count - 1)));
    }
    let mut by_id: Vec<Option<&str>> = vec![None; count];
    for (text, &id) in texts {
        by_id[id as usize] = Some(text);
    }
    let added: HashMap<u32, &AddedEntry> = added.iter().map(|entry| (entry.id, entry)).collect();
    let mut pieces = Pieces::new(decoding.broken(), decoding.strip_leading_space);
    for (id, text) in (0u32..).zip(by_id) {
        match (added.get(&id), text) {
            (Some(entry), _) => {
                let kind = if entry.special { Kind::Special } else { Kind::Text };
                pieces.push(decoding.added(&entry.content).as_bytes(), kind);
            }
            (None, Some(text)) => {
                let (bytes, kind) = decoding.piece(text);
                pieces.push(&bytes, kind);
            }
            (None, None) => pieces.push(&[], Kind::Hole),
        }
    }
    Ok(pieces)
}

/// The special token that a post-processor puts in front of a single text.
fn prefix(processor: &Value) -> Option<&str> {
    match processor["type"].as_str()? {
        "TemplateProcessing" => processor["single"][0]["SpecialToken"]["id"].as_str(),
        "Sequence" => processor["processors"].as_array()?.iter().find_map(prefix),
        _ => None,
    }
}

/// A vocabulary that the `tokenizers` crate encodes.
pub(crate) struct JsonModel {
    tokenizer: tokenizers::Tokenizer,
}

impl JsonModel {
    fn load(json: &[u8]) -> Result<Self, TokenizerError> {
        let mut tokenizer = tokenizers::Tokenizer::from_bytes(json).map_err(|error| refuse(error.to_string()))?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| refuse(error.to_string()))?;
        Ok(Self { tokenizer })
    }

    /// The id of a piece, in the file's own spelling or as plain text.
    pub(crate) fn id_of(&self, piece: &str) -> Option<TokenId> {
        let spelled: String = piece.bytes().map(alphabet::letter).collect();
        let id = |text: &str| self.tokenizer.token_to_id(text);
        id(piece).or_else(|| id(&piece.replace(' ', "▁"))).or_else(|| id(&spelled)).map(TokenId)
    }

    pub(crate) fn encode(&self, text: &str, cuts: &[Cut], out: &mut Vec<TokenId>) -> Result<(), TokenizerError> {
        self.tokens(text, cuts, out).map_err(|error| TokenizerError::Encode { reason: error.to_string() })
    }

    fn tokens(&self, text: &str, cuts: &[Cut], out: &mut Vec<TokenId>) -> tokenizers::Result<()> {
        let mut split = PreTokenizedString::from(text);
        if !cuts.is_empty() {
            split.split(|_, whole| {
                let mut parts = Vec::with_capacity(cuts.len() * 2 + 1);
                let slice = |start, end| whole.slice(Range::Original(start..end)).ok_or("a cut is not inside the text");
                let mut at = 0;
                for cut in cuts {
                    if at < cut.start {
                        parts.push((slice(at, cut.start)?, None));
                    }
                    let token = Token::new(cut.id.0, text[cut.start..cut.end].to_owned(), (0, cut.end - cut.start));
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
