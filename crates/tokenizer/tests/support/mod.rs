//! Vocabularies for tests.
#![allow(dead_code)]

pub(crate) mod dialects;

use foundation::TokenId;
use turbospark_tokenizer::GgufVocab;

/// A vocabulary from the fields of a fixture.
pub(crate) fn vocabulary(json: &serde_json::Value) -> GgufVocab {
    let text = |key: &str| json[key].as_str().map(str::to_owned);
    let texts = |key: &str| -> Vec<String> { serde_json::from_value(json[key].clone()).unwrap_or_default() };
    let id = |key: &str| json[key].as_u64().map(|id| id as u32);
    GgufVocab {
        model: text("model").expect("every vocabulary names its model"),
        pre: text("pre"),
        tokens: texts("tokens"),
        scores: serde_json::from_value(json["scores"].clone()).unwrap_or_default(),
        types: serde_json::from_value(json["types"].clone()).unwrap_or_default(),
        merges: texts("merges"),
        bos: id("bos"),
        eos: id("eos"),
        unk: id("unk"),
        add_bos: json["add_bos"].as_bool(),
        add_space_prefix: json["add_space_prefix"].as_bool(),
        ..GgufVocab::default()
    }
}

/// Ids 0-255 are the bytes; 256 `<bos>`, 257 `<eos>`, 258 and 259 the ChatML pair, 260-263 think and tool-call tags.
pub(crate) fn byte_vocabulary() -> GgufVocab {
    let letter = |byte: u32| match byte {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => byte,
        0x00..=0x20 => 0x100 + byte,
        0x7F..=0xA0 => 0x121 + byte - 0x7F,
        _ => 0x143,
    };
    let mut tokens: Vec<String> = (0..256).map(|byte| char::from_u32(letter(byte)).unwrap().to_string()).collect();
    let special =
        ["<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"];
    tokens.extend(special.map(str::to_owned));
    let mut types = vec![1; 256];
    types.extend([3; 8]);
    GgufVocab {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens,
        types,
        bos: Some(256),
        eos: Some(257),
        ..GgufVocab::default()
    }
}

/// 0 `<unk>`, 1 `<s>`, 2 `</s>`, 3 `▁Hello`, 4 `▁world`, 5 `!`, 6 `▁`, 7+b the byte b, 263 a piece that only looks like a byte.
pub(crate) fn spm_vocabulary() -> GgufVocab {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>", "▁Hello", "▁world", "!", "▁"].map(str::to_owned).into();
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    tokens.push("<0x0A>".into());
    let mut types = vec![2, 3, 3, 1, 1, 1, 1];
    types.extend([6; 256]);
    types.push(1);
    let scores = (0..tokens.len()).map(|id| -(id as f32)).collect();
    GgufVocab {
        model: "llama".into(),
        tokens,
        scores,
        types,
        bos: Some(1),
        eos: Some(2),
        unk: Some(0),
        ..GgufVocab::default()
    }
}

/// Token ids from numbers.
pub(crate) fn ids(numbers: &[u32]) -> Vec<TokenId> {
    numbers.iter().copied().map(TokenId).collect()
}
