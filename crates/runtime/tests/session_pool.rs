//! Parked conversations: going on with one gives the bits of a cold run, nothing is lost without being told.

#[path = "scheduler/toy.rs"]
mod toy;

use foundation::TokenId;
use plan::{ExecError, KV_BLOCK};
use testkit::{Random, golden, with_whole};
use toy::{POISON, Toy};
use turbospark_runtime::{
    CaptureKind, Engine, GenerationConfig, LogitProducer, ModelFiles, OpenOptions, ProducerError, RealForwardRunner,
    RuntimeError, SessionPool, Sessions, Want, open_service,
};

const CONTEXT: usize = 160;

fn tokens(text: &str) -> Vec<TokenId> {
    text.bytes().map(|b| TokenId(b as u32)).collect()
}

/// Feeds what is left of a prompt; returns the last row's bits and how much was reused.
fn feed(producer: &mut dyn LogitProducer, prompt: &[TokenId], chunk: usize) -> (Vec<u32>, usize) {
    let reused = producer.resume(prompt);
    assert!(reused < prompt.len() && producer.fed() == &prompt[..reused], "{reused} of {}", prompt.len());
    let mut logits = vec![0.0; producer.vocab()];
    let mut left = &prompt[reused..];
    while left.len() > chunk {
        producer.produce(&left[..chunk], Want::Nothing, &mut []).expect("is fed");
        left = &left[chunk..];
    }
    producer.produce(left, Want::Last, &mut logits).expect("is fed");
    assert_eq!(producer.fed(), prompt);
    (logits.iter().map(|x| x.to_bits()).collect(), reused)
}

fn pool(slots: usize) -> SessionPool<Toy> {
    SessionPool::new(Toy::new(slots * CONTEXT / KV_BLOCK, 64, 1, 0), CONTEXT, slots)
}

fn cold(prompt: &[TokenId]) -> Vec<u32> {
    feed(&mut RealForwardRunner::new(Toy::new(CONTEXT / KV_BLOCK, 64, 1, 0), CONTEXT), prompt, 64).0
}

/// Conversations of a full, a windowed, a recurrent and a hashing model take turns, are edited, and come back.
#[test]
fn swapping_gives_the_bits_of_a_cold_run() {
    let sessions = Sessions { slots: 3, bytes: None };
    for model in ["llama", "gemma4_dense", "qwen3_5", "qwen4_exp_ple64"] {
        let options = OpenOptions { context: Some(CONTEXT), prefill_chunk: 16, ..OpenOptions::default() };
        let open = |options: &OpenOptions| {
            let path = golden(model).join("model.gguf");
            with_whole(&path, |path| Engine::open(path, options)).unwrap_or_else(|e| panic!("{model}: {e}"))
        };
        let (mut pooled, mut single) = (open(&OpenOptions { sessions, ..options.clone() }), open(&options));
        let forgetful = |engine: &mut Engine| {
            engine.producer().rewind(0);
            engine.forget_prefixes();
        };
        let mut random = Random::new(9);
        let mut below = |n: usize| random.below(n);
        let mut talks: Vec<Vec<TokenId>> = vec![Vec::new(); 5];
        let (mut reused_rows, mut rows) = (0, 0);
        for step in 0..48 {
            let at = below(talks.len());
            let other = talks[below(5)].clone();
            let talk = &mut talks[at];
            match below(8) {
                // An edit, or the beginning of another conversation.
                0 => talk.truncate(below(talk.len() + 1)),
                1 => *talk = other[..below(other.len() + 1)].to_vec(),
                _ => {}
            }
            let new = 1 + below(24);
            if talk.len() + new > CONTEXT {
                talk.clear();
            }
            talk.extend((0..new).map(|_| TokenId(3 + below(200) as u32)));
            let chunk = 1 + below(16);
            let (bits, reused) = feed(pooled.producer(), talk, chunk);
            forgetful(&mut single);
            let (expected, none) = feed(single.producer(), talk, 16);
            assert_eq!(none, 0);
            assert!(bits == expected, "{model}, step {step}: {} tokens, {reused} reused, chunk {chunk}", talk.len());
            (reused_rows, rows) = (reused_rows + reused, rows + talk.len());
        }
        println!(
            "{model}: {reused_rows} of {rows} rows reused, {} conversations given up",
            pooled.producer().evicted()
        );
        assert!(reused_rows * 3 > rows, "{model}: {reused_rows} of {rows}");
    }
}

