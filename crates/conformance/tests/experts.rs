//! Experts read while a model runs: slots that are too few, reads that are slow, reads that fail (cases D29 and D30).

use cpu::{CpuDevice, CpuExec};
use plan::{Device, Exec, ExecError, KvType, KvTypes, Limits, Program, Residency, Want, lower_for};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{Model, Random, families, golden};
use turbospark_conformance::Driver;
use weights::io::{Disk, OpenFiles, ReadAt};
use weights::safetensors::{self, SafetensorsFile};
use weights::{DType, Tensor, WeightsError};

/// What a test does to reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The system refuses it.
    Refused,
    /// The file ends too early.
    Short,
    /// Nothing comes, and nothing is said.
    Empty,
}

/// A disk whose reads take a random time, and of which those with the numbers in a range fail.
#[derive(Debug, Default)]
struct BadDisk {
    reads: AtomicUsize,
    /// Microseconds at most.
    slow: AtomicU64,
    fault: Mutex<Option<(Fault, Range<usize>)>>,
}

#[derive(Debug)]
struct BadFile {
    disk: Arc<BadDisk>,
    file: Arc<dyn ReadAt>,
}

/// The disk as a device takes it.
#[derive(Debug)]
struct Through(Arc<BadDisk>);

impl OpenFiles for Through {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(BadFile { disk: self.0.clone(), file: Disk.open(path)? }))
    }
}

impl ReadAt for BadFile {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
        let number = self.disk.reads.fetch_add(1, Ordering::Relaxed);
        let slow = self.disk.slow.load(Ordering::Relaxed);
        if slow > 0 {
            let micros = Random::new(number as u64).below(slow as usize) as u64;
            std::thread::sleep(Duration::from_micros(micros));
        }
        let fault = self.disk.fault.lock().expect("no test panicked with it").clone();
        match fault.filter(|(_, numbers)| numbers.contains(&number)) {
            Some((Fault::Refused, _)) => Err(io::Error::from_raw_os_error(5)),
            Some((Fault::Empty, _)) => Ok(0),
            Some((Fault::Short, _)) => {
                let some = to.len().min(100);
                self.file.read_at(offset, &mut to[..some])?;
                *self.disk.fault.lock().expect("no test panicked with it") = Some((Fault::Empty, 0..usize::MAX));
                Ok(some)
            }
            None => self.file.read_at(offset, to),
        }
    }
}

impl BadDisk {
    fn heal(&self) {
        *self.fault.lock().expect("no test panicked with it") = None;
    }

    /// Lets the read after `good` more fail, and all that follow.
    fn fail(&self, fault: Fault, good: usize) {
        let from = self.reads.load(Ordering::Relaxed) + good;
        *self.fault.lock().expect("no test panicked with it") = Some((fault, from..usize::MAX));
    }
}

fn limits() -> Limits {
    Limits { wanted: 64, sequences: 4, ..Limits::for_context(512, 64, KvTypes::both(KvType::F32)) }
}

fn program(device: &CpuDevice, model: &Model, residency: Residency) -> Program {
    let mut program = lower_for(&device.caps(), &model.spec, &model.index).unwrap_or_else(|e| panic!("{e}"));
    for bank in program.banks() {
        program.keep_experts(&bank, residency);
    }
    program
}

fn driver(model: &Model, residency: Residency, threads: usize, disk: &Arc<BadDisk>) -> Driver<CpuExec> {
    let device = CpuDevice::new(Some(threads)).with_files(Arc::new(Through(disk.clone())));
    let program = program(&device, model, residency);
    Driver::of_program(&device, program, &model.weights, limits())
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// D29: with too few slots for a prompt, and reads that come in any order, no expert takes another's place. Every expert's last
/// matrix holds a value of its own, so that a wrong one shows.
#[test]
fn d29_slots_are_not_reused_too_early() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = golden("qwen3_moe");
    std::fs::copy(from.join("config.json"), folder.path().join("config.json")).expect("copied");
    let file = SafetensorsFile::open(&from.join("model.safetensors")).expect("a checkpoint");
    let tensors: Vec<_> = file
        .weights()
        .iter()
        .map(|tensor| {
            let expert =
                tensor.name().split_once("experts.").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
            match expert.filter(|_: &u32| tensor.name().ends_with("down_proj.weight")) {
                Some(expert) => {
                    let values = vec![half::bf16::from_f32(expert as f32 * 0.25); tensor.elements()];
                    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                    Tensor::from_bytes(tensor.name(), DType::BF16, tensor.shape().to_vec(), bytes).expect("fits")
                }
                None => tensor.clone(),
            }
        })
        .collect();
    let path = folder.path().join("model.safetensors");
    safetensors::write(&path, &tensors, &Default::default()).expect("written");
    let model = Model::open(&path);
    let ids = Random::new(29).tokens(18, 256);
    let disk = Arc::new(BadDisk::default());
    let whole = driver(&model, Residency::Ram, 2, &disk).logits(&ids, 18);
    for slow in [0, 3000] {
        disk.slow.store(slow, Ordering::Relaxed);
        for slots in [1, 2, 3, 8] {
            let mut streamed = driver(&model, Residency::Streamed { slots }, 2, &disk);
            for chunk in [18, 5, 1] {
                assert!(
                    same_bits(&streamed.logits(&ids, chunk), &whole),
                    "{slots} slots, chunks of {chunk}, {slow} µs"
                );
            }
        }
    }
}

