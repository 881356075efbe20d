//! Numbered cases about cancelling and long prompts, on a virtual clock.

use crate::support::{Events, OPTIONS, bytes, tokenizer};
use plan::{Script, ScriptedExec};
use std::time::Duration;
use turbospark_runtime::{
    Delivery, Event, GenerationConfig, Progress, Request, SCRIPTED_VOCAB, Scheduler, SchedulerOptions,
};

const STEP: Duration = Duration::from_millis(5);

/// 1 ms a prompt token, 5 ms a row with logits.
fn scheduler(answer: usize) -> Scheduler<ScriptedExec> {
    let mut script = Script::of_ids(SCRIPTED_VOCAB, &bytes(&"x".repeat(answer)));
    script.prefill_cost = Duration::from_millis(1);
    script.decode_cost = STEP;
    let options = SchedulerOptions { context: 32_768, prefill_share: 128, ..OPTIONS };
    Scheduler::new(ScriptedExec::new(script, 4096), tokenizer(), options)
}

fn ask(prompt: usize, new: usize) -> Request {
    let config = GenerationConfig { max_new_tokens: Some(new), ..GenerationConfig::default() };
    Request { prompt: bytes(&"p".repeat(prompt)), config }
}

fn now(scheduler: &Scheduler<ScriptedExec>) -> Duration {
    scheduler.sequences().exec().clock()
}

#[test]
fn d50_a_client_who_is_gone_frees_everything_within_a_step() {
    for (prompt, events, steps) in [(4, 3, 2), (4, 40, 39), (5000, 2, 2)] {
        let mut scheduler = scheduler(10_000);
        let mut heard = 0;
        let sink = move |_: Event| {
            heard += 1;
            if heard > events { Delivery::Gone } else { Delivery::Taken }
        };
        scheduler.submit(ask(prompt, 10_000), sink).expect("accepted");
        for _ in 0..steps {
            scheduler.step();
        }
        assert_eq!(scheduler.running(), 1);
        let started = now(&scheduler);
        scheduler.step();
        assert!(now(&scheduler) - started < Duration::from_millis(200));
        assert!(scheduler.is_idle(), "prompt of {prompt}, gone after {events} events");
        assert_eq!(scheduler.sequences().free_blocks(), 4096);
    }
    // Asked for, it takes no step at all: while reading the prompt, while answering, and while waiting.
    let mut scheduler = scheduler(100);
    let ids = [5000, 1, 1, 1, 1, 1, 1, 1, 1].map(|prompt| Events::submit(&mut scheduler, ask(prompt, 100)).0);
    (0..3).for_each(|_| assert!(scheduler.step()));
    assert_eq!((scheduler.running(), scheduler.waiting()), (8, 1));
    ids.into_iter().rev().for_each(|id| scheduler.cancel(id));
    assert!(scheduler.is_idle());
    assert_eq!(scheduler.sequences().free_blocks(), 4096);
}

#[test]
fn d51_a_long_prompt_delays_nobody_for_long() {
    let solo = {
        let mut scheduler = scheduler(400);
        Events::submit(&mut scheduler, ask(20_000, 1));
        crate::support::run_to_end(&mut scheduler);
        now(&scheduler)
    };
    let mut scheduler = scheduler(400);
    let (_, stream) = Events::submit(&mut scheduler, ask(10, 390));
    (0..20).for_each(|_| assert!(scheduler.step()));
    let begun = now(&scheduler);
    let (_, long) = Events::submit(&mut scheduler, ask(20_000, 1));
    let (mut last, mut widest, mut tokens) = (begun, Duration::ZERO, stream.tokens());
    let (mut short, mut asked, mut first) = (None, Duration::ZERO, None);
    while !long.ended() {
        scheduler.step();
        if !stream.ended() {
            assert_eq!(stream.tokens(), tokens + 1, "every step answers");
            tokens += 1;
            widest = widest.max(now(&scheduler) - last);
            last = now(&scheduler);
        }
        if short.is_none() && now(&scheduler) > begun + Duration::from_secs(5) {
            short = Some(Events::submit(&mut scheduler, ask(10, 5)).1);
            asked = now(&scheduler);
        }
        if short.as_ref().is_some_and(|events| events.tokens() > 0) {
            first = first.or(Some(now(&scheduler) - asked));
        }
    }
    assert!(widest < Duration::from_millis(300), "{widest:?}");
    let first = first.expect("answered while the long prompt is read");
    assert!(first < Duration::from_millis(600), "{first:?}");
    let took = now(&scheduler) - begun;
    assert!(took < solo.mul_f64(1.25), "{took:?} for {solo:?} alone");
    println!("widest gap {widest:?}, first token {first:?}, the long prompt {took:?} for {solo:?} alone");
    let told = long.lock();
    let read = told.iter().filter(|event| matches!(event, Event::Progress(Progress::Prefill { .. }))).count();
    assert!(read >= 20_000 / 128, "{read}");
}
