//! The generation loop over scripted producers: admission, stops, reuse, events, the result record.

use foundation::TokenId;
use turbospark_runtime::{
    Generation, GenerationConfig, LogitProducer, ProducerError, Progress, RawDecodeResult, RuntimeError,
    SCRIPTED_VOCAB, ScriptedLogitProducer, StopReason, Want, byte_tokenizer, run_raw_completion,
    run_raw_completion_chunked,
};

const EOS: u32 = 257;
const IM_END: u32 = 259;

fn bytes(text: &str) -> Vec<TokenId> {
    text.bytes().map(|b| TokenId(b as u32)).collect()
}

fn script(ids: &[TokenId]) -> ScriptedLogitProducer {
    ScriptedLogitProducer::of_ids(ids, SCRIPTED_VOCAB, 64)
}

fn ids(text: &str, end: Option<u32>) -> Vec<TokenId> {
    bytes(text).into_iter().chain(end.map(TokenId)).collect()
}

/// Runs a script after the prompt `ab`; returns the result and the events.
fn run(
    answer: &[TokenId],
    config: &GenerationConfig,
    chunk: usize,
) -> Result<(RawDecodeResult, Vec<Progress>), RuntimeError> {
    let tokenizer = byte_tokenizer().expect("builds");
    let mut events = Vec::new();
    let generation =
        Generation { producer: &mut script(answer), tokenizer: &tokenizer, config, chunk, cancel: &|| false };
    let result = run_raw_completion_chunked(generation, &bytes("ab"), &mut |event| events.push(event))?;
    Ok((result, events))
}

fn deltas(events: &[Progress]) -> Vec<&str> {
    let mut deltas = Vec::new();
    for event in events {
        if let Progress::Token { delta, .. } | Progress::Tail(delta) = event
            && !delta.is_empty()
        {
            deltas.push(delta.as_str());
        }
    }
    deltas
}

#[test]
fn d01_characters_arrive_whole() {
    let (result, events) = run(&ids("hi 😀!", Some(EOS)), &GenerationConfig::default(), 8).expect("runs");
    assert_eq!(deltas(&events), ["h", "i", " ", "😀", "!"]);
    assert_eq!((result.text.as_str(), result.reason), ("hi 😀!", StopReason::Eos));
}

#[test]
fn d02_a_cut_off_tail_is_flushed() {
    let cut = [TokenId(0x61), TokenId(0xF0), TokenId(0x9F), TokenId(0x98)];
    let config = GenerationConfig { max_new_tokens: Some(4), ..GenerationConfig::default() };
    let (result, events) = run(&cut, &config, 8).expect("runs");
    assert_eq!((result.text.as_str(), result.reason), ("a\u{FFFD}", StopReason::MaxTokens));
    assert_eq!(events.last(), Some(&Progress::Tail("\u{FFFD}".to_owned())));
}

#[test]
fn d05_d06_stop_strings_are_never_sent_and_what_was_held_is_released() {
    let config = |stop: &str| GenerationConfig { stop_strings: vec![stop.to_owned()], ..GenerationConfig::default() };
    let (result, _) = run(&ids("The quick brown fox", Some(EOS)), &config("own fo"), 8).expect("runs");
    assert_eq!((result.text.as_str(), result.reason), ("The quick br", StopReason::StopString));
    let (result, events) = run(&ids("xST", Some(EOS)), &config("STOP"), 8).expect("runs");
    assert_eq!((result.text.as_str(), result.reason), ("xST", StopReason::Eos));
    assert_eq!(deltas(&events), ["x", "ST"]);
}

#[test]
fn d07_every_stop_token_of_the_vocabulary_ends_the_answer_and_none_is_text() {
    for (end, reason) in [(EOS, StopReason::Eos), (IM_END, StopReason::EndOfTurn)] {
        let (result, _) = run(&ids("hi", Some(end)), &GenerationConfig::default(), 8).expect("runs");
        assert_eq!((result.text.as_str(), result.reason), ("hi", reason));
        assert_eq!((result.new_tokens, result.ids.len()), (3, 2));
        assert!(!result.ids.contains(&TokenId(end)));
    }
    let config = GenerationConfig { ignore_eos: true, max_new_tokens: Some(3), ..GenerationConfig::default() };
    let (result, _) =
        run(&ids("h", Some(EOS)).into_iter().chain(bytes("i")).collect::<Vec<_>>(), &config, 8).expect("runs");
    assert_eq!((result.text.as_str(), result.reason), ("hi", StopReason::MaxTokens));
    let config = GenerationConfig { extra_stop_tokens: vec![TokenId(b'x'.into())], ..GenerationConfig::default() };
    let (result, _) = run(&bytes("abx"), &config, 8).expect("runs");
    assert_eq!((result.text.as_str(), result.reason), ("ab", StopReason::StopToken));
}

#[test]
fn a_stop_on_the_last_token_of_the_budget_counts_as_the_stop() {
    let config = GenerationConfig { max_new_tokens: Some(3), ..GenerationConfig::default() };
    let (result, _) = run(&ids("hi", Some(EOS)), &config, 8).expect("runs");
    assert_eq!(result.reason, StopReason::Eos);
    let config = GenerationConfig { stop_strings: vec!["i".to_owned()], max_new_tokens: Some(2), ..config };
    let (result, _) = run(&bytes("hi"), &config, 8).expect("runs");
    assert_eq!((result.text.as_str(), result.reason), ("h", StopReason::StopString));
}

