//! The scheduler: exactness under neighbours and pre-emption, order, faults, cancelling, slow readers, memory.

mod cases;
mod prefixes;
mod service;
mod support;
mod toy;

use foundation::TokenId;
use plan::{Fault, Script, ScriptedExec};
use proptest::prelude::*;
use support::{Events, OPTIONS, alone, alone_on, bytes, config, request, run_to_end, tokenizer};
use toy::{POISON, Toy};
use turbospark_runtime::{
    Delivery, Event, GenerationConfig, Progress, RealForwardRunner, Request, RuntimeError, SCRIPTED_VOCAB, Scheduler,
    SchedulerOptions, StopReason,
};

/// A request that arrives before a step.
#[derive(Clone, Debug)]
struct Arrival {
    before: usize,
    prompt: usize,
    new: usize,
    seed: u64,
    /// Cancelled before this step.
    cancel: Option<usize>,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let cancel = prop_oneof![4 => Just(None), 1 => (0..60usize).prop_map(Some)];
    let one = (0..40usize, 1..150usize, 1..60usize, any::<u64>(), cancel)
        .prop_map(|(before, prompt, new, seed, cancel)| Arrival { before, prompt, new, seed, cancel });
    prop::collection::vec(one, 1..10)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(4), ..ProptestConfig::default() })]

    /// Neighbours, order, shares, few blocks, cancelled others, constraints: every answer is the one of the request alone.
    #[test]
    fn every_answer_is_that_of_the_request_alone(
        arrivals in arrivals(),
        blocks in 7..40usize,
        (running, share, extra) in (1..8usize, 1..80usize, 0..40usize),
        recurrent in any::<bool>(),
        windows in prop_oneof![3 => Just(vec![None]), 1 => Just(vec![None, Some(20)]), 1 => Just(vec![Some(9), Some(50)])],
        kept in prop_oneof![1 => Just(None), 2 => Just(Some(u64::MAX)), 1 => (0..2000u64).prop_map(Some)],
    ) {
        let slots = if recurrent { 3 + running } else { 0 };
        let exec = Toy::with_windows(blocks, (running + extra, running), slots, windows.clone());
        let prefixes = kept.map(|limit| support::prefixes(&exec, limit)).unwrap_or_default();
        let options = SchedulerOptions { running, prefill_share: share, ..OPTIONS };
        let (mut scheduler, _) = Scheduler::new(exec, tokenizer(), options).keeping(prefixes);
        let (free, slots) = (scheduler.sequences().capacity(), scheduler.sequences().free_slots());
        let requests: Vec<_> = arrivals
            .iter()
            .map(|a| {
                // Few texts, so that many begin alike.
                let text = (a.seed % 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let prompt = (0..a.prompt).map(|i| TokenId(97 + (text.wrapping_mul(i as u64 + 3) >> 33) as u32 % 26));
                Request { prompt: prompt.collect(), config: support::constrained(config(a.new, a.seed)) }
            })
            .collect();
        let mut told: Vec<Option<(_, Events)>> = requests.iter().map(|_| None).collect();
        for step in 0..100_000 {
            for (at, arrival) in arrivals.iter().enumerate() {
                if arrival.before == step {
                    told[at] = Some(Events::submit(&mut scheduler, requests[at].clone()));
                }
                if let (Some((id, _)), true) = (&told[at], arrival.cancel == Some(step)) {
                    scheduler.cancel(*id);
                }
            }
            scheduler.step();
            prop_assert!(scheduler.prefix_status().bytes <= kept.unwrap_or(0));
            if step > 60 && scheduler.is_idle() {
                break;
            }
        }
        prop_assert!(scheduler.is_idle());
        prop_assert!(kept.is_some() || scheduler.prefix_status().states == 0);
        scheduler.forget_prefixes();
        let sequences = scheduler.sequences();
        let left: Vec<_> = windows.iter().map(|window| sequences.free_blocks_of(*window)).collect();
        prop_assert_eq!((left, sequences.free_slots()), (free.blocks, slots));
        for ((request, told), arrival) in requests.iter().zip(told).zip(&arrivals) {
            let (_, events) = told.expect("submitted");
            let found = events.result();
            let toy = Toy::with_windows(16, (512, 1), if recurrent { 6 } else { 0 }, windows.clone());
            let mut producer = RealForwardRunner::new(toy, 512);
            let expected = alone_on(&mut producer, request);
            if found.reason == StopReason::Cancelled {
                prop_assert!(arrival.cancel.is_some());
                prop_assert!(expected.ids.starts_with(&found.ids));
            } else {
                prop_assert_eq!(found.ids, expected.ids);
                prop_assert_eq!(found.text, expected.text);
                prop_assert_eq!(found.kv_backed_token_ids, expected.kv_backed_token_ids);
            }
        }
    }
}

