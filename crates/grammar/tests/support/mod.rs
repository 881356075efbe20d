//! A vocabulary in which token n is byte n.

use foundation::TokenId;
use std::sync::{Arc, OnceLock};
use tokenizer::{GgufVocab, Tokenizer};
use turbospark_grammar::{GrammarError, Source, Vocabulary};

/// Byte n is token n; 256 begins, 257 ends, 258 and 259 are control tokens.
pub(crate) fn byte_vocabulary() -> &'static Vocabulary {
    static VOCABULARY: OnceLock<Vocabulary> = OnceLock::new();
    VOCABULARY.get_or_init(|| {
        let special = ["<|begin|>", "<|end|>", "<tool_call>", "</tool_call>"].map(str::to_owned);
        let tokenizer = Tokenizer::from_vocab(GgufVocab {
            model: "gpt2".to_owned(),
            pre: Some("gpt-2".to_owned()),
            tokens: (0..=255u8).map(piece).chain(special).collect(),
            types: (0..260).map(|id| if id < 256 { 1 } else { 3 }).collect(),
            bos: Some(256),
            eos: Some(257),
            add_bos: Some(false),
            ..GgufVocab::default()
        });
        Vocabulary::new(Arc::new(tokenizer.unwrap())).unwrap()
    })
}

/// A byte in GPT-2's printable alphabet.
fn piece(byte: u8) -> String {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let moved = (0..byte).filter(|b| !printable(*b)).count() as u32;
    let c = if printable(byte) { char::from(byte) } else { char::from_u32(0x100 + moved).unwrap() };
    c.to_string()
}

pub(crate) fn byte_token(byte: u8) -> TokenId {
    TokenId(u32::from(byte))
}

/// Whether `text`, as single bytes, is a whole reply. Checks at every byte that mask and acceptance agree.
pub(crate) fn accepts(source: &Source, text: &str) -> bool {
    let mut session = byte_vocabulary().compile(source).unwrap_or_else(|error| panic!("{source:?}: {error}")).session();
    for byte in text.bytes() {
        if session.is_ended() {
            return false;
        }
        let allowed = session.mask().unwrap().allows(byte_token(byte));
        assert_eq!(session.take(byte_token(byte)).is_ok(), allowed, "{source:?} {text}");
        if !allowed {
            return false;
        }
    }
    session.may_end().unwrap()
}

pub(crate) fn refused(source: &Source) -> GrammarError {
    byte_vocabulary().compile(source).expect_err(&format!("{source:?}").chars().take(200).collect::<String>())
}
