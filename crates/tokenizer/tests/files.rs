//! Model directories: which files are read, what they may contain, and what is refused.

mod support;

use foundation::TokenId;
use serde_json::{Value, json};
use support::ids;
use turbospark_tokenizer::{ChatRequest, Encode, GgufVocab, Message, Tokenizer, TokenizerConfig, TokenizerError};

/// The SentencePiece-style vocabulary as a tokenizer.json, with merges for `▁He`.
fn sentencepiece_json(normalizer: Value) -> Value {
    let spm = support::spm_vocabulary();
    let mut vocab: serde_json::Map<String, Value> =
        spm.tokens[..263].iter().cloned().zip((0..263).map(Into::into)).collect();
    for (text, id) in ["H", "e", "▁H", "▁He", "x"].into_iter().zip(263..) {
        vocab.insert(text.into(), id.into());
    }
    let added = |id: u32, content: &str| json!({"id": id, "content": content, "special": true});
    json!({
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "normalizer": normalizer,
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true, "vocab": vocab,
                  "merges": [["▁", "H"], "▁H e"]},
    })
}

fn replace() -> Value {
    json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
}

fn load(json: &Value) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_json(json.to_string().as_bytes(), &TokenizerConfig::default())
}

#[test]
fn d02_a_tokenizer_json_with_byte_fallback_streams_like_any_other() {
    let with_prefix = json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace()]});
    let tokenizer = load(&sentencepiece_json(with_prefix)).unwrap();
    let encode = |text: &str| tokenizer.encode(text, Encode { special: true, bos: true }).unwrap();
    assert_eq!(encode("Hex"), ids(&[1, 266, 267]));
    assert_eq!(encode("He</s>He\n"), ids(&[1, 266, 2, 266, 17]));
    assert_eq!(encode("<s>é"), ids(&[1, 6, 7 + 0xC3, 7 + 0xA9]));
    assert_eq!(tokenizer.decode(&ids(&[3, 247, 166, 4]), true), "Hello\u{FFFD}\u{FFFD} world");
    assert_eq!(tokenizer.decode(&ids(&[1, 266, 267, 2]), true), "Hex");
    assert!(tokenizer.add_bos() && tokenizer.bos() == Some(TokenId(1)));

    let without_prefix = load(&sentencepiece_json(replace())).unwrap();
    assert_eq!(without_prefix.encode("He He", Encode::default()).unwrap(), ids(&[263, 264, 266]));
}

#[test]
fn d08_the_configuration_overrides_the_files_own_bos() {
    let json = sentencepiece_json(replace()).to_string();
    let config = TokenizerConfig { add_bos: Some(false), bos_token: Some("<s>".into()), ..TokenizerConfig::default() };
    let tokenizer = Tokenizer::from_json(json.as_bytes(), &config).unwrap();
    assert_eq!(tokenizer.encode("x", Encode { special: true, bos: true }).unwrap(), ids(&[267]));
}

#[test]
fn d10_templates_come_from_any_of_the_files() {
    let vocabulary = sentencepiece_json(replace()).to_string();
    let render = |files: &[(&str, &str)], tools: bool| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tokenizer.json"), &vocabulary).unwrap();
        for (file, content) in files {
            std::fs::write(dir.path().join(file), content).unwrap();
        }
        let tokenizer = Tokenizer::open_dir(dir.path()).unwrap();
        let tools = tools.then(|| json!([{"type": "function"}]));
        tokenizer.render_chat(&ChatRequest { messages: vec![Message::user("x")], tools, ..ChatRequest::default() })
    };
    let config = ("tokenizer_config.json", r#"{"chat_template": "config", "bos_token": "<s>"}"#);
    assert_eq!(render(&[config], false).unwrap(), "config");
    assert_eq!(render(&[config, ("chat_template.json", r#"{"chat_template": "json"}"#)], false).unwrap(), "json");
    assert_eq!(render(&[config, ("chat_template.jinja", "{{ bos_token }}jinja")], false).unwrap(), "<s>jinja");
    let named =
        r#"{"chat_template": [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]}"#;
    assert_eq!(render(&[("tokenizer_config.json", named)], false).unwrap(), "plain");
    assert_eq!(render(&[("tokenizer_config.json", named)], true).unwrap(), "tools");
    assert!(matches!(render(&[], false), Err(TokenizerError::NoChatTemplate)));
}

#[test]
fn d10_a_broken_template_is_reported_but_text_still_works() {
    let vocab = GgufVocab { chat_template: Some("{% for %}".into()), ..support::byte_vocabulary() };
    let tokenizer = Tokenizer::from_vocab(vocab).unwrap();
    assert!(tokenizer.chat_template_error().is_some());
    assert!(tokenizer.encode_chat(&ChatRequest::default()).is_err());
    assert_eq!(tokenizer.encode("a", Encode::default()).unwrap(), ids(&[97]));
    let tokenizer = tokenizer.with_chat_template("ok").unwrap();
    assert_eq!(tokenizer.encode_chat(&ChatRequest::default()).unwrap(), ids(&[111, 107]));
}

#[test]
fn unusable_vocabularies_are_refused_with_a_reason() {
    let message = |result: Result<Tokenizer, TokenizerError>| result.unwrap_err().to_string();
    let dir = tempfile::tempdir().unwrap();
    assert!(message(Tokenizer::open_dir(dir.path())).contains("tokenizer.json"));
    let config = TokenizerConfig::default();
    for json in ["", "{}", "[1]", r#"{"model": {"type": "BPE"}}"#, "{\"model\": "] {
        assert!(Tokenizer::from_json(json.as_bytes(), &config).is_err(), "{json}");
    }
    let mut json = sentencepiece_json(replace());
    json["decoder"] = json!({"type": "WordPiece", "prefix": "##"});
    assert!(message(load(&json)).contains("`WordPiece`"));
    let mut json = sentencepiece_json(replace());
    json["model"]["vocab"]["far"] = json!(4_000_000_000u32);
    assert!(message(load(&json)).contains("largest id"));
    let mut json = sentencepiece_json(replace());
    json["model"]["merges"] = json!([["▁", "nonesuch"]]);
    assert!(message(load(&json)).contains("nonesuch"));

    let gguf = |change: fn(&mut GgufVocab)| {
        let mut vocab = support::byte_vocabulary();
        change(&mut vocab);
        message(Tokenizer::from_vocab(vocab))
    };
    assert!(gguf(|vocab| vocab.model = "bert".into()).contains("`bert`"));
    assert!(gguf(|vocab| vocab.pre = Some("nonesuch".into())).contains("llama-bpe"));
    assert!(gguf(|vocab| vocab.tokens.clear()).contains("no tokens"));
    assert!(gguf(|vocab| vocab.types.truncate(3)).contains("3 token types"));
    assert!(gguf(|vocab| vocab.bos = Some(264)).contains("bos"));
    assert!(gguf(|vocab| vocab.merges = vec!["ab".into()]).contains("merge 0"));
    assert!(gguf(|vocab| vocab.merges = vec!["a b".into()]).contains("`ab`"));
    assert!(gguf(|vocab| vocab.model = "llama".into()).contains("scores"));
    let odd_byte =
        GgufVocab { types: vec![6; 264], scores: vec![0.0; 264], model: "llama".into(), ..support::byte_vocabulary() };
    assert!(message(Tokenizer::from_vocab(odd_byte)).contains("byte"));
}

#[test]
fn a_tokenizer_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Tokenizer>();
    shared::<turbospark_tokenizer::StreamDecoder>();
    shared::<turbospark_tokenizer::ChatTemplate>();
}
