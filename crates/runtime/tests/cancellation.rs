//! Cancelling: during the prompt, while generating, and when something else ends the answer first.

use foundation::TokenId;
use std::cell::Cell;
use testkit::{golden, with_whole};
use turbospark_runtime::{
    Engine, Generation, GenerationConfig, OpenOptions, Progress, RawDecodeResult, SCRIPTED_VOCAB,
    ScriptedLogitProducer, StopReason, byte_tokenizer, run_raw_completion_chunked,
};

fn bytes(text: &str) -> Vec<TokenId> {
    text.bytes().map(|b| TokenId(b as u32)).collect()
}

/// Answers `answer` after `ab`, cancelled after some polls.
fn scripted(answer: &[TokenId], config: &GenerationConfig, polls: usize) -> (RawDecodeResult, Vec<Progress>) {
    let tokenizer = byte_tokenizer().expect("builds");
    let mut producer = ScriptedLogitProducer::of_ids(answer, SCRIPTED_VOCAB, 64);
    let (asked, mut events) = (Cell::new(0), Vec::new());
    let cancel = || {
        asked.set(asked.get() + 1);
        asked.get() > polls
    };
    let generation = Generation { producer: &mut producer, tokenizer: &tokenizer, config, chunk: 1, cancel: &cancel };
    let result = run_raw_completion_chunked(generation, &bytes("ab"), &mut |event| events.push(event));
    (result.expect("cancelling is a success"), events)
}

#[test]
fn cancelling_is_a_result() {
    for (polls, new, position) in [(0, 0, 0), (1, 0, 1), (3, 1, 2), (4, 2, 3)] {
        let (result, _) = scripted(&bytes("answer"), &GenerationConfig::default(), polls);
        let found = (result.reason, result.new_tokens, result.kv_position);
        assert_eq!(found, (StopReason::Cancelled, new, position), "after {polls} polls");
    }
}

#[test]
fn a_stop_and_the_budget_come_before_cancelling() {
    const EOS: u32 = 257;
    let polls_of_the_whole_run = (0..).find(|polls| {
        let answer: Vec<_> = bytes("hey").into_iter().chain([TokenId(EOS)]).collect();
        scripted(&answer, &GenerationConfig::default(), *polls).0.reason != StopReason::Cancelled
    });
    let polls = polls_of_the_whole_run.expect("ends");
    let stopped: Vec<_> = bytes("hey").into_iter().chain([TokenId(EOS)]).collect();
    assert_eq!(scripted(&stopped, &GenerationConfig::default(), polls).0.reason, StopReason::Eos);
    let three = GenerationConfig { max_new_tokens: Some(3), ..GenerationConfig::default() };
    assert_eq!(scripted(&bytes("heyyou"), &three, polls).0.reason, StopReason::MaxTokens);
}

#[test]
fn what_was_withheld_is_flushed() {
    // "he" may begin the stop string, and half of "é" has arrived: neither is lost.
    let config = GenerationConfig { stop_strings: vec!["hello".to_owned()], ..GenerationConfig::default() };
    let answer: Vec<_> = bytes("x he").into_iter().chain(bytes("é")).collect();
    let texts: Vec<String> = (0..9).map(|polls| scripted(&answer, &config, polls).0.text).collect();
    assert!(texts.contains(&"x he".to_owned()), "{texts:?}");
    assert!(texts.contains(&"x he\u{fffd}".to_owned()), "{texts:?}");
    for polls in 0..9 {
        let (result, events) = scripted(&answer, &config, polls);
        let streamed: String = events
            .iter()
            .map(|event| match event {
                Progress::Token { delta, .. } | Progress::Tail(delta) => delta.as_str(),
                Progress::Prefill { .. } | Progress::Recompute { .. } => "",
            })
            .collect();
        assert_eq!(streamed, result.text, "after {polls} polls");
    }
}

#[test]
fn a_real_model_stops_between_chunks_and_goes_on_afterwards() {
    let options = OpenOptions { prefill_chunk: 8, ..OpenOptions::default() };
    let open = |path: &std::path::Path| Engine::open(path, &options).unwrap_or_else(|e| panic!("{e}"));
    let mut engine = with_whole(&golden("qwen3_5").join("model.gguf"), open);
    let prompt: Vec<TokenId> = (0..40).map(|i| TokenId(3 + i * 5 % 200)).collect();
    let config = GenerationConfig { max_new_tokens: Some(6), ..GenerationConfig::default() };
    let never = engine.generate(&prompt, &config, &|| false, &mut |_| {}).expect("runs");
    assert_eq!(never.new_tokens, 6);
    for polls in [1, 3, 7] {
        engine.producer().reset();
        engine.forget_prefixes();
        let asked = Cell::new(0);
        let cancel = || {
            asked.set(asked.get() + 1);
            asked.get() > polls
        };
        let cancelled = engine.generate(&prompt, &config, &cancel, &mut |_| {}).expect("is a success");
        assert_eq!(cancelled.reason, StopReason::Cancelled, "at poll {polls}");
        assert_eq!(cancelled.kv_position, cancelled.kv_backed_token_ids.len());
        let after = engine.generate(&prompt, &config, &|| false, &mut |_| {}).expect("runs");
        assert_eq!(after.ids, never.ids, "after cancelling at poll {polls}");
    }
}
