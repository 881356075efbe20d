//! Long texts cost time in proportion to their length.

mod support;

use std::time::{Duration, Instant};
use support::{byte_vocabulary, spm_vocabulary};
use turbospark_tokenizer::{Encode, GgufVocab, StopMatcher, Tokenizer};

const MEGABYTE: usize = 1 << 20;
/// Far above what linear work takes in a debug build, far below what quadratic work would.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_megabyte_is_encoded_and_decoded_in_linear_time() {
    let texts = [
        "a".repeat(MEGABYTE),
        " ".repeat(MEGABYTE),
        "\n".repeat(MEGABYTE),
        "Hello world! ".repeat(MEGABYTE / 13),
        "雪😀".repeat(MEGABYTE / 7),
    ];
    let gemma =
        GgufVocab { model: "gemma4".into(), scores: Vec::new(), merges: vec!["▁ ▁".into()], ..spm_vocabulary() };
    let mut gemma = gemma;
    gemma.tokens.push("▁▁".into());
    gemma.types.push(1);
    let mut bytes = byte_vocabulary();
    bytes.tokens.extend(["aa", "aaaa", "aaaaaaaa"].map(String::from));
    bytes.types.extend([1; 3]);
    bytes.merges = ["a a", "aa aa", "aaaa aaaa"].map(String::from).into();
    for vocab in [bytes, spm_vocabulary(), gemma] {
        let model = vocab.model.clone();
        let tokenizer = Tokenizer::from_vocab(vocab).unwrap();
        for text in &texts {
            let start = Instant::now();
            let ids = tokenizer.encode(text, Encode { special: true, bos: false }).unwrap();
            assert_eq!(tokenizer.decode(&ids, false).len(), text.len());
            assert!(start.elapsed() < LIMIT, "{model}: {:?} for {:?}...", start.elapsed(), text.chars().next());
        }
    }
}

#[test]
fn d05_stop_strings_that_almost_match_cost_linear_time() {
    let start = Instant::now();
    let mut matcher = StopMatcher::new(&[format!("{}b", "a".repeat(10_000)), "aab".into()]);
    for _ in 0..MEGABYTE / 16 {
        assert!(!matcher.push("aaaaaaaaaaaaaaaa").stopped);
    }
    assert_eq!(matcher.finish().len(), 10_000);
    assert!(start.elapsed() < LIMIT);
}