#[test]
fn the_newest_gives_way_and_comes_back_with_the_same_answer() {
    // Four blocks: both prompts fit, both answers do not, and that is known before the second begins.
    let mut scheduler = Scheduler::new(Toy::new(4, 100, 8, 0), tokenizer(), OPTIONS);
    for prompt in ["first", "second"] {
        Events::submit(&mut scheduler, request(prompt, 100, 1));
    }
    while !scheduler.is_idle() {
        scheduler.step();
        assert!(scheduler.running() <= 1);
    }
    // Six: the second fits beside what the first holds by then.
    let mut scheduler = Scheduler::new(Toy::new(6, 100, 8, 0), tokenizer(), OPTIONS);
    let requests = [request("first", 100, 1), request("second", 100, 2)];
    let told = requests.clone().map(|request| Events::submit(&mut scheduler, request).1);
    let (mut together, mut aside, mut before) = (0, 0, 0);
    while !scheduler.is_idle() {
        scheduler.step();
        together = together.max(scheduler.running());
        aside += usize::from(scheduler.waiting() > before);
        before = scheduler.waiting();
    }
    assert_eq!((together, aside), (2, 1));
    let ended: Vec<_> = told.iter().map(|events| events.result()).collect();
    for (request, found) in requests.iter().zip(ended) {
        assert_eq!(found.ids, alone(request).ids);
        assert_eq!(found.new_tokens, 100);
    }
    // What was fed twice is more than what was needed.
    let rows: usize = scheduler.sequences().exec().runs.iter().sum();
    assert!(rows > 2 * 99 + 11, "{rows}");
    assert_eq!(scheduler.sequences().free_blocks(), 6);
}

#[test]
fn requests_begin_in_the_order_they_came() {
    // The second does not fit beside the first; the third would, but does not overtake.
    let mut scheduler = Scheduler::new(Toy::new(4, 100, 8, 0), tokenizer(), OPTIONS);
    let told = [request("a", 40, 1), request("b", 110, 2), request("c", 5, 3)]
        .map(|request| Events::submit(&mut scheduler, request).1);
    let mut order = Vec::new();
    while !scheduler.is_idle() {
        scheduler.step();
        order.extend((0..3).filter(|at| told[*at].tokens() > 0 && !order.contains(at)).collect::<Vec<_>>());
    }
    assert_eq!(order, [0, 1, 2]);
}

#[test]
fn a_step_has_a_bounded_share_of_prompts() {
    let mut scheduler = Scheduler::new(Toy::new(100, 500, 8, 0), tokenizer(), OPTIONS);
    let long = "x".repeat(1000);
    let told = ["short", &long, &long, "brief"].map(|p| Events::submit(&mut scheduler, request(p, 30, 1)).1);
    run_to_end(&mut scheduler);
    let runs = &scheduler.sequences().exec().runs;
    assert!(runs.iter().all(|rows| *rows <= OPTIONS.prefill_share + 2), "{runs:?}");
    told.iter().for_each(|events| assert_eq!(events.result().new_tokens, 30));
}

#[test]
fn prefill_is_told_once_whatever_happens() {
    let mut scheduler = Scheduler::new(Toy::new(6, 100, 8, 0), tokenizer(), OPTIONS);
    let told = ["first", "second"].map(|p| Events::submit(&mut scheduler, request(p, 100, 1)).1);
    run_to_end(&mut scheduler);
    for (events, total) in told.iter().zip([5, 6]) {
        let prefills: Vec<_> = events
            .lock()
            .iter()
            .filter_map(|e| if let Event::Progress(Progress::Prefill { done, .. }) = e { Some(*done) } else { None })
            .collect();
        assert_eq!(prefills, [total]);
    }
}

#[test]
fn a_fault_of_one_request_is_its_own() {
    let mut scheduler = Scheduler::new(Toy::new(40, 100, 8, 0), tokenizer(), OPTIONS);
    let good = [request("good", 20, 1), request("fine", 20, 2)];
    let (_, first) = Events::submit(&mut scheduler, good[0].clone());
    let bad = Request { prompt: vec![TokenId(97), POISON], config: config(20, 3) };
    let (_, failed) = Events::submit(&mut scheduler, bad);
    let (_, second) = Events::submit(&mut scheduler, good[1].clone());
    run_to_end(&mut scheduler);
    assert!(failed.failure().contains("poison"), "{}", failed.failure());
    assert_eq!(first.result().ids, alone(&good[0]).ids);
    assert_eq!(second.result().ids, alone(&good[1]).ids);
    assert_eq!(scheduler.sequences().free_blocks(), 40);
}