#[test]
fn admission_refuses_before_the_model_is_touched() {
    let tokenizer = byte_tokenizer().expect("builds");
    let mut producer = script(&[]);
    let mut refused = |prompt: &[TokenId], max_new: Option<usize>| {
        let config = GenerationConfig { max_new_tokens: max_new, ..GenerationConfig::default() };
        run_raw_completion(&mut producer, &tokenizer, prompt, &config, &mut |_| {}).expect_err("is refused")
    };
    assert!(matches!(refused(&[], None), RuntimeError::EmptyPrompt));
    assert!(matches!(refused(&bytes("a"), Some(0)), RuntimeError::ZeroBudget));
    let long = vec![TokenId(b'a'.into()); 64];
    assert!(matches!(refused(&long, None), RuntimeError::PromptTooLong { prompt: 64, context: 64 }));
    let overflow = refused(&long[..60], Some(5));
    assert!(matches!(overflow, RuntimeError::ContextOverflow { prompt: 60, new: 5, total: 65, context: 64 }));
    assert_eq!(producer.position(), 0);
}

#[test]
fn chunks_change_only_the_progress() {
    let answer = ids("same", Some(EOS));
    let (one, single) = run(&answer, &GenerationConfig::default(), 1).expect("runs");
    let (two, whole) = run(&answer, &GenerationConfig::default(), 100).expect("runs");
    assert_eq!((&one.text, &one.ids, one.reason), (&two.text, &two.ids, two.reason));
    let prefills = |events: &[Progress]| events.iter().filter(|e| matches!(e, Progress::Prefill { .. })).count();
    assert_eq!((prefills(&single), prefills(&whole)), (2, 1));
}

#[test]
fn the_record_says_what_is_really_in_the_cache() {
    let config = GenerationConfig { max_new_tokens: Some(2), ..GenerationConfig::default() };
    let (result, _) = run(&bytes("xyz"), &config, 8).expect("runs");
    assert_eq!((result.prompt_tokens, result.new_tokens, result.kv_position), (2, 2, 3));
    assert_eq!(result.kv_backed_token_ids, bytes("abx"));
}

#[test]
fn a_shared_prefix_is_not_fed_again() {
    let tokenizer = byte_tokenizer().expect("builds");
    let mut producer = script(&ids("xy", Some(EOS)).repeat(3));
    let mut next = |prompt: &str| {
        let config = GenerationConfig::default();
        let generation = Generation {
            producer: &mut producer,
            tokenizer: &tokenizer,
            config: &config,
            chunk: 16,
            cancel: &|| false,
        };
        let result = run_raw_completion_chunked(generation, &bytes(prompt), &mut |_| {}).expect("runs");
        (result.reused_prefix_tokens, result.kv_backed_token_ids.len())
    };
    assert_eq!(next("abcd"), (0, 6));
    // The whole past and the answer; one token is always fed.
    assert_eq!(next("abcdxyz"), (6, 9));
    assert_eq!(next("abcd"), (3, 6));
}

/// Fails at a given call.
struct Failing(ScriptedLogitProducer, usize);

impl LogitProducer for Failing {
    fn vocab(&self) -> usize {
        self.0.vocab()
    }
    fn position(&self) -> usize {
        self.0.position()
    }
    fn context(&self) -> usize {
        self.0.context()
    }
    fn fed(&self) -> &[TokenId] {
        self.0.fed()
    }
    fn produce(&mut self, tokens: &[TokenId], want: Want, logits: &mut [f32]) -> Result<(), ProducerError> {
        if self.1 == 0 {
            return Err(ProducerError::ScriptExhausted { prepared: 0 });
        }
        self.1 -= 1;
        self.0.produce(tokens, want, logits)
    }
    fn rewind(&mut self, to: usize) -> usize {
        self.0.rewind(to)
    }
}

#[test]
fn a_failure_of_the_model_is_an_error_whenever_it_comes() {
    let tokenizer = byte_tokenizer().expect("builds");
    for calls in 0..4 {
        let mut producer = Failing(script(&bytes("answer")), calls);
        let config = GenerationConfig::default();
        let result = run_raw_completion(&mut producer, &tokenizer, &bytes("ab"), &config, &mut |_| {});
        assert!(matches!(result, Err(RuntimeError::Producer(_))), "{calls}: {result:?}");
    }
}

#[test]
fn logits_that_are_no_numbers_are_an_error() {
    let tokenizer = byte_tokenizer().expect("builds");
    let mut producer = ScriptedLogitProducer::new(vec![vec![f32::NAN; SCRIPTED_VOCAB]], SCRIPTED_VOCAB, 64);
    let result = run_raw_completion(&mut producer, &tokenizer, &bytes("a"), &GenerationConfig::default(), &mut |_| {});
    assert!(matches!(result, Err(RuntimeError::Selection(_))), "{result:?}");
}
