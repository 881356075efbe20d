//! Small vocabularies of every kind against the ids that llama.cpp gives (`data/make_vocabularies.py`).

mod support;

use std::collections::BTreeMap;
use turbospark_tokenizer::{Encode, Tokenizer};

#[derive(serde::Deserialize)]
struct Family {
    vocabulary: serde_json::Value,
    ids: BTreeMap<String, Vec<u32>>,
}

fn families() -> BTreeMap<String, Family> {
    serde_json::from_str(include_str!("data/vocabularies.json")).expect("the fixture is valid")
}

#[test]
fn ids_equal_those_of_llama_cpp() {
    let mut failures = Vec::new();
    let mut checked = 0;
    for (name, family) in families() {
        let tokenizer = Tokenizer::from_vocab(support::vocabulary(&family.vocabulary)).unwrap();
        for (text, expected) in family.ids {
            let ids = tokenizer.encode(&text, Encode { special: true, bos: false }).unwrap();
            let ids: Vec<u32> = ids.into_iter().map(|id| id.0).collect();
            checked += 1;
            if ids != expected {
                failures.push(format!("{name} {text:?}\n  ours   {ids:?}\n  theirs {expected:?}"));
            }
        }
    }
    assert!(checked > 1000, "only {checked} cases");
    assert!(failures.is_empty(), "{} of {checked} differ:\n{}", failures.len(), failures.join("\n"));
}

/// Text comes back from its ids, except where a vocabulary lacks a byte, composes, or puts spaces after control tokens.
#[test]
fn text_comes_back() {
    for (name, family) in families() {
        let tokenizer = Tokenizer::from_vocab(support::vocabulary(&family.vocabulary)).unwrap();
        let adds_spaces = family.vocabulary["model"] == "llama";
        for text in family.ids.keys().filter(|text| text.is_ascii() && !text.contains(['\0', '\x01', '\x02'])) {
            for special in [true, false] {
                let ids = tokenizer.encode(text, Encode { special, bos: false }).unwrap();
                if adds_spaces && ids.iter().any(|&id| tokenizer.is_special(id)) {
                    continue;
                }
                assert_eq!(tokenizer.decode(&ids, false), *text, "{name} {ids:?}");
            }
        }
    }
}
