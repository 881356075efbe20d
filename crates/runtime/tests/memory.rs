//! The memory announced before a model is loaded, against what the allocator and the system count afterwards.
#![allow(unsafe_code)]

use foundation::TokenId;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use testkit::{families, smollm2, with_whole};
use turbospark_runtime::{LogitProducer, ModelFiles, OpenOptions, OpenReport, Want, open_logits};

/// The system's allocator, counting what is held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

fn add(bytes: usize) {
    let held = HELD.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(held, Relaxed);
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: f64 = 1024.0 * 1024.0;

/// Fills the context, the last row of each chunk wanted.
fn fill(producer: &mut dyn LogitProducer, chunk: usize) {
    let mut logits = vec![0.0; producer.vocab()];
    let tokens: Vec<_> = (0..producer.context()).map(|i| TokenId(3 + i as u32 * 7 % 200)).collect();
    tokens.chunks(chunk).for_each(|tokens| producer.produce(tokens, Want::Last, &mut logits).expect("runs"));
}

/// Bytes of the announced weights that stay in the mapped file.
fn mapped(files: &ModelFiles, options: &OpenOptions) -> f64 {
    let program = files.program(options).expect("lowers");
    let whole = program.weights.iter().filter(|w| w.role != plan::WeightRole::Vector);
    let in_place = whole.filter(|w| matches!(w.source, model::Source::Tensor(_)) && w.to.is_none());
    in_place.map(|w| files.weights.get(w.source.tensors()[0]).expect("is there").bytes().len() as f64).sum()
}

fn announced(report: &OpenReport) -> f64 {
    report.budget.as_ref().expect("a real model").total() as f64
}

/// One test, as the counters are those of the whole process.
#[test]
fn what_is_announced_is_what_is_taken() {
    for golden in families().into_iter().filter(|g| g.file == "model.safetensors") {
        let options = OpenOptions { context: Some(64), prefill_chunk: 16, threads: Some(2), ..OpenOptions::default() };
        let (error, total) = with_whole(&golden.path(), |path| counted(path, &options));
        assert!(error.abs() <= (0.05 * total).max(4.0 * MIB), "{}: {:.2} MiB more", golden.model, error / MIB);
    }
    let path = smollm2();
    let options = OpenOptions { context: Some(1024), threads: Some(2), ..OpenOptions::default() };
    #[cfg(target_os = "linux")]
    {
        let before = resident();
        let (mut producer, report) = open_logits(&path, &options).expect("opens");
        fill(&mut *producer, options.prefill_chunk);
        let (taken, total) = (resident() - before, announced(&report));
        println!("SmolLM2: resident {:.1} MiB, announced {:.1} MiB", taken / MIB, total / MIB);
        assert!((taken - total).abs() <= 0.1 * total, "resident {taken}, announced {total}");
    }
    let (error, total) = counted(&path, &options);
    println!("SmolLM2: the allocator counts {:.2} MiB more than the {:.1} announced", error / MIB, total / MIB);
    assert!(error.abs() <= (0.05 * total).max(4.0 * MIB), "{:.2} MiB more", error / MIB);
}

/// How much more the allocator counts at the peak of opening and filling a context than was announced, weights in the
/// mapped file included; and what was announced.
fn counted(path: &std::path::Path, options: &OpenOptions) -> (f64, f64) {
    let in_file = mapped(&ModelFiles::open(path).expect("opens"), options);
    let before = HELD.load(Relaxed);
    PEAK.store(before, Relaxed);
    let (mut producer, report) = open_logits(path, options).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    fill(&mut *producer, options.prefill_chunk);
    let taken = (PEAK.load(Relaxed) - before) as f64 + in_file;
    (taken - announced(&report), announced(&report))
}

/// Resident bytes of this process.
#[cfg(target_os = "linux")]
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a resident size");
    1024.0 * line.trim().trim_end_matches("kB").trim().parse::<f64>().expect("a number")
}
