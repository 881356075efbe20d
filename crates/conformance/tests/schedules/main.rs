//! Random schedules: whatever happens to sequences beside and before it, a row's logits have the bits of a cold run.
//!
//! A schedule is a list of operations drawn from a seed: feeds in any chunks beside any neighbours, forks, rewinds,
//! detours that are taken back, snapshots put back into any sequence, changes to another text with the same beginning,
//! hits in the prefix tree, evictions, and memory that runs out. A failure names model and seed.
//! `TURBOSPARK_SCHEDULES=N` runs N times as many.

mod schedule;

use cpu::{CpuDevice, CpuExec};
use plan::{Budget, Device, KvType, KvTypes, Limits, Sequences, lower_for};
use schedule::{Schedule, Texts};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::{Model, Options, families, synthetic, with_whole};
use turbospark_conformance::with_damaged_tables;

const F16: KvTypes = KvTypes::both(KvType::F16);

/// Of both ends of what a schedule may meet: room for all, and so little that memory runs out.
const BLOCKS: [usize; 2] = [60, 10];

/// Schedules of each model at 1 and at 3 threads, with much and with little memory.
const EACH: usize = 20;

fn times() -> usize {
    std::env::var("TURBOSPARK_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

fn limits(blocks: usize) -> Limits {
    Limits { rows: 128, wanted: 128, blocks, sequences: 5, kv: F16, state_slots: if blocks > 20 { 40 } else { 8 } }
}

fn open(model: &Model, threads: usize, limits: Limits) -> CpuExec {
    let device = CpuDevice::new(Some(threads));
    let program = lower_for(&device.caps(), &model.spec, &model.index).expect("lowers");
    device.compile(vec![program], &model.weights, limits).expect("compiles")
}

fn budget(model: &Model) -> Budget {
    let device = CpuDevice::new(Some(1));
    let program = lower_for(&device.caps(), &model.spec, &model.index).expect("lowers");
    device.memory(&[program], &model.weights, &limits(60)).expect("is counted")
}

/// Runs schedules over one model; how many, and what is wrong with which.
fn run_on(name: &str, model: &Model, each: usize, length: usize) -> (usize, Vec<String>) {
    let texts = Texts::new(open(model, 2, limits(60)), budget(model), length, name.len() as u64);
    let (mut ran, mut failed) = (0, Vec::new());
    for (at, (threads, blocks)) in [(1, BLOCKS[0]), (3, BLOCKS[0]), (1, BLOCKS[1]), (2, BLOCKS[1])].iter().enumerate() {
        let mut sequences = Sequences::new(open(model, *threads, limits(*blocks)));
        for seed in 0..each as u64 {
            let seed = 1000 * at as u64 + seed;
            ran += 1;
            let (found, back) = Schedule::run(sequences, &texts, seed);
            sequences = back;
            if let Err(wrong) = found {
                failed.push(format!("{name}, {threads} threads, {blocks} blocks, seed {seed}: {wrong}"));
                // What is left of a failed schedule is no beginning for another.
                sequences = Sequences::new(open(model, *threads, limits(*blocks)));
            }
        }
    }
    (ran, failed)
}

#[test]
fn random_schedules_change_no_bit() {
    let files: Vec<_> = families().into_iter().filter(|f| f.file == "model.safetensors").collect();
    let each = EACH * times();
    let (next, ran, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let model = with_whole(&file.path(), Model::open);
            let (count, wrong) = run_on(file.model, &model, each, 100);
            ran.fetch_add(count, Ordering::Relaxed);
            failed.lock().expect("nobody panics").extend(wrong);
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work();
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let (ran, failed) = (ran.into_inner(), failed.into_inner().expect("nobody panics"));
    assert!(failed.is_empty(), "{} of {ran} schedules failed:\n{}", failed.len(), failed.join("\n"));
    assert!(ran >= 2000, "{ran}");
    println!("{ran} schedules over {} models", files.len());
}

#[test]
fn random_schedules_of_a_real_model_change_no_bit() {
    let model = Model::open(&testkit::smollm2());
    let (ran, failed) = run_on("smollm2", &model, 5 * times(), 60);
    assert!(failed.is_empty(), "{} of {ran} schedules failed:\n{}", failed.len(), failed.join("\n"));
    assert!(ran >= 20);
}

/// The generator can fail: two blocks exchanged in one sequence's table, now and then, are found.
#[test]
fn a_broken_block_table_is_found() {
    let model = synthetic(3, &Options::tiny()).model();
    let texts = Texts::new(open(&model, 2, limits(60)), budget(&model), 100, 1);
    let (mut sound, mut found) = (0, 0);
    for seed in 0..20 {
        let (result, _) = Schedule::run(Sequences::new(open(&model, 1, limits(60))), &texts, seed);
        sound += usize::from(result.is_ok());
        let mut runs = 0;
        // In every third run the first and the last block of each table change places.
        let broken = with_damaged_tables(open(&model, 1, limits(60)), move |tables| {
            runs += 1;
            for table in tables.iter_mut().flatten().filter(|table| runs % 3 == 0 && table.window.is_none()) {
                let last = table.blocks.len().saturating_sub(1);
                table.blocks.swap(0, last);
            }
        });
        let (result, _) = Schedule::run(Sequences::new(broken), &texts, seed);
        found += usize::from(result.is_err());
    }
    assert_eq!(sound, 20);
    assert!(found >= 10, "{found} of 20 schedules noticed");
}
