//! A mixture of identical experts is the dense model: SmolLM2 upcycled, on a text.

use testkit::{nmse, smollm2, upcycled};
use turbospark_runtime::{Engine, GenerationConfig, OpenOptions, all_logits};

const TEXT: &str = "The river rises in the hills above the old town, and in spring, when the snow melts, it carries \
                    branches and stones down to the mill, where children wait for them.";

/// Each expert's product has the bits of the dense one, and two halves of it add up to it exactly.
#[test]
fn identical_experts_are_the_dense_model() {
    let mut results = Vec::new();
    for path in [smollm2(), upcycled()] {
        let options = OpenOptions { context: Some(128), all_logits: true, ..OpenOptions::default() };
        let mut engine = Engine::open(path, &options).unwrap_or_else(|e| panic!("{e}"));
        let tokens = engine.prompt_tokens(TEXT).unwrap_or_else(|e| panic!("{e}"));
        let logits = all_logits(engine.producer(), &tokens, 64).unwrap_or_else(|e| panic!("{e}"));
        let config = GenerationConfig { max_new_tokens: Some(16), ..GenerationConfig::default() };
        let answer = engine.generate(&tokens, &config, &|| false, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
        results.push((logits, answer.ids));
    }
    let error = nmse(&results[1].0, &results[0].0);
    assert_eq!(error, 0.0, "the same logits");
    assert_eq!(results[1].1, results[0].1, "the same greedy tokens");
}
