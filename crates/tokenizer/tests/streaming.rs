//! Cases D01 to D06: streamed text equals decoding all at once, and stop strings end it in the right place.

mod support;

use foundation::TokenId;
use proptest::prelude::*;
use std::sync::LazyLock;
use support::{byte_vocabulary, ids, spm_vocabulary};
use turbospark_tokenizer::{GgufVocab, StopMatcher, Tokenizer};

static BYTES: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::from_vocab(byte_vocabulary()).unwrap());
static SPM: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::from_vocab(spm_vocabulary()).unwrap());
static GEMMA: LazyLock<Tokenizer> = LazyLock::new(|| {
    Tokenizer::from_vocab(GgufVocab { model: "gemma4".into(), scores: Vec::new(), ..spm_vocabulary() }).unwrap()
});

fn deltas(tokenizer: &Tokenizer, ids: &[TokenId], skip_special: bool) -> Vec<String> {
    let mut stream = tokenizer.stream(skip_special);
    let mut out: Vec<String> = ids.iter().map(|&id| stream.push(id)).collect();
    out.push(stream.finish());
    out
}

fn texts(tokenizer: &Tokenizer, numbers: &[u32]) -> Vec<String> {
    let deltas = deltas(tokenizer, &ids(numbers), true);
    assert_eq!(deltas.concat(), tokenizer.decode(&ids(numbers), true), "{numbers:?}");
    deltas.into_iter().filter(|delta| !delta.is_empty()).collect()
}

#[test]
fn d01_a_character_split_over_tokens_appears_once_and_whole() {
    assert_eq!(texts(&BYTES, &[0x68, 0x69, 0x20, 0xF0, 0x9F, 0x98, 0x80, 0x21, 257]), ["h", "i", " ", "😀", "!"]);
    for text in ["é", "雪", "👨‍👩‍👧‍👦"] {
        let numbers: Vec<u32> = text.bytes().map(u32::from).collect();
        let expected: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(texts(&BYTES, &numbers), expected);
    }
}

#[test]
fn d02_broken_bytes_become_replacement_characters() {
    let joined = |numbers: &[u32]| texts(&BYTES, numbers).concat();
    assert_eq!(joined(&[0x61, 0xF0, 0x9F, 0x62]), "a\u{FFFD}b");
    assert_eq!(joined(&[0x61, 0xF0, 0x9F, 0x98]), "a\u{FFFD}");
    assert_eq!(joined(&[0xFF, 0xFE, 0x6F, 0x6B]), "\u{FFFD}\u{FFFD}ok");
    assert_eq!(joined(&[0xED, 0xA0, 0x80, 0x78]), "\u{FFFD}\u{FFFD}\u{FFFD}x");
    assert_eq!(texts(&SPM, &[3, 247, 166, 4]).concat(), "Hello\u{FFFD}\u{FFFD} world");
    assert_eq!(texts(&SPM, &[3, 247, 166, 159]).concat(), "Hello\u{FFFD}\u{FFFD}\u{FFFD}");
}

#[test]
fn d03_spaces_and_line_breaks_survive() {
    assert_eq!(texts(&SPM, &[3, 4, 5]), ["Hello", " world", "!"]);
    assert_eq!(texts(&SPM, &[6, 3]), [" Hello"]);
    assert_eq!(texts(&SPM, &[17, 3]), ["\n", " Hello"]);
    assert_eq!(texts(&SPM, &[3, 1, 4]), ["Hello", " world"]);
    assert_eq!(SPM.decode(&ids(&[3, 1, 4]), false), "Hello<s> world");
    let mut continuing = SPM.stream(true).continuing();
    assert_eq!(continuing.push(TokenId(3)), " Hello");
}

#[test]
fn d04_byte_tokens_are_bytes_and_pieces_that_look_like_them_are_text() {
    let numbers = [3, 6, 247, 166, 173, 160, 5];
    assert_eq!(texts(&SPM, &numbers), ["Hello", " ", "🦙", "!"]);
    assert_eq!(deltas(&SPM, &ids(&numbers), true)[2..6], ["", "", "", "🦙"]);
    assert_eq!(texts(&SPM, &[3, 263]), ["Hello", "<0x0A>"]);
}

