//! A prompt fed in chunks: the same answer for the same reason, and progress that adds up.

use testkit::{golden, with_whole};
use turbospark_runtime::{Engine, GenerationConfig, OpenOptions, Progress, RawDecodeResult, RuntimeError};

const PROMPT: &str = "the thing on a hat is not on the mat. the hat is on a thing.";

fn engine(model: &str, prefill_chunk: usize) -> Engine {
    let options = OpenOptions { prefill_chunk, ..OpenOptions::default() };
    let open = |path: &std::path::Path| Engine::open(path, &options).unwrap_or_else(|e| panic!("{e}"));
    with_whole(&golden(model).join("model.gguf"), open)
}

fn complete(engine: &mut Engine, config: &GenerationConfig) -> (RawDecodeResult, Vec<(usize, usize)>) {
    let mut progress = Vec::new();
    let mut see = |event| {
        if let Progress::Prefill { done, total } = event {
            progress.push((done, total));
        }
    };
    let result = engine.complete(PROMPT, config, &mut see).expect("runs");
    (result, progress)
}

#[test]
fn every_chunk_gives_the_same_answer_for_the_same_reason() {
    for model in ["llama", "gemma4_dense", "gpt_oss_lim7", "qwen3_5"] {
        let config = GenerationConfig { max_new_tokens: Some(16), ..GenerationConfig::default() };
        let (whole, _) = complete(&mut engine(model, 4096), &config);
        let stopped = GenerationConfig { stop_strings: vec![stop_of(&whole.text)], ..config.clone() };
        for chunk in [1, 7, 32] {
            let mut engine = engine(model, chunk);
            let (found, progress) = complete(&mut engine, &config);
            assert_eq!((&found.ids, found.reason), (&whole.ids, whole.reason), "{model} in chunks of {chunk}");
            assert!(progress.is_sorted_by(|a, b| a.0 < b.0), "{model}: {progress:?}");
            let prompt = found.prompt_tokens;
            assert!(progress.iter().all(|(done, total)| *total == prompt && *done <= prompt), "{model}: {progress:?}");
            assert_eq!(progress.len(), prompt.div_ceil(chunk), "{model}: an event a chunk");
            engine.producer().reset();
            let (mine, _) = complete(&mut engine, &stopped);
            engine.producer().reset();
            assert!(mine.text.len() < whole.text.len() || whole.text.is_empty(), "{model}: the stop string is cut");
        }
    }
}

/// A piece of the answer that can be a stop string.
fn stop_of(text: &str) -> String {
    let middle = text.chars().nth(text.chars().count() / 2).unwrap_or('\u{0}');
    middle.to_string()
}

#[test]
fn an_empty_prompt_is_refused_whatever_the_chunk() {
    for chunk in [1, 7, 4096] {
        let mut engine = engine("qwen3", chunk);
        let refused = engine.generate(&[], &GenerationConfig::default(), &|| false, &mut |_| {});
        assert!(matches!(refused, Err(RuntimeError::EmptyPrompt)), "{refused:?}");
        assert_eq!(engine.producer().position(), 0);
    }
}
