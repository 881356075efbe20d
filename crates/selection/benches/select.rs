//! Time to choose one token from 262 144 logits, per chain: median and spread of 31 runs.

use std::hint::black_box;
use std::time::Instant;

use foundation::TokenId;
use turbospark_selection::{History, Scratch, Shaping, ShapingOptions, Step, logprobs, select, uniform};

const VOCAB: usize = 262_144;
const RUNS: u64 = 31;

fn main() {
    // Sums of three uniform numbers, spread over about 30 units.
    let row: Vec<f32> = (0..VOCAB as u64).map(|id| (0..3).map(|part| uniform(part, id) as f32 * 10.0).sum()).collect();
    let mut history = History::new();
    (0..4096).for_each(|id| history.push(TokenId(id * 61)));
    let plain = ShapingOptions::default();
    let top_k = ShapingOptions { top_k: 64, top_p: 0.95, temperature: 0.7, ..plain };
    let chains = [
        ("greedy", ShapingOptions { temperature: 0.0, ..plain }),
        ("top-k 64, top-p 0.95", top_k),
        ("top-k 64, penalties over 4096 tokens", ShapingOptions { repetition_penalty: 1.1, ..top_k }),
        ("temperature only", plain),
        ("top-p 0.95", ShapingOptions { top_p: 0.95, ..plain }),
        ("min-p 0.05", ShapingOptions { min_p: 0.05, ..plain }),
    ];
    let mut scratch = Scratch::new();
    for (name, options) in chains {
        let shaping = Shaping::new(options).expect("the options are in range");
        report(name, |position| {
            let token = select(black_box(&row), &shaping, Step::new(&history, position), &mut scratch);
            black_box(token).expect("the row is finite");
        });
    }
    report("logprobs of 20", |_| {
        black_box(logprobs(black_box(&row), TokenId(0), 20, 0)).expect("the row is finite");
    });
}

fn report(name: &str, mut work: impl FnMut(u64)) {
    work(0);
    let mut times: Vec<f64> = (0..RUNS)
        .map(|run| {
            let start = Instant::now();
            work(run);
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (median, low, high) = (times[15], times[3], times[27]);
    println!("{name:40} {median:7.3} ms  ({low:.3} to {high:.3})");
}
