//! How the decoder of a `tokenizer.json` turns token texts into text.

use super::alphabet;
use super::pieces::{Broken, Kind};
use crate::error::TokenizerError;
use serde_json::Value;

/// What the file's decoder does to token texts.
#[derive(Default)]
pub(crate) struct Decoding {
    byte_level: bool,
    byte_fallback: bool,
    /// (text, replacement)
    replace: Option<(String, String)>,
    pub(crate) strip_leading_space: bool,
}

impl Decoding {
    pub(crate) fn of(decoder: &Value) -> Result<Self, TokenizerError> {
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
                (Some(from), Some(to)) if self.replace.is_none() => self.replace = Some((from.to_owned(), to)),
                _ => return refuse("its decoder replaces more than one literal text".into()),
            },
            Some("Metaspace") => {
                let never = decoder["prepend_scheme"] == "never" || decoder["add_prefix_space"] == false;
                self.replace = Some((text("replacement").unwrap_or_else(|| "▁".into()), " ".into()));
                self.strip_leading_space = !never;
            }
            Some("Strip") if decoder["content"] == " " && decoder["start"] == 1 && decoder["stop"] == 0 => {
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

    pub(crate) fn broken(&self) -> Broken {
        if self.byte_fallback { Broken::PerByte } else { Broken::PerSequence }
    }

    pub(crate) fn added(&self, text: &str) -> String {
        match &self.replace {
            Some((from, to)) => text.replace(from, to),
            None => text.to_owned(),
        }
    }

    pub(crate) fn piece(&self, text: &str) -> (Vec<u8>, Kind) {
        if self.byte_level {
            return (alphabet::bytes(text), Kind::Text);
        }
        let byte = || {
            u8::from_str_radix(text.strip_prefix("<0x")?.strip_suffix('>').filter(|digits| digits.len() == 2)?, 16).ok()
        };
        match self.byte_fallback.then(byte).flatten() {
            Some(byte) => (vec![byte], Kind::Byte),
            None => (self.added(text).into_bytes(), Kind::Text),
        }
    }
}