fn scripted(answer: &str, faults: &[usize]) -> ScriptedExec {
    let mut script = Script::of_ids(SCRIPTED_VOCAB, &bytes(answer));
    script.faults = faults.iter().map(|run| Fault { run: *run, what: "lost".to_owned() }).collect();
    ScriptedExec::new(script, 64)
}

#[test]
fn a_fault_of_the_device_costs_at_most_the_step() {
    let greedy = |new| GenerationConfig { max_new_tokens: Some(new), ..GenerationConfig::default() };
    let ask = |prompt: &str| Request { prompt: bytes(prompt), config: greedy(4) };
    // The run of all fails, and so does each alone: both are lost, and the next works.
    let mut scheduler = Scheduler::new(scripted("answer", &[2, 3, 4]), tokenizer(), OPTIONS);
    let told = ["a", "b"].map(|p| Events::submit(&mut scheduler, ask(p)).1);
    run_to_end(&mut scheduler);
    told.iter().for_each(|events| assert!(events.failure().contains("lost")));
    let (_, next) = Events::submit(&mut scheduler, ask("c"));
    run_to_end(&mut scheduler);
    assert_eq!(next.result().text, "answ");
    assert_eq!(scheduler.sequences().free_blocks(), 64);
    // A fault that does not come again costs nobody anything.
    let mut scheduler = Scheduler::new(scripted("answer", &[2]), tokenizer(), OPTIONS);
    let told = ["a", "b"].map(|p| Events::submit(&mut scheduler, ask(p)).1);
    run_to_end(&mut scheduler);
    told.iter().for_each(|events| assert_eq!(events.result().text, "answ"));
    // A script that ends is the request's own fault.
    let mut scheduler = Scheduler::new(scripted("ans", &[]), tokenizer(), OPTIONS);
    let (_, short) = Events::submit(&mut scheduler, Request { prompt: bytes("a"), config: greedy(3) });
    let (_, long) = Events::submit(&mut scheduler, Request { prompt: bytes("a"), config: greedy(9) });
    run_to_end(&mut scheduler);
    assert_eq!(short.result().text, "ans");
    assert!(long.failure().contains("exhausted"));
}

#[test]
fn what_cannot_work_is_refused_at_once() {
    let options = SchedulerOptions { context: 200, waiting: 1, running: 1, ..OPTIONS };
    let mut scheduler = Scheduler::new(Toy::new(4, 100, 8, 0), tokenizer(), options);
    let mut refuse = |request| match scheduler.submit(request, |_| panic!("nothing is told")) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("accepted"),
    };
    assert!(refuse(request("", 4, 1)).contains("empty"));
    assert!(refuse(request(&"x".repeat(200), 4, 1)).contains("200"));
    assert!(refuse(request("x", 200, 1)).contains("201"));
    assert!(refuse(request("x", 0, 1)).contains("budget"));
    assert!(refuse(request("x", 150, 1)).contains("5 more blocks"));
    let outside = Request { prompt: vec![TokenId(9999)], config: config(1, 1) };
    assert!(refuse(outside).contains("9999"));
    let told: Vec<_> = ["a", "b"].map(|p| Events::submit(&mut scheduler, request(p, 3, 1)).1).to_vec();
    let full = scheduler.submit(request("c", 3, 1), |_| Delivery::Taken);
    assert!(matches!(full, Err(RuntimeError::QueueFull { waiting: 2 })), "{full:?}");
    run_to_end(&mut scheduler);
    told.iter().for_each(|events| assert_eq!(events.result().new_tokens, 3));
}

#[test]
fn stops_belong_to_their_request() {
    let text = "the quick brown fox";
    let mut scheduler = Scheduler::new(scripted(text, &[]), tokenizer(), OPTIONS);
    let ask = |change: fn(&mut GenerationConfig)| {
        let mut config = GenerationConfig { max_new_tokens: Some(19), ..GenerationConfig::default() };
        change(&mut config);
        Request { prompt: bytes("ab"), config }
    };
    let told = [
        ask(|_| {}),
        ask(|c| c.stop_strings = vec!["own f".to_owned()]),
        ask(|c| c.extra_stop_tokens = bytes("q")),
        ask(|c| c.max_new_tokens = Some(7)),
    ]
    .map(|request| Events::submit(&mut scheduler, request).1.clone());
    run_to_end(&mut scheduler);
    let found: Vec<_> = told.iter().map(|events| (events.result().text, events.result().reason)).collect();
    let expected = [
        (text, StopReason::MaxTokens),
        ("the quick br", StopReason::StopString),
        ("the ", StopReason::StopToken),
        ("the qui", StopReason::MaxTokens),
    ];
    assert_eq!(found, expected.map(|(text, reason)| (text.to_owned(), reason)));
}