fn stopped(pieces: &str, stops: &[&str]) -> (Vec<String>, bool) {
    let mut matcher = StopMatcher::new(&stops.iter().map(|stop| (*stop).to_owned()).collect::<Vec<_>>());
    let mut texts = Vec::new();
    for piece in pieces.split('|') {
        let outcome = matcher.push(piece);
        texts.push(outcome.text);
        if outcome.stopped {
            assert_eq!(matcher.finish(), "");
            return (texts, true);
        }
    }
    texts.push(matcher.finish());
    (texts, false)
}

#[test]
fn d05_the_stop_string_that_completes_first_ends_the_text_before_it() {
    let joined = |pieces, stops: &[&str]| {
        let (texts, stopped) = stopped(pieces, stops);
        assert!(stopped);
        texts.concat()
    };
    assert_eq!(joined("The| quick| br|own| fox| x", &["own fox"]), "The quick br");
    assert_eq!(joined("x|STO|STOP|y", &["STOP"]), "xSTO");
    assert_eq!(joined("one,| two| three|!", &["three", " two three!"]), "one, two ");
    assert_eq!(joined("ab|<|unk>|z", &["><", "<unk>"]), "ab");
    assert_eq!(joined("ab|<|unk|>|z", &["><", "<unk>"]), "ab");
    assert_eq!(joined("foo|bar", &["oba", "foobar"]), "");
    assert_eq!(joined("aa|ab", &["aaab", "aab"]), "");
    assert_eq!(joined("雪だ|るまé", &["だる"]), "雪");
}

#[test]
fn d06_only_what_may_still_match_is_withheld() {
    assert_eq!(stopped("a|b|c|d", &["bcX"]), (["a", "", "", "bcd", ""].map(String::from).into(), false));
    assert_eq!(stopped("x|ST", &["STOP"]), (["x", "", "ST"].map(String::from).into(), false));
    let long = "Z".repeat(40);
    assert_eq!(stopped("a|bc|d</think>e", &[&long]).0, ["a", "bc", "d</think>e", ""]);
    assert_eq!(stopped("a|b", &[]).0, ["a", "b", ""]);
    assert_eq!(stopped("a|b", &[""]).0, ["a", "b", ""]);
}

/// The rule of D05, read literally: at each step look for every stop string in the whole text so far.
fn slow_stop(pieces: &[String], stops: &[String]) -> Option<String> {
    let mut text = String::new();
    for piece in pieces {
        let before = text.len();
        text.push_str(piece);
        let ends = |stop: &&String| {
            (0..text.len())
                .filter(|&at| text.as_bytes()[at..].starts_with(stop.as_bytes()) && at + stop.len() > before)
                .min()
        };
        if let Some(at) = stops.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| ends(&stop)).min() {
            return Some(text[..at].to_owned());
        }
    }
    None
}

proptest! {
    #[test]
    fn d02_joined_deltas_equal_decoding_at_once(numbers in prop::collection::vec(0u32..270, 0..60), skip in any::<bool>()) {
        for tokenizer in [&BYTES, &SPM, &GEMMA] {
            let ids = ids(&numbers);
            prop_assert_eq!(deltas(tokenizer, &ids, skip).concat(), tokenizer.decode(&ids, skip));
        }
    }

    #[test]
    fn d02_byte_level_text_equals_lossy_decoding(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let ids: Vec<TokenId> = bytes.iter().map(|&byte| TokenId(byte.into())).collect();
        prop_assert_eq!(BYTES.decode(&ids, true), String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn d05_streamed_stops_equal_the_rule(
        pieces in prop::collection::vec("[abé]{0,4}", 0..12),
        stops in prop::collection::vec("[abé]{0,4}", 0..4),
    ) {
        let mut matcher = StopMatcher::new(&stops);
        let (mut text, mut hit) = (String::new(), false);
        for piece in &pieces {
            let outcome = matcher.push(piece);
            text.push_str(&outcome.text);
            hit = outcome.stopped;
            if hit {
                break;
            }
        }
        text.push_str(&matcher.finish());
        match slow_stop(&pieces, &stops) {
            Some(expected) => prop_assert_eq!((text, hit), (expected, true)),
            None => prop_assert_eq!((text, hit), (pieces.concat(), false)),
        }
    }
}