/// D30: 500 greedy tokens are the same in memory, mapped, and with a quarter of the experts in slots, on one and two threads.
#[test]
fn d30_streamed_equals_resident() {
    let model = Model::open(&golden("qwen3_moe").join("model.safetensors"));
    let disk = Arc::new(BadDisk::default());
    let mut results = Vec::new();
    for residency in [Residency::Ram, Residency::Mapped, Residency::Streamed { slots: 2 }] {
        for threads in [1, 2] {
            let mut driver = driver(&model, residency, threads, &disk);
            let sequence = driver.sequences.open();
            let mut logits = driver.feed(sequence, &[1, 20, 77, 131], Want::Last);
            let mut ids = Vec::new();
            while ids.len() < 500 {
                let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("a vocabulary");
                ids.push(best as u32);
                logits = driver.feed(sequence, &[best as u32], Want::Last);
            }
            results.push((residency, threads, ids, logits));
        }
    }
    let (_, _, ids, logits) = &results[0];
    for (residency, threads, other, last) in &results[1..] {
        assert!(other == ids && same_bits(last, logits), "{residency:?} on {threads} threads");
    }
}

/// A read that fails loses that run and nothing else: the error names the file and the place, no state has moved, and the same
/// feed works afterwards, with the bits of one that never failed; recurrent states included.
#[test]
fn a_failed_read_loses_one_run() {
    for name in ["qwen3_moe", "qwen3_5_moe", "gpt_oss"] {
        let path = families().into_iter().find(|g| g.model == name).expect("a golden model").path();
        let model = Model::open(&path);
        let ids = Random::new(7).tokens(30, 200);
        let disk = Arc::new(BadDisk::default());
        let whole = driver(&model, Residency::Ram, 2, &disk).logits(&ids, 64);
        let vocab = whole.len() / ids.len();
        for fault in [Fault::Refused, Fault::Short, Fault::Empty] {
            for good in [0, 1, 4, 9, 17] {
                let mut streamed = driver(&model, Residency::Streamed { slots: 1 }, 2, &disk);
                let sequence = streamed.sequences.open();
                let first = streamed.feed(sequence, &ids[..11], Want::All);
                disk.fail(fault, good);
                let failed = streamed.feed_together(&[(sequence, &ids[11..], Want::All)]);
                disk.heal();
                let Err(ExecError::Weights(error @ WeightsError::Read { .. })) = failed else {
                    panic!("{name}, {fault:?} after {good}: {failed:?}");
                };
                let (text, WeightsError::Read { path, offset, expected, .. }) = (error.to_string(), error) else {
                    unreachable!("matched above")
                };
                for part in [path.display().to_string(), format!("byte {offset}"), format!("{expected} bytes")] {
                    assert!(text.contains(&part), "{text}");
                }
                assert_eq!(streamed.sequences.position(sequence).expect("is open"), 11);
                let rest = streamed.feed(sequence, &ids[11..], Want::All);
                assert!(same_bits(&first, &whole[..11 * vocab]), "{name}");
                assert!(same_bits(&rest, &whole[11 * vocab..]), "{name}, {fault:?} after {good}");
            }
        }
    }
}

/// What is announced is what is taken, at most by one expert more; and a layer keeps what it uses most.
#[test]
fn slots_stay_within_the_budget_and_are_worth_it() {
    let model = Model::open(&golden("qwen3_moe").join("model.safetensors"));
    let disk = Arc::new(BadDisk::default());
    let ids = Random::new(5).tokens(200, 256);
    let mut hits = Vec::new();
    for slots in [1, 4, 8] {
        let device = CpuDevice::new(Some(1));
        let program = program(&device, &model, Residency::Streamed { slots });
        let announced = streaming::Streams::bytes(&program, &model.weights).expect("streams");
        let budget = device.memory(std::slice::from_ref(&program), &model.weights, &limits()).expect("a budget");
        assert!(budget.weights > announced);
        let one = streaming::banks(&program, &model.weights).expect("banks")[0].slot;
        let mut streamed = driver(&model, Residency::Streamed { slots }, 1, &disk);
        streamed.logits(&ids, 1);
        let stats = streamed.sequences.exec().expert_stats().expect("streams");
        assert!(stats.peak_bytes <= announced + one, "{stats:?}, announced {announced}, one more {one}");
        hits.push(stats.hits as f64 / stats.requests as f64);
    }
    assert!(hits[0] < hits[1] && hits[1] < hits[2] && hits[2] > 0.9, "{hits:?}");
}
