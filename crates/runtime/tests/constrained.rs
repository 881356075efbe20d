//! Answers under a constraint: alone, token by token and together, and after reasoning. Beside others: `scheduler`.

use foundation::TokenId;
use grammar::{Constraint, Source, Vocabulary};
use selection::{Shaping, ShapingOptions};
use std::sync::Arc;
use tokenizer::Tokenizer;
use turbospark_runtime::{
    Generation, GenerationConfig, LogitProducer, Progress, RawDecodeResult, RuntimeError, SCRIPTED_VOCAB,
    ScriptedLogitProducer, StopReason, byte_tokenizer, run_raw_completion_chunked,
};

const SCHEMA: &str = r#"{"type":"object","properties":{"name":{"type":"string","maxLength":4},
    "tags":{"type":"array","items":{"enum":["red","green"]},"maxItems":2}},"required":["name","tags"],"additionalProperties":false}"#;

fn tokenizer() -> Arc<Tokenizer> {
    Arc::new(byte_tokenizer().expect("the byte vocabulary"))
}

fn compile(source: Source) -> Constraint {
    Vocabulary::new(tokenizer()).and_then(|vocabulary| vocabulary.compile(&source)).expect("it compiles")
}

fn schema() -> Constraint {
    compile(Source::JsonSchema(SCHEMA.to_owned()))
}

fn bytes(text: &str) -> Vec<TokenId> {
    text.bytes().map(|byte| TokenId(byte.into())).collect()
}

/// A model that prefers nothing.
fn flat(rows: usize) -> ScriptedLogitProducer {
    ScriptedLogitProducer::new(vec![vec![0.0; SCRIPTED_VOCAB]; rows], SCRIPTED_VOCAB, 4096)
}

fn sampled(seed: u64, constraint: Constraint) -> GenerationConfig {
    let shaping = Shaping::new(ShapingOptions { seed, ..ShapingOptions::default() }).expect("in range");
    GenerationConfig { shaping, constraint: Some(constraint), continues_prompt: true, ..GenerationConfig::default() }
}

fn generate(
    producer: &mut dyn LogitProducer,
    prompt: &str,
    config: &GenerationConfig,
) -> Result<RawDecodeResult, RuntimeError> {
    let tokenizer = tokenizer();
    let generation = Generation { producer, tokenizer: &tokenizer, config, chunk: 8, cancel: &|| false };
    run_raw_completion_chunked(generation, &bytes(prompt), &mut |_: Progress| {})
}

fn is_valid(text: &str) -> bool {
    let Ok(json) = serde_json::from_str::<serde_json::Value>(text) else { return false };
    let name = json["name"].as_str().is_some_and(|name| name.chars().count() <= 4);
    let tags = json["tags"].as_array().is_some_and(|tags| {
        tags.len() <= 2 && tags.iter().all(|tag| ["red", "green"].contains(&tag.as_str().unwrap_or_default()))
    });
    name && tags && json.as_object().is_some_and(|fields| fields.len() == 2)
}

/// A model without any preference writes what the schema allows, whatever the seed; without it never.
#[test]
fn noise_becomes_valid_json() {
    let constraint = schema();
    for seed in 0..40 {
        let config = sampled(seed, constraint.clone());
        let result = generate(&mut flat(400), "x", &config).expect("an answer");
        assert!(is_valid(&result.text), "{seed}: {}", result.text);
        assert!(matches!(result.reason, StopReason::Complete | StopReason::Eos | StopReason::EndOfTurn), "{result:?}");
        let free = GenerationConfig { constraint: None, max_new_tokens: Some(60), ..config };
        assert!(!is_valid(&generate(&mut flat(400), "x", &free).expect("an answer").text));
    }
}

