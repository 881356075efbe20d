//! The main job on a real model: SmolLM2-135M-Instruct, Q4_1, against recorded llama.cpp runs and against our own
//! reference device. The model is downloaded once; these tests do not pass without it.

use foundation::TokenId;
use grammar::{Source, Vocabulary};
use plan::{KvType, KvTypes};
use selection::{Shaping, ShapingOptions};
use std::sync::{Arc, OnceLock};
use testkit::{agreement, recorded, smollm2};
use turbospark_runtime::{
    DeviceKind, Engine, GenerationConfig, KvChoice, Message, ModelFiles, OpenOptions, StopReason, all_logits, compare,
};

fn open(options: OpenOptions) -> Engine {
    static PATH: OnceLock<std::path::PathBuf> = OnceLock::new();
    let path = PATH.get_or_init(smollm2);
    Engine::open(path, &options).unwrap_or_else(|e| panic!("{e}"))
}

fn options() -> OpenOptions {
    OpenOptions { context: Some(512), all_logits: true, ..OpenOptions::default() }
}

fn ids(raw: &[u32]) -> Vec<TokenId> {
    raw.iter().copied().map(TokenId).collect()
}

fn greedy(engine: &mut Engine, prompt: &[TokenId], max_new: usize) -> (Vec<TokenId>, String, StopReason) {
    let config = GenerationConfig { max_new_tokens: Some(max_new), ..GenerationConfig::default() };
    let result = engine.generate(prompt, &config, &|| false, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    (result.ids, result.text, result.reason)
}

#[test]
fn recorded_runs_are_reproduced() {
    let mut engine = open(options());
    let runs = recorded("smollm2");
    let vocab = engine.producer().vocab();
    let agreement = agreement(&runs, vocab, |tokens| {
        all_logits(engine.producer(), &ids(tokens), 256).unwrap_or_else(|e| panic!("{e}"))
    });
    println!("{agreement}");
    agreement.verdict().unwrap_or_else(|wrong| panic!("{wrong}"));
}

#[test]
fn prompts_become_the_recorded_tokens_and_the_chat_the_recorded_answer() {
    let mut engine = open(options());
    for run in recorded("smollm2") {
        let tokens = match &run.prompt {
            Some(prompt) => engine.prompt_tokens(prompt),
            None => engine.chat_tokens(&[Message::user("What is the capital of Japan? Answer in one short sentence.")]),
        };
        assert_eq!(tokens.unwrap_or_else(|e| panic!("{e}")), ids(&run.prompt_ids), "{:?}", run.prompt);
        if run.kind == "chat" {
            let (generated, text, reason) = greedy(&mut engine, &ids(&run.prompt_ids), 40);
            assert_eq!((text.as_str(), reason), (run.text.as_str(), StopReason::Eos));
            let (end, answer) = run.gen_ids.split_last().expect("an answer");
            assert_eq!((generated, *end), (ids(answer), 2));
        }
    }
}

#[test]
fn predictions_are_those_of_the_reference_device() {
    let run = |options: OpenOptions| {
        let mut engine = open(OpenOptions { context: Some(64), ..options });
        let mut rows = Vec::new();
        for run in recorded("smollm2") {
            let tokens: Vec<u32> = run.prompt_ids.iter().chain(&run.gen_ids).copied().collect();
            rows.extend(all_logits(engine.producer(), &ids(&tokens), 64).unwrap_or_else(|e| panic!("{e}")));
        }
        (rows, engine.producer().vocab())
    };
    let (reference, vocab) = run(OpenOptions { device: DeviceKind::Reference, ..options() });
    let (ours, _) = run(options());
    let comparison = compare(&ours, &reference, vocab);
    println!("{comparison:?}");
    assert!(comparison.mean_kl <= 0.005, "{comparison:?}");
}

#[test]
fn the_answer_does_not_depend_on_chunk_or_threads() {
    let prompt =
        open(options()).chat_tokens(&[Message::user("Name three colours of the rainbow, with a fruit for each.")]);
    let prompt = prompt.unwrap_or_else(|e| panic!("{e}"));
    let mut answers = Vec::new();
    for (threads, prefill_chunk) in [(1, 256), (2, 256), (3, 7), (2, 1)] {
        let mut engine = open(OpenOptions { threads: Some(threads), prefill_chunk, ..options() });
        answers.push(greedy(&mut engine, &prompt, 24));
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:#?}");
}

#[test]
fn the_budget_is_said_before_loading() {
    let engine = open(OpenOptions { kv: KvTypes::both(KvType::F32).into(), ..options() });
    let report = engine.report();
    let budget = report.budget.clone().expect("a real model has one");
    // 30 layers × 3 heads × 64 channels × (key + value) × 4 bytes.
    assert_eq!(budget.per_position, 30 * 3 * 64 * 2 * 4);
    assert_eq!(budget.states, 512 * budget.per_position);
    let files = ModelFiles::open(&smollm2()).unwrap_or_else(|e| panic!("{e}"));
    assert!(budget.weights.abs_diff(files.weights.total_bytes()) < 1 << 20, "{budget:?}");
    let refused = Engine::open(smollm2(), &OpenOptions { memory: Some(64 << 20), context: Some(512), ..options() });
    let message = refused.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(message.contains("weights") && message.contains("64.0 MiB"), "{message}");
}

/// Predictions of every type beside those of an f32 cache, over the recorded runs; `benches/results/kv-types.md` has longer text.
#[test]
fn packed_caches_stay_near_the_wide_one() {
    let run = |kv: &str| {
        let kv = KvChoice::Plan(kv.parse().expect("types"));
        let mut engine = open(OpenOptions { context: Some(64), kv, ..options() });
        let mut rows = Vec::new();
        for run in recorded("smollm2") {
            let tokens: Vec<u32> = run.prompt_ids.iter().chain(&run.gen_ids).copied().collect();
            rows.extend(all_logits(engine.producer(), &ids(&tokens), 64).unwrap_or_else(|e| panic!("{e}")));
        }
        let report = engine.report();
        (rows, report.budget.as_ref().expect("a real model has one").per_position, report.notes.len())
    };
    let (wide, _, _) = run("f32");
    let vocab = open(options()).producer().vocab();
    // 30 layers of 3 heads of 64 channels.
    for (kv, bytes, limit) in [
        ("q8", 30 * 3 * 2 * 68, 0.015),
        ("q8:q4", 30 * 3 * (68 + 40), 0.03),
        ("tq4", 30 * 3 * 2 * 36, 0.15),
        ("tq3.5", 30 * 3 * (28 + 36), 0.5),
        ("tq2", 30 * 3 * 2 * 20, 2.5),
    ] {
        let (rows, found, warnings) = run(kv);
        let kl = compare(&rows, &wide, vocab).mean_kl;
        println!("{kv}: {kl:.4}, {warnings} warnings");
        assert_eq!(found, bytes, "{kv}");
        assert!(kl <= limit, "{kv}: {kl}");
        assert_eq!(warnings > 0, kv == "tq3.5" || kv == "tq2", "{kv}");
    }
}

/// Bounded strings and arrays: ten seeds at temperature 1, ten valid answers.
#[test]
fn a_schema_is_kept_at_temperature_1() {
    let schema = r#"{"type":"object","properties":{"city":{"type":"string","maxLength":20},
        "sights":{"type":"array","items":{"type":"string","maxLength":20},"minItems":1,"maxItems":3},
        "population":{"type":"integer","minimum":0,"maximum":99999999}},
        "required":["city","sights","population"],"additionalProperties":false}"#;
    let mut engine = open(OpenOptions { context: Some(512), ..OpenOptions::default() });
    let vocabulary = Vocabulary::new(Arc::clone(engine.tokenizer())).unwrap_or_else(|e| panic!("{e}"));
    let constraint = vocabulary.compile(&Source::JsonSchema(schema.to_owned())).unwrap_or_else(|e| panic!("{e}"));
    let messages = [Message::user("Describe a city as JSON with the fields city, sights and population.")];
    for seed in 0..10 {
        let shaping = Shaping::new(ShapingOptions { seed, ..ShapingOptions::default() }).expect("in range");
        let config = GenerationConfig { shaping, constraint: Some(constraint.clone()), ..GenerationConfig::default() };
        let result = engine.chat(&messages, &config, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
        let json: serde_json::Value = serde_json::from_str(&result.text).unwrap_or_else(|e| panic!("{e}: {result:?}"));
        let short = |value: &serde_json::Value| value.as_str().is_some_and(|text| text.chars().count() <= 20);
        let sights = json["sights"].as_array().unwrap_or_else(|| panic!("{json}"));
        assert!(short(&json["city"]) && sights.iter().all(short) && (1..=3).contains(&sights.len()), "{json}");
        assert!(json["population"].as_u64().is_some_and(|n| n <= 99_999_999), "{json}");
        assert!(matches!(result.reason, StopReason::Complete | StopReason::Eos | StopReason::EndOfTurn), "{result:?}");
    }
}