#[test]
fn a_reader_who_is_gone_or_slow_loses_only_his_own() {
    let mut scheduler = Scheduler::new(Toy::new(40, 100, 8, 0), tokenizer(), OPTIONS);
    let (_, other) = Events::submit(&mut scheduler, request("other", 50, 1));
    for (delivery, reason) in [(Delivery::Gone, StopReason::Cancelled), (Delivery::Full, StopReason::SlowConsumer)] {
        let told = Events::default();
        let (events, mut left) = (told.clone(), 5);
        let sink = move |event: Event| {
            left -= 1;
            events.lock().push(event);
            if left <= 0 { delivery } else { Delivery::Taken }
        };
        scheduler.submit(request("own", 50, 1), sink).expect("accepted");
        for _ in 0..8 {
            scheduler.step();
        }
        let found = told.lock();
        let Some(Event::Finished(result)) = found.last() else { panic!("{found:?}") };
        assert_eq!((result.reason, result.new_tokens), (reason, 4));
        assert_eq!(scheduler.running(), 1);
    }
    run_to_end(&mut scheduler);
    assert_eq!(other.result().ids, alone(&request("other", 50, 1)).ids);
    assert_eq!(scheduler.sequences().free_blocks(), 40);
}

/// A day in miniature: 20,000 requests, some of which nobody waits for and some cancelled.
fn a_day<E: plan::Exec>(mut scheduler: Scheduler<E>) -> plan::Reuse {
    let free = |scheduler: &Scheduler<E>| {
        let sequences = scheduler.sequences();
        let blocks: Vec<_> = sequences.exec().windows().iter().map(|w| sequences.free_blocks_of(*w)).collect();
        (blocks, sequences.free_slots())
    };
    let (before, mut ended, mut resident) = (free(&scheduler), 0, None);
    let counted = Events::default();
    for n in 0..20_000usize {
        // Later requests begin as earlier ones did.
        let prompt = (0..1 + n % 37).map(|at| TokenId(97 + (n % 5 + at * (n % 3)) as u32 % 26)).collect();
        let config = GenerationConfig { max_new_tokens: Some(1 + n % 5), ..GenerationConfig::default() };
        let events = counted.clone();
        let sink = move |event: Event| {
            if event.is_last() {
                events.lock().push(event);
            }
            if n % 50 == 0 { Delivery::Gone } else { Delivery::Taken }
        };
        let id = scheduler.submit(Request { prompt, config }, sink).expect("accepted");
        scheduler.step();
        if n % 11 == 0 {
            scheduler.cancel(id);
        }
        ended += counted.lock().drain(..).count();
        if n == 2_000 {
            resident = resident_bytes();
        }
    }
    run_to_end(&mut scheduler);
    ended += counted.lock().len();
    assert_eq!(ended, 20_000);
    let reuse = scheduler.prefix_status().reuse;
    scheduler.forget_prefixes();
    assert_eq!(free(&scheduler), before);
    // 4 KiB a request would be 72 MiB; other tests of this process come and go beside it.
    if let (Some(before), Some(after)) = (resident, resident_bytes()) {
        println!("{before} bytes in memory, {after} at the end");
        assert!(after < before + (64 << 20), "{before} bytes in memory, {after} at the end");
    }
    reuse
}

/// What the process has in memory, where the system says.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().split(' ').next()?.parse::<u64>().ok()? << 10)
}

#[test]
fn twenty_thousand_requests_leave_the_memory_as_it_was() {
    let reuse = a_day(Scheduler::new(scripted(&"x".repeat(40), &[]), tokenizer(), OPTIONS));
    assert_eq!(reuse.hits, 0, "nothing is kept here");
}

#[test]
fn twenty_thousand_requests_over_a_prefix_tree_leave_the_memory_as_it_was() {
    for limit in [u64::MAX, 3000] {
        let exec = Toy::with_windows(60, (128, 16), 24, vec![None, Some(20)]);
        let prefixes = support::prefixes(&exec, limit);
        let scheduler = Scheduler::new(exec, tokenizer(), OPTIONS).keeping(prefixes).0;
        let reuse = a_day(scheduler);
        assert!(reuse.hits > 1000 && (reuse.evictions > 1000 || limit > 3000), "{reuse:?}");
    }
}