/// Tokens that must come are fed together, without logits: fewer rows are used, and the answer is the same.
#[test]
fn forced_tokens_change_nothing_but_the_work() {
    for (seed, constraint) in (0..10).map(|seed| (seed, schema())) {
        let together = generate(&mut flat(400), "x", &sampled(seed, constraint.clone())).expect("an answer");
        let singly = generate(&mut flat(400), "x", &sampled(seed, constraint.one_by_one())).expect("an answer");
        assert_eq!((&together.ids, together.reason), (&singly.ids, singly.reason));
        // What ends the answer is not fed any more, nor what was chosen together with it.
        assert!(singly.kv_backed_token_ids.starts_with(&together.kv_backed_token_ids), "{together:?} {singly:?}");
    }
    let fixed = compile(Source::Regex("always the same text".to_owned()));
    let result = generate(&mut flat(1), "x", &sampled(0, fixed.clone())).expect("one row is enough");
    assert_eq!((result.text.as_str(), result.reason), ("always the same text", StopReason::Complete));
    assert!(generate(&mut flat(1), "x", &sampled(0, fixed.clone().one_by_one())).is_err());
    let reported = GenerationConfig { logprobs: Some(2), ..sampled(0, fixed.clone()) };
    let result = generate(&mut flat(400), "x", &reported).expect("an answer");
    let logprobs = result.logprobs.expect("they were asked for");
    assert_eq!(logprobs.len(), result.ids.len());
    assert!(logprobs.iter().all(|one| one.shaped.chosen.logprob == 0.0 && one.model.chosen.logprob < -5.0));
    let short = GenerationConfig { max_new_tokens: Some(6), ..sampled(0, fixed.clone()) };
    let result = generate(&mut flat(1), "x", &short).expect("an answer");
    assert_eq!((result.text.as_str(), result.reason, result.new_tokens), ("always", StopReason::MaxTokens, 6));
    let stopped = GenerationConfig { stop_strings: vec!["same".to_owned()], ..sampled(0, fixed) };
    let result = generate(&mut flat(1), "x", &stopped).expect("an answer");
    assert_eq!((result.text.as_str(), result.reason), ("always the ", StopReason::StopString));
}

/// A forbidden token is not drawn however much the model prefers it, nor the end before its time.
#[test]
fn preferences_count_only_among_what_is_allowed() {
    let constraint = compile(Source::Regex("[a-c]{3}".to_owned()));
    for wish in [&bytes("zbz")[..], &[TokenId(257), TokenId(98), TokenId(257)]] {
        let mut producer = ScriptedLogitProducer::of_ids(wish, SCRIPTED_VOCAB, 64);
        let config = GenerationConfig { shaping: Shaping::greedy(), ..sampled(0, constraint.clone()) };
        let result = generate(&mut producer, "x", &config).expect("an answer");
        assert_eq!((result.text.as_str(), result.reason), ("aba", StopReason::Complete));
    }
}

/// Where the prompt has opened the reasoning, the constraint begins after it, and the answer cannot end inside.
#[test]
fn reasoning_comes_first() {
    let tokenizer = tokenizer();
    let [open, close] = ["<think>", "</think>"].map(|piece| tokenizer.id_of(piece).expect("a token"));
    assert_eq!(tokenizer.open_reasoning(&[open]), Some("</think>"));
    assert_eq!(tokenizer.open_reasoning(&bytes("x")), None);
    let mut wish = bytes("hm");
    wish.extend([close, TokenId(b'z'.into())]);
    let config = GenerationConfig {
        shaping: Shaping::greedy(),
        continues_prompt: false,
        ..sampled(0, compile(Source::Regex("yes|no".to_owned())))
    };
    let generate = |wish: &[TokenId]| {
        let mut producer = ScriptedLogitProducer::of_ids(wish, SCRIPTED_VOCAB, 64);
        let generation =
            Generation { producer: &mut producer, tokenizer: &tokenizer, config: &config, chunk: 8, cancel: &|| false };
        run_raw_completion_chunked(generation, &[open], &mut |_: Progress| {}).expect("an answer")
    };
    let result = generate(&wish);
    assert_eq!(result.ids[..3], wish[..3]);
    assert_eq!((tokenizer.decode(&result.ids[3..], true).as_str(), result.reason), ("no", StopReason::Complete));
    // The model wants to end at once: the best of the other tokens comes instead.
    let result = generate(&[TokenId(257), close, TokenId(b'y'.into())]);
    assert_eq!(result.ids[..2], [TokenId(0), close]);
    assert_eq!((tokenizer.decode(&result.ids[2..], true).as_str(), result.reason), ("yes", StopReason::Complete));
}
