//! What a scheduler keeps of prompts and answers: what is reused, what makes way for whom, and what is told.

use crate::support::{self, Events, OPTIONS, alone_on, bytes, config, request, run_to_end, tokenizer};
use crate::toy::Toy;
use foundation::TokenId;
use std::time::Duration;
use turbospark_runtime::{
    Delivery, Event, GenerationConfig, Pace, PowerProfile, Progress, RealForwardRunner, Request, Scheduler, Service,
};

/// Blocks, copies of recurrent state, and windows of what a test runs on.
#[derive(Clone)]
struct Kind(&'static str, usize, Vec<Option<usize>>);

fn kinds() -> [Kind; 4] {
    [
        Kind("full", 0, vec![None]),
        Kind("windows", 0, vec![None, Some(20)]),
        Kind("recurrent", 40, vec![None]),
        Kind("all", 40, vec![None, Some(20)]),
    ]
}

impl Kind {
    fn toy(&self, blocks: usize) -> Toy {
        Toy::with_windows(blocks, (100, 8), self.1, self.2.clone())
    }

    fn scheduler(&self, blocks: usize, limit: u64) -> Scheduler<Toy> {
        let toy = self.toy(blocks);
        let prefixes = support::prefixes(&toy, limit);
        Scheduler::new(toy, tokenizer(), OPTIONS).keeping(prefixes).0
    }

    /// The answer of a model that has seen nothing.
    fn cold(&self, request: &Request) -> Vec<TokenId> {
        alone_on(&mut RealForwardRunner::new(self.toy(64), 2000), request).ids
    }
}

fn text(seed: usize, count: usize) -> String {
    (0..count).map(|i| (b'a' + ((i * i * 7 + i * seed + seed) % 26) as u8) as char).collect()
}

fn rows(scheduler: &Scheduler<Toy>) -> usize {
    scheduler.sequences().exec().runs.iter().sum()
}

#[test]
fn d23_a_repeat_and_a_growing_chat_evaluate_only_what_is_new() {
    for kind in kinds() {
        let name = kind.0;
        let mut scheduler = kind.scheduler(64, u64::MAX);
        let mut ask = |prompt: &str| {
            let (asked, before) = (request(prompt, 12, 5), rows(&scheduler));
            let (_, events) = Events::submit(&mut scheduler, asked.clone());
            run_to_end(&mut scheduler);
            let result = events.result();
            assert_eq!(result.ids, kind.cold(&asked), "{name}");
            // What is said to be reused was not computed.
            let evaluated = rows(&scheduler) - before - (result.new_tokens - 1);
            assert_eq!(evaluated + result.reused_prefix_tokens, prompt.len(), "{name}");
            let told =
                events.lock().iter().filter(|e| matches!(e, Event::Progress(Progress::Recompute { .. }))).count();
            (result.reused_prefix_tokens, result.text, told)
        };
        let prompt = text(1, 200);
        assert_eq!(ask(&prompt).0, 0);
        let (again, _, told) = ask(&prompt);
        assert!((184..200).contains(&again) && told == 0, "{name}: {again}");
        // A prompt that departs where no state is kept near: said once, with the numbers.
        let departs = prompt[..60].to_owned() + &text(3, 30);
        let (reused, _, told) = ask(&departs);
        // A window of few positions may still be there: a run may have more rows than the prompt.
        let free = kind.1 == 0;
        assert_eq!((reused, told), if free { (60, 0) } else { (0, 1) }, "{name}");
        let mut chat = text(2, 90);
        for turn in 0..6 {
            let (reused, answer, _) = ask(&chat);
            // The last token of an answer was chosen and not fed.
            assert!(turn == 0 || reused + 23 + 1 >= chat.len(), "{name}, turn {turn}: {reused} of {}", chat.len());
            chat += &answer;
            chat += &text(10 + turn, 23);
        }
    }
}

#[test]
fn what_is_kept_makes_way_before_anyone_waits_or_is_put_aside() {
    for kind in kinds() {
        let mut scheduler = kind.scheduler(12, u64::MAX);
        for seed in 0..4 {
            Events::submit(&mut scheduler, request(&text(seed + 1, 60), 3, 1));
            run_to_end(&mut scheduler);
        }
        // Kept states leave too little for these two, which need all but two blocks.
        assert!(scheduler.sequences().free_blocks() < 5, "{}: {scheduler:?}", kind.0);
        let asked = [request(&text(8, 100), 60, 1), request(&text(9, 100), 60, 2)];
        let told = asked.clone().map(|request| Events::submit(&mut scheduler, request).1);
        while !scheduler.is_idle() {
            scheduler.step();
            assert_eq!(scheduler.waiting(), 0, "{}", kind.0);
        }
        assert!(scheduler.prefix_status().reuse.evictions > 0);
        for (request, told) in asked.iter().zip(told) {
            assert_eq!(told.result().ids, kind.cold(request), "{}", kind.0);
        }
    }
}

#[test]
fn who_is_put_aside_goes_on_from_what_is_left() {
    for kind in kinds() {
        let (mut fed, mut aside) = ([0, 0], [0, 0]);
        for (at, limit) in [0, u64::MAX].into_iter().enumerate() {
            let mut scheduler = kind.scheduler(8, limit);
            let asked = [request(&text(1, 70), 100, 1), request(&text(2, 5), 120, 2)];
            let told = asked.clone().map(|request| Events::submit(&mut scheduler, request).1);
            let mut before = 0;
            while !scheduler.is_idle() {
                scheduler.step();
                aside[at] += usize::from(scheduler.waiting() > before);
                before = scheduler.waiting();
            }
            for (request, told) in asked.iter().zip(told) {
                assert_eq!(told.result().ids, kind.cold(request), "{}", kind.0);
                assert_eq!(told.result().reused_prefix_tokens, 0, "nobody asked that before");
            }
            fed[at] = rows(&scheduler);
        }
        assert!(fed[1] <= fed[0], "{}: {fed:?}", kind.0);
    }
}

/// Layers with a window are admitted by what they need, too: as many at once as there is room for, and nobody is put aside.
#[test]
fn admission_is_exact_for_windows() {
    for windows in [vec![Some(40)], vec![None, Some(40)], vec![Some(9), Some(40)]] {
        let toy = Toy::with_windows(200, (33, 8), 0, windows);
        let mut scheduler = Scheduler::new(toy, tokenizer(), OPTIONS);
        let asked: Vec<_> = (0..12).map(|n| request(&text(n + 1, 150), 80, n as u64)).collect();
        let told: Vec<_> = asked.iter().map(|request| Events::submit(&mut scheduler, request.clone()).1).collect();
        let (needs, all) = (scheduler.sequences().needs(229), scheduler.sequences().capacity());
        let fit = all.blocks.iter().zip(&needs.blocks).map(|(all, needs)| all / needs).min().unwrap_or(0);
        assert!((2..8).contains(&fit), "{needs:?} of {all:?}");
        let (mut most, mut waiting) = (0, 12);
        while !scheduler.is_idle() {
            scheduler.step();
            assert!(scheduler.waiting() <= waiting, "somebody was put aside");
            (most, waiting) = (most.max(scheduler.running()), scheduler.waiting());
        }
        assert!(most >= fit, "{most} of {fit}");
        let free: Vec<_> = scheduler.sequences().capacity().blocks;
        assert_eq!(free, all.blocks);
        told.iter().for_each(|events| assert_eq!(events.result().new_tokens, 80));
    }
    // What no window's blocks could ever hold is refused at once, by the window's name.
    let tight = Toy::with_windows(2, (33, 8), 0, vec![Some(40)]);
    let mut scheduler = Scheduler::new(tight, tokenizer(), OPTIONS);
    let error =
        scheduler.submit(request(&text(1, 90), 40, 1), |_| Delivery::Taken).expect_err("does not fit").to_string();
    assert!(error.contains("window of 40"), "{error}");
}

/// A day in miniature, with much to remember and a bound to what is.
#[test]
fn twenty_thousand_short_requests_with_a_tree_leave_the_memory_as_it_was() {
    let limit = 60 * 128;
    for kind in kinds() {
        let mut scheduler = kind.scheduler(64, limit);
        let free = (scheduler.sequences().free_blocks(), scheduler.sequences().free_slots());
        let ended = Events::default();
        let each = if kind.0 == "all" { 8_000 } else { 4_000 };
        for n in 0..each {
            let prompt = text(n % 7, 1 + n * n % 37);
            let events = ended.clone();
            let sink = move |event: Event| {
                if event.is_last() {
                    events.lock().push(event);
                }
                if n % 50 == 0 { Delivery::Gone } else { Delivery::Taken }
            };
            let id = scheduler.submit(request(&prompt, 1 + n % 5, (n % 3) as u64), sink).expect("accepted");
            scheduler.step();
            if n % 11 == 0 {
                scheduler.cancel(id);
            }
            assert!(scheduler.prefix_status().bytes <= limit);
        }
        run_to_end(&mut scheduler);
        assert_eq!(ended.lock().len(), each);
        let status = scheduler.prefix_status();
        assert!(status.reuse.hits > each as u64 / 50 && status.reuse.evictions > 0, "{}: {status:?}", kind.0);
        scheduler.forget_prefixes();
        assert_eq!((scheduler.sequences().free_blocks(), scheduler.sequences().free_slots()), free, "{}", kind.0);
        assert_eq!((scheduler.prefix_status().states, scheduler.prefix_status().bytes), (0, 0));
    }
}

#[test]
fn a_service_tells_what_it_keeps() {
    let service = Service::start(kinds()[2].scheduler(64, u64::MAX), 1000);
    for _ in 0..2 {
        let stream = service.submit(request(&text(1, 100), 3, 1));
        while stream.recv().is_some() {}
    }
    let started = std::time::Instant::now();
    while service.status().prefixes.reuse.hits < 1 {
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", service.status());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(service.status().prefixes.states > 0);
    assert!(service.shutdown().expect("nothing to save").is_none());
}

#[test]
fn a_pace_is_refused_by_name() {
    let mut scheduler = kinds()[0].scheduler(8, 0);
    for (pace, name) in [
        (Pace { rate: Some(12.5), ..Pace::default() }, "12.5"),
        (Pace { profile: PowerProfile::Efficiency, ..Pace::default() }, "Efficiency"),
    ] {
        let paced = Request { prompt: bytes("a"), config: GenerationConfig { pace, ..config(3, 1) } };
        let error = scheduler.submit(paced, |_| Delivery::Taken).expect_err("is refused").to_string();
        assert!(error.contains(name) && error.contains("many requests"), "{error}");
    }
}
