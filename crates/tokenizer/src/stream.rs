//! Token ids to text, one token at a time, with the same result as all at once.

use crate::vocab::pieces::{Broken, Kind, Pieces};
use foundation::TokenId;
use std::sync::Arc;

/// Turns token ids into text as they arrive. The joined results of [`push`](Self::push) and
/// [`finish`](Self::finish) equal [`Tokenizer::decode`](crate::Tokenizer::decode) of all ids.
#[derive(Clone, Debug)]
pub struct StreamDecoder {
    pieces: Arc<Pieces>,
    skip_special: bool,
    /// Bytes of a character that is not complete yet: three at most.
    pending: Vec<u8>,
    strip_next_space: bool,
}

impl StreamDecoder {
    pub(crate) fn new(pieces: Arc<Pieces>, skip_special: bool) -> Self {
        let strip_next_space = pieces.strip_leading_space;
        Self { pieces, skip_special, pending: Vec::new(), strip_next_space }
    }

    /// For text that continues earlier text: keeps the space in front of the first word.
    pub fn continuing(mut self) -> Self {
        self.strip_next_space = false;
        self
    }

    /// Takes the next token; returns the text that is complete now, possibly none.
    pub fn push(&mut self, id: TokenId) -> String {
        let mut out = String::new();
        self.push_into(id, &mut out);
        out
    }

    /// Ends the text: a character cut off in its middle becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.finish_into(&mut out);
        out
    }

    pub(crate) fn push_into(&mut self, id: TokenId, out: &mut String) {
        let pieces = Arc::clone(&self.pieces);
        let kind = pieces.kind(id);
        if kind == Kind::Hole || (kind == Kind::Special && self.skip_special) {
            return;
        }
        let start = out.len();
        let per_byte = pieces.broken == Broken::PerByte;
        if per_byte && kind != Kind::Byte {
            self.flush(out);
            out.push_str(&String::from_utf8_lossy(pieces.bytes(id)));
        } else {
            self.pending.extend_from_slice(pieces.bytes(id));
            self.release(out);
        }
        self.strip(start, out);
    }

    pub(crate) fn finish_into(&mut self, out: &mut String) {
        let start = out.len();
        self.flush(out);
        self.strip(start, out);
    }

    /// Writes all characters of `pending` that are decided; keeps an unfinished one.
    fn release(&mut self, out: &mut String) {
        let mut done = 0;
        while done < self.pending.len() {
            match std::str::from_utf8(&self.pending[done..]) {
                Ok(text) => {
                    out.push_str(text);
                    done = self.pending.len();
                }
                Err(error) => {
                    let valid = done + error.valid_up_to();
                    out.push_str(&String::from_utf8_lossy(&self.pending[done..valid]));
                    done = valid;
                    let Some(length) = error.error_len() else {
                        break;
                    };
                    self.broken(length, out);
                    done += length;
                }
            }
        }
        self.pending.drain(..done);
    }

    fn flush(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            self.broken(self.pending.len(), out);
            self.pending.clear();
        }
    }

    fn broken(&self, length: usize, out: &mut String) {
        let count = if self.pieces.broken == Broken::PerByte { length } else { 1 };
        out.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, count));
    }

    fn strip(&mut self, start: usize, out: &mut String) {
        if self.strip_next_space && out.len() > start {
            self.strip_next_space = false;
            if out.as_bytes()[start] == b' ' {
                out.remove(start);
            }
        }
    }
}