#[test]
fn the_conversation_with_most_of_a_prompt_goes_on() {
    let mut pool = pool(3);
    let talks = ["one two three", "four five six", "four seven eight"].map(tokens);
    for talk in &talks {
        feed(&mut pool, talk, 64);
    }
    assert_eq!((pool.parked(), pool.evicted()), (2, 0));
    for (talk, expected) in talks.iter().zip([13, 13, 16]) {
        let longer = [&talk[..], &tokens(" and more")[..]].concat();
        let (bits, reused) = feed(&mut pool, &longer, 64);
        assert_eq!((reused, pool.evicted()), (expected, 0));
        assert!(bits == cold(&longer));
    }
    // Known to the last token: one is fed again.
    let whole = [&talks[1][..], &tokens(" and more")[..]].concat();
    assert_eq!(feed(&mut pool, &whole, 64).1, whole.len() - 1);
    assert_eq!((pool.parked(), pool.evicted()), (2, 0));
}

#[test]
fn a_shallow_match_destroys_nothing() {
    let system = "You are brief.";
    let long = tokens(&format!("{system} {}", "a long story ".repeat(6)));
    let short = tokens(&format!("{system} hi"));
    let mut pool = pool(2);
    feed(&mut pool, &long, 64);
    let (bits, reused) = feed(&mut pool, &short, 64);
    // The beginning is shared, not taken away.
    assert_eq!((reused, pool.parked(), pool.evicted()), (system.len() + 1, 1, 0));
    assert!(bits == cold(&short));
    let (bits, reused) = feed(&mut pool, &long, 64);
    assert_eq!((reused, pool.evicted()), (long.len() - 1, 0));
    assert!(bits == cold(&long));
    // A deep match goes on in place: nothing worth a slot is lost.
    let edited = [&long[..long.len() - 9], &tokens("?")[..]].concat();
    let (bits, reused) = feed(&mut pool, &edited, 64);
    assert_eq!((reused, pool.parked(), pool.evicted()), (long.len() - 9, 1, 0));
    assert!(bits == cold(&edited));
}

#[test]
fn a_conversation_given_up_is_told_and_no_other() {
    let mut pool = pool(2);
    let talks = ["aaaa bbbb", "cccc dddd", "eeee ffff"].map(tokens);
    let given_up: Vec<u64> = talks
        .iter()
        .map(|talk| {
            feed(&mut pool, talk, 64);
            pool.evicted()
        })
        .collect();
    assert_eq!((given_up, pool.parked()), (vec![0, 0, 1], 1));
    // The oldest is gone, the other is not.
    assert_eq!(feed(&mut pool, &talks[1], 64).1, talks[1].len() - 1);
    assert_eq!(pool.evicted(), 1);
    assert_eq!(feed(&mut pool, &talks[0], 64).1, 0);
    assert_eq!(pool.evicted(), 2);
    // Beginning again parks; an empty conversation takes no slot and is not worth telling of.
    pool.reset();
    assert_eq!((pool.position(), pool.parked(), pool.evicted()), (0, 1, 3));
    pool.reset();
    assert_eq!((pool.parked(), pool.evicted()), (1, 3));
    assert_eq!(feed(&mut pool, &talks[0], 64).1, talks[0].len() - 1);
    assert_eq!((pool.parked(), pool.evicted()), (0, 3));
}

#[test]
fn the_record_of_an_answer_tells_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("s.json");
    std::fs::write(&file, r#"{"text": "ok", "repeat": true}"#).expect("written");
    let sessions = Sessions { slots: 2, bytes: None };
    let options = OpenOptions { sessions, ..OpenOptions::default() };
    let mut engine = Engine::open(format!("scripted:{}", file.display()), &options).expect("opens");
    let config = GenerationConfig { max_new_tokens: Some(3), ..GenerationConfig::default() };
    let mut ask = |prompt: &str| {
        let result = engine.generate(&tokens(prompt), &config, &|| false, &mut |_| {}).expect("runs");
        (result.session_slot_evicted, result.reused_prefix_tokens)
    };
    assert_eq!(
        ["aa", "bb", "aaokx", "bbokx", "cc", "bbokxy"].map(&mut ask),
        [(false, 0), (false, 0), (false, 4), (false, 4), (true, 0), (false, 5),]
    );
}

#[test]
fn one_slot_is_one_runner() {
    let (mut pool, mut runner) = (pool(1), RealForwardRunner::new(Toy::new(5, 64, 1, 0), CONTEXT));
    for talk in ["abcdef", "abcxyz", "zz", "zz top", "a"].map(tokens) {
        assert_eq!(feed(&mut pool, &talk, 3), feed(&mut runner, &talk, 3));
        assert_eq!((pool.parked(), pool.evicted()), (0, 0));
    }
    assert_eq!(pool.exec().runs, runner.exec().runs);
    pool.reset();
    assert_eq!((pool.position(), pool.parked()), (0, 0));
}

