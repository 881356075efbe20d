//! A mixture of identical experts is the dense model: SmolLM2 upcycled, on a text.

use foundation::TokenId;
use testkit::{Router, nmse, smollm2, upcycled};
use turbospark_runtime::{DeviceKind, Engine, ExpertChoice, GenerationConfig, OpenOptions, all_logits, open_logits};

const TEXT: &str = "The river rises in the hills above the old town, and in spring, when the snow melts, it carries \
                    branches and stones down to the mill, where children wait for them.";

/// Each expert's product has the bits of the dense one, and two halves of it add up to it exactly.
#[test]
fn identical_experts_are_the_dense_model() {
    let mut results = Vec::new();
    for path in [smollm2(), upcycled(Router::Even)] {
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

/// Unequal weights add up to one but for a rounding of the last bit, so in plain arithmetic the logits agree to that. (With
/// activations in 8 bits such a rounding can move a code by one, which says nothing of the mixture.)
#[test]
fn unequal_weights_of_identical_experts_add_up_to_the_dense_model() {
    let tokens = [504, 7446, 11119, 281, 260, 7744, 1486].map(TokenId);
    let options =
        OpenOptions { device: DeviceKind::Reference, context: Some(32), all_logits: true, ..OpenOptions::default() };
    let [dense, mixture] = [smollm2(), upcycled(Router::Random)].map(|path| {
        let (mut producer, _) = open_logits(path, &options).unwrap_or_else(|e| panic!("{e}"));
        all_logits(&mut *producer, &tokens, tokens.len()).unwrap_or_else(|e| panic!("{e}"))
    });
    let error = nmse(&mixture, &dense);
    assert!(error > 0.0 && error < 1e-8, "NMSE {error}");
}

/// Real weights: the same bits with experts in memory, mapped, and streamed through one, two and four slots a layer.
#[test]
fn residency_changes_no_bit() {
    let tokens: Vec<_> =
        [504, 7446, 11119, 281, 260, 7744, 1486, 260, 1165, 3405, 28, 284].into_iter().map(TokenId).collect();
    let logits = |experts, chunk| {
        let options = OpenOptions { experts, context: Some(32), all_logits: true, ..OpenOptions::default() };
        let (mut producer, _) = open_logits(upcycled(Router::Random), &options).unwrap_or_else(|e| panic!("{e}"));
        let logits = all_logits(&mut *producer, &tokens, chunk).unwrap_or_else(|e| panic!("{e}"));
        logits.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let whole = logits(ExpertChoice::Ram, 12);
    assert!(logits(ExpertChoice::Mapped, 5) == whole, "mapped");
    for (slots, chunk) in [(1, 12), (1, 1), (2, 5), (4, 12)] {
        assert!(logits(ExpertChoice::Streamed(Some(slots)), chunk) == whole, "{slots} slots, chunks of {chunk}");
    }
}
