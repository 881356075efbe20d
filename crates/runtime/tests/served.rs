//! A model opened for many requests at once: memory, answers, refusals.

use foundation::TokenId;
use std::path::Path;
use testkit::{golden, with_whole};
use turbospark_runtime::{
    Engine, Event, GenerationConfig, ModelFiles, OpenOptions, RawDecodeResult, Request, Served, TurnOptions,
    open_service,
};

fn record(served: &Served, request: Request) -> impl FnOnce() -> RawDecodeResult {
    let stream = served.service.submit(request);
    move || loop {
        match stream.recv() {
            Some(Event::Finished(result)) => return *result,
            Some(Event::Progress(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn requests() -> Vec<Request> {
    let prompt = |n: u32| (0..20 + 9 * n).map(|i| TokenId(3 + (i * 5 + n * 11) % 200)).collect();
    let config = GenerationConfig { max_new_tokens: Some(12), ignore_eos: true, ..GenerationConfig::default() };
    (0..7).map(|n| Request { prompt: prompt(n), config: config.clone() }).collect()
}

/// A dense model, one with windows, a hybrid, experts, and hyper-connections.
#[test]
fn many_at_once_answer_as_each_alone() {
    for name in ["llama", "gemma4_dense", "qwen3_5", "mixtral", "qwen4_exp_ple64"] {
        let path = golden(name).join("model.gguf");
        let alone = OpenOptions { context: Some(128), prefill_chunk: 16, ..OpenOptions::default() };
        let together = OpenOptions { sequences: 3, prefill_chunk: 11, ..alone.clone() };
        let mut engine = with_whole(&path, |path| Engine::open(path, &alone)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let served = with_whole(&path, |path| open_service(path, &together)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let waiting: Vec<_> = requests().into_iter().map(|request| record(&served, request)).collect();
        for (request, found) in requests().into_iter().zip(waiting) {
            engine.producer().reset();
            let expected = engine.generate(&request.prompt, &request.config, &|| false, &mut |_| {}).expect("runs");
            let found = found();
            assert_eq!((found.ids, found.text), (expected.ids, expected.text), "{name}");
        }
        served.service.shutdown().expect("nothing is saved");
    }
}

#[test]
fn d31_memory_is_counted_for_every_sequence() {
    with_whole(&golden("llama").join("model.gguf"), memory_is_counted);
}

fn memory_is_counted(path: &Path) {
    let files = ModelFiles::open(path).expect("opens");
    let one = OpenOptions { context: Some(64), ..OpenOptions::default() };
    let four = OpenOptions { sequences: 4, ..one.clone() };
    let (alone, together) = (files.memory(&one, 64).expect("counts"), files.memory(&four, 64).expect("counts"));
    assert_eq!(together.states, 4 * alone.states);
    // What is enough for one is not for four; the number in the message then loads.
    let memory = Some(alone.total() + alone.states);
    let error = open_service(path, &OpenOptions { memory, ..four.clone() }).expect_err("does not fit").to_string();
    assert!(error.contains("4 × 64 positions") && error.contains("a context of "), "{error}");
    let fits = error.split("a context of ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a number");
    let context = fits.parse().ok();
    assert!(context.is_some_and(|c: usize| c < 64), "{error}");
    if context != Some(0) {
        open_service(path, &OpenOptions { memory, context, ..four.clone() })
            .expect("fits")
            .service
            .shutdown()
            .expect("ends");
    }
    // No context is too large to be refused with a sum.
    for context in [1usize << 40, 1 << 63] {
        let error =
            open_service(path, &OpenOptions { context: Some(context), ..four.clone() }).expect_err("is refused");
        assert!(error.to_string().contains(&context.to_string()), "{error}");
    }
    // The smallest contexts work.
    for context in [1, 2, 15, 16] {
        let served = open_service(path, &OpenOptions { context: Some(context), ..four.clone() }).expect("opens");
        let config = GenerationConfig { ignore_eos: true, ..GenerationConfig::default() };
        let stream = served.service.submit(Request { prompt: vec![TokenId(5)], config });
        let last = std::iter::from_fn(|| stream.recv()).last();
        match last {
            Some(Event::Finished(result)) => assert_eq!(result.new_tokens, context - 1),
            Some(Event::Failed(error)) => assert!(context == 1, "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_scripted_model_is_served_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("answer.json");
    std::fs::write(&file, r#"{"text": "hello", "step_ms": 1}"#).expect("written");
    let options = OpenOptions { sequences: 2, ..OpenOptions::default() };
    let served = open_service(format!("scripted:{}", file.display()), &options).expect("opens");
    let ask = || Request { prompt: vec![TokenId(97)], config: GenerationConfig::default() };
    let waiting = [ask(), ask(), ask()].map(|request| record(&served, request));
    waiting.into_iter().for_each(|found| assert_eq!(found().text, "hello"));
}

/// A client who is gone ends its request within a step, whether it read or not; nothing stays behind.
#[test]
fn d50_a_dropped_stream_is_gone_within_a_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("s.json");
    std::fs::write(&file, r#"{"text": "x", "repeat": true, "step_ms": 5, "context": 20000}"#).expect("written");
    let options = OpenOptions { sequences: 2, ..OpenOptions::default() };
    let served = open_service(format!("scripted:{}", file.display()), &options).expect("opens");
    let config = GenerationConfig { max_new_tokens: Some(10_000), ignore_eos: true, ..GenerationConfig::default() };
    let free = served.service.status().free_blocks;
    for read in [0, 3, 10] {
        let turn =
            served.turn(Request { prompt: vec![TokenId(97); 9], config: config.clone() }, &TurnOptions::default());
        let mut turn = turn.expect("is taken");
        (0..read).for_each(|_| drop(turn.recv().expect("goes on").expect("no failure")));
        while served.service.status().running == 0 {
            std::thread::yield_now();
        }
        let begun = served.service.status().steps;
        drop(turn);
        while served.service.status().running > 0 {
            std::thread::yield_now();
        }
        let status = served.service.status();
        assert!(status.steps - begun <= 2, "{read} events read: {} steps more", status.steps - begun);
        assert_eq!((status.waiting, status.free_blocks), (0, free));
    }
    served.service.shutdown().expect("ends");
}
