//! A set of tokens as bits.

use foundation::{LogitValue, TokenId};

/// The tokens that may come next: bit i of the whole is token i. Tokens beyond the end are not allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    words: Vec<u32>,
}

impl Mask {
    pub(crate) fn new(words: &[u32]) -> Self {
        Self { words: words.to_vec() }
    }

    /// The bits, lowest token first.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Whether `token` may come.
    pub fn allows(&self, token: TokenId) -> bool {
        self.words.get(token.index() / 32).is_some_and(|word| word >> (token.index() % 32) & 1 == 1)
    }

    /// The tokens that may come, lowest first.
    pub fn allowed(&self) -> impl Iterator<Item = TokenId> + '_ {
        let bits = |(at, word): (usize, &u32)| {
            let word = *word;
            (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| TokenId(at as u32 * 32 + bit))
        };
        self.words.iter().enumerate().flat_map(bits)
    }

    /// Copies `logits`, `[vocab]`, into `out` with −∞ for every token that may not come.
    ///
    /// Values that are no logits (NaN, +∞) stay, allowed or not, so that a broken forward pass is still noticed.
    pub fn restrict(&self, logits: &[LogitValue], out: &mut Vec<LogitValue>) {
        out.clear();
        out.reserve(logits.len());
        let words = self.words.iter().copied().chain(std::iter::repeat(0));
        for (chunk, word) in logits.chunks(32).zip(words) {
            match word {
                u32::MAX => out.extend_from_slice(chunk),
                _ => out.extend(chunk.iter().enumerate().map(|(bit, logit)| {
                    let keeps = word >> bit & 1 == 1 || logit.is_nan() || *logit == f32::INFINITY;
                    if keeps { *logit } else { f32::NEG_INFINITY }
                })),
            }
        }
    }
}