/// The device has fewer blocks than the conversations could fill.
#[test]
fn a_parked_conversation_makes_way_when_the_live_one_needs_its_blocks() {
    let mut pool = SessionPool::new(Toy::new(6, 64, 1, 0), CONTEXT, 4);
    let talks: Vec<Vec<TokenId>> = (0..3).map(|n| tokens(&format!("{n}").repeat(2 * KV_BLOCK))).collect();
    talks.iter().for_each(|talk| drop(feed(&mut pool, talk, 64)));
    assert_eq!((pool.parked(), pool.evicted()), (2, 0));
    let long = [&talks[2][..], &tokens(&"x".repeat(KV_BLOCK + 1))[..]].concat();
    let (bits, reused) = feed(&mut pool, &long, 8);
    assert_eq!((reused, pool.parked(), pool.evicted()), (talks[2].len(), 1, 1));
    assert!(bits == cold(&long));
    // What is left is the one that was used last.
    assert_eq!(feed(&mut pool, &talks[1], 64).1, talks[1].len() - 1);
    // Nothing can make way for one conversation that is too long by itself: that is an error, and nothing is lost.
    pool.resume(&tokens("q"));
    let error = pool.produce(&vec![TokenId(97); 64], Want::Nothing, &mut []).and_then(|()| {
        pool.produce(&vec![TokenId(97); 64], Want::Nothing, &mut [])?;
        pool.produce(&vec![TokenId(97); 64], Want::Nothing, &mut [])
    });
    assert!(matches!(error, Err(ProducerError::ContextFull { position: 128, .. })), "{error:?}");
}

/// A run that fails for a reason of its own gives nobody up.
#[test]
fn other_failures_evict_nobody() {
    let mut pool = pool(3);
    feed(&mut pool, &tokens("parked"), 64);
    feed(&mut pool, &tokens("live"), 64);
    let error = pool.produce(&[POISON], Want::Nothing, &mut []).expect_err("is refused");
    assert!(matches!(error, ProducerError::Exec(ExecError::Injected { .. })), "{error}");
    assert_eq!((pool.parked(), pool.evicted(), pool.position()), (1, 0, 4));
    assert!(feed(&mut pool, &tokens("live long"), 64).0 == cold(&tokens("live long")));
}

#[test]
fn parked_bytes_are_bounded_and_counted() {
    with_whole(&golden("llama").join("model.gguf"), |path| {
        let files = ModelFiles::open(path).expect("opens");
        let options = OpenOptions { context: Some(CONTEXT), ..OpenOptions::default() };
        let one = files.memory(&options, CONTEXT).expect("counts");
        let block = one.per_position * KV_BLOCK as u64;
        let with = |slots, bytes| OpenOptions { sessions: Sessions { slots, bytes }, ..options.clone() };
        let states = |options: &OpenOptions| files.memory(options, CONTEXT).expect("counts").states;
        assert_eq!(states(&with(4, None)), 4 * one.states);
        assert_eq!(states(&with(4, Some(3 * block + 1))), one.states + 3 * block);
        assert_eq!(states(&with(4, Some(u64::MAX))), 4 * one.states);
        // Room for three parked blocks: two conversations of a block each, and no third.
        let mut engine = Engine::open(path, &with(4, Some(2 * block))).expect("opens");
        assert_eq!(engine.report().budget.as_ref().map(|b| b.states), Some(one.states + 2 * block));
        let talk = |n: u32| (0..KV_BLOCK as u32).map(|i| TokenId(3 + n + i * (n + 1))).collect::<Vec<_>>();
        let evicted = [0, 1, 2, 3].map(|n| {
            feed(engine.producer(), &talk(n), 32);
            engine.producer().evicted()
        });
        assert_eq!(evicted, [0, 0, 0, 1]);
        assert_eq!(feed(engine.producer(), &talk(1), 32).1, KV_BLOCK - 1);
        // A conversation that is too large to wait at all.
        let long: Vec<_> = (0..80).map(|i| TokenId(200 - i)).collect();
        feed(engine.producer(), &long, 32);
        let before = engine.producer().evicted();
        feed(engine.producer(), &talk(5), 32);
        assert!(engine.producer().evicted() > before);
        assert_eq!(feed(engine.producer(), &long, 32).1, 0);
    });
}

#[test]
fn what_does_not_go_together_is_refused() {
    let path = golden("llama").join("model.gguf");
    let error = |sessions, capture| {
        let options = OpenOptions { sessions, capture, ..OpenOptions::default() };
        with_whole(&path, |path| Engine::open(path, &options)).expect_err("is refused").to_string()
    };
    let two = Sessions { slots: 2, bytes: None };
    assert!(error(Sessions { slots: 0, bytes: None }, Vec::new()).contains("room for one at least"));
    assert!(error(Sessions { slots: 1, bytes: Some(1) }, Vec::new()).contains("raise --session-slots"));
    assert!(error(two, vec![CaptureKind::Residual]).contains("a capture follows one conversation"));
    let options = OpenOptions { sessions: two, ..OpenOptions::default() };
    let error = with_whole(&path, |path| open_service(path, &options)).expect_err("is refused");
    assert!(matches!(error, RuntimeError::Sessions { .. }), "{error}");
}
