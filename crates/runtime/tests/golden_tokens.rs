//! Frozen greedy ids of a dense model, a mixture of experts and a hybrid, through the engine and its loop.

use testkit::{golden, with_whole};
use turbospark_runtime::{Engine, GenerationConfig, OpenOptions, StopReason};

fn greedy(model: &str, options: &OpenOptions) -> (Vec<u32>, StopReason) {
    let path = golden(model).join("model.gguf");
    let mut engine = with_whole(&path, |path| Engine::open(path, options).unwrap_or_else(|e| panic!("{e}")));
    let prompt = engine.prompt_tokens("the thing on a hat").expect("encodes");
    let config = GenerationConfig { max_new_tokens: Some(12), ..GenerationConfig::default() };
    let result = engine.generate(&prompt, &config, &|| false, &mut |_| {}).expect("runs");
    (result.ids.iter().map(|id| id.0).collect(), result.reason)
}

#[test]
fn greedy_ids_are_frozen() {
    for (model, expected) in FROZEN {
        let (ids, reason) = greedy(model, &OpenOptions::default());
        assert_eq!((ids.as_slice(), reason), (*expected, StopReason::MaxTokens), "{model}");
        for options in [
            OpenOptions { prefill_chunk: 1, ..OpenOptions::default() },
            OpenOptions { threads: Some(1), ..OpenOptions::default() },
            OpenOptions { threads: Some(3), prefill_chunk: 5, ..OpenOptions::default() },
        ] {
            assert_eq!(greedy(model, &options).0, *expected, "{model}, {options:?}");
        }
    }
}

const FROZEN: &[(&str, &[u32])] = &[
    ("llama", &[193, 122, 164, 122, 164, 247, 181, 243, 154, 78, 74, 119]),
    ("qwen3_moe", &[101, 101, 101, 101, 101, 105, 66, 38, 66, 136, 56, 56]),
    ("qwen3_5", &[120, 194, 109, 198, 183, 28, 100, 197, 245, 229, 92, 188]),
];
