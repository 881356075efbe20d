//! The exactness contract: the same tokens, file and cache type give the same logit bits, whatever the chunks, the
//! threads, the neighbours in the batch and the way the past came to be.

use cpu::isa::Isa;
use cpu::{CpuDevice, CpuExec};
use plan::reference::ReferenceDevice;
use plan::{Device, Exec, KvType, KvTypes, Limits, SequenceId, Want};
use proptest::prelude::*;
use testkit::{Architecture, GoldenFile, Model, Options, Random, families, quantised, synthetic};
use turbospark_conformance::{Driver, Failures};

/// More than three blocks of cache, and not a whole number of them.
const LENGTH: usize = 105;
const F32: KvTypes = KvTypes::both(KvType::F32);
const F16: KvTypes = KvTypes::both(KvType::F16);

fn limits(kv: KvTypes) -> Limits {
    Limits { rows: 256, wanted: 256, blocks: 64, kv, sequences: 99, state_slots: 16 }
}

fn cpu(threads: usize) -> CpuDevice {
    CpuDevice::new(Some(threads))
}

/// One model with one cache type, its prompt, and the logits of the prompt fed whole.
struct Subject {
    name: String,
    model: Model,
    kv: KvTypes,
    ids: Vec<u32>,
    expected: Vec<f32>,
}

impl Subject {
    fn new(name: String, model: Model, kv: KvTypes) -> Self {
        let ids = Random::new(name.len() as u64).tokens(LENGTH, model.spec.vocab);
        let mut subject = Self { name: format!("{name}, cache {kv}"), model, kv, ids, expected: vec![] };
        subject.expected = subject.open(&cpu(2)).logits(&subject.ids, LENGTH);
        assert!(subject.expected.iter().all(|x| x.is_finite()), "{}", subject.name);
        subject
    }

    fn open<D: Device>(&self, device: &D) -> Driver<D::Exec> {
        Driver::of_model(device, &self.model, limits(self.kv))
    }

    fn vocab(&self) -> usize {
        self.model.spec.vocab
    }

    /// The expected logits of a range of positions.
    fn rows(&self, range: std::ops::Range<usize>) -> &[f32] {
        &self.expected[range.start * self.vocab()..range.end * self.vocab()]
    }
}

/// Golden models that differ from another one in numbers only.
const ALIKE: [&str; 5] = ["deepseek2_group", "deepseek2_qlora", "gpt_oss_lim7", "minimax_m3_lim7", "qwen4_exp_ple64"];

/// One golden model of each kind of layer.
const KINDS: [&str; 12] = [
    "mistral",
    "qwen3",
    "gemma3",
    "gemma4_e",
    "gemma4_moe",
    "qwen3_5_moe",
    "qwen4_exp",
    "gpt_oss",
    "muse_glimmer",
    "minimax_m3",
    "deepseek2_lite27",
    "spark2_5",
];

/// Every golden model, one model in each quantised type, and some whose windows end inside and between blocks. Of
/// several containers one is enough, as the weights they hold are the same: but for rotated rows and narrow experts.
fn every(kv: KvTypes) -> Vec<Subject> {
    let files = families().into_iter().filter(|f| match f.file {
        "model.safetensors" => !ALIKE.contains(&f.model),
        "model.gguf" => f.model == "llama",
        file => file == "model-mxfp4.safetensors" && f.model == "gpt_oss",
    });
    subjects(files.chain(quantised()), kv)
}

/// One of each kind: for what does not depend on sizes or storage types.
fn some(kv: KvTypes) -> Vec<Subject> {
    let families = families().into_iter().filter(|f| f.file == "model.safetensors" && KINDS.contains(&f.model));
    let types = quantised().into_iter().filter(|f| ["model-Q4_K_S.gguf", "model-Q8_0.gguf"].contains(&f.file));
    subjects(families.chain(types), kv)
}

fn subjects(files: impl Iterator<Item = GoldenFile>, kv: KvTypes) -> Vec<Subject> {
    let opened = files.map(|f| (format!("{}/{}", f.model, f.file), Model::open(&f.path())));
    opened.chain(made()).map(|(name, model)| Subject::new(name, model, kv)).collect()
}

fn made() -> Vec<(String, Model)> {
    let tiny = Options::tiny();
    let wide = Options { windows: vec![Some(33), None, Some(33)], kv_heads: 1, head_dim: 10, ..Options::tiny() };
    let shapes = [
        ("tiny", tiny.clone()),
        ("wide windows", wide),
        ("gemma3", tiny.clone().of(Architecture::Gemma3)),
        ("synthetic", tiny.of(Architecture::Synthetic)),
    ];
    shapes.map(|(name, options)| (name.to_owned(), synthetic(11, &options).model())).to_vec()
}

#[test]
fn chunks_change_no_bit() {
    let mut failures = Failures::default();
    const CHUNKS: [usize; 6] = [1, 32, 3, 7, 64, LENGTH];
    let narrow = every(F16).into_iter().map(|subject| (subject, CHUNKS.as_slice()));
    let wide = some(F32).into_iter().map(|subject| (subject, &CHUNKS[..2]));
    for (subject, chunks) in narrow.chain(wide) {
        let mut driver = subject.open(&cpu(2));
        for &chunk in chunks {
            let name = format!("{}, chunks of {chunk}", subject.name);
            failures.same(name, &driver.logits(&subject.ids, chunk), &subject.expected);
        }
    }
    failures.finish();
}

/// Only the last row wanted, or none until the end: other rows' outputs must not matter.
#[test]
fn wanted_rows_change_no_bit() {
    let mut failures = Failures::default();
    for subject in some(F16) {
        let mut driver = subject.open(&cpu(2));
        for chunk in [1, 5, 16, 36, LENGTH] {
            let id = driver.sequences.open();
            let mut last = vec![];
            for (i, ids) in subject.ids.chunks(chunk).enumerate() {
                let end = (i + 1) * chunk >= LENGTH;
                last = driver.feed(id, ids, if end { Want::Last } else { Want::Nothing });
            }
            failures.same(format!("{}, {chunk}", subject.name), &last, subject.rows(LENGTH - 1..LENGTH));
            driver.sequences.close(id).expect("open");
        }
    }
    failures.finish();
}

#[test]
fn threads_change_no_bit() {
    let mut failures = Failures::default();
    for subject in every(F16) {
        for threads in [1, 2, 3, 64] {
            let mut driver = subject.open(&cpu(threads));
            let name = |how: &str| format!("{}, {threads} threads, {how}", subject.name);
            failures.same(name("whole"), &driver.logits(&subject.ids, LENGTH), &subject.expected);
            // Prefill, then row by row: far enough that the blocks of a head are spread over threads.
            let (prompt, rest) = subject.ids.split_at(80);
            let rest = if threads > 3 { &rest[..5] } else { rest };
            let id = driver.sequences.open();
            driver.feed(id, prompt, Want::Nothing);
            let decoded = driver.feed_in(id, rest, 1);
            failures.same(name("decode"), &decoded, subject.rows(80..80 + rest.len()));
        }
    }
    failures.finish();
}

#[test]
fn instruction_sets_agree() {
    let mut failures = Failures::default();
    for subject in every(F16) {
        let mut driver = subject.open(&cpu(2).with_isa(Isa::SCALAR));
        failures.same(&subject.name, &driver.logits(&subject.ids, 50), &subject.expected);
    }
    failures.finish();
}

/// The prompt fed beside others in mixed batches, in several orders.
#[test]
fn neighbours_change_no_bit() {
    let mut failures = Failures::default();
    for subject in some(F16) {
        let mut driver = subject.open(&cpu(2));
        for (order, chunk) in [(0, 1), (1, 40), (2, 7)] {
            let ids: Vec<SequenceId> = (0..3).map(|_| driver.sequences.open()).collect();
            let mut random = Random::new(order as u64);
            let mut found = Vec::new();
            for own in subject.ids.chunks(chunk) {
                let others = [1 + random.below(9), 1].map(|n| random.tokens(n, subject.vocab()));
                let mut feeds = vec![
                    (ids[1], others[0].as_slice(), Want::Last),
                    (ids[2], others[1].as_slice(), if order == 0 { Want::All } else { Want::Nothing }),
                ];
                feeds.insert(order, (ids[0], own, Want::All));
                found.extend(driver.feed_together(&feeds).unwrap_or_else(|e| panic!("{e}")).swap_remove(order));
                for id in &ids[1..] {
                    if driver.sequences.position(*id).expect("open") > 300 {
                        driver.sequences.rewind(*id, 0).expect("open");
                    }
                }
            }
            failures.same(format!("{}, place {order}, chunks of {chunk}", subject.name), &found, &subject.expected);
            ids.into_iter().for_each(|id| driver.sequences.close(id).expect("open"));
        }
        // One row of each, all deep: no neighbour is a prompt.
        let ids: Vec<SequenceId> = (0..3).map(|_| driver.sequences.open()).collect();
        for (id, depth) in ids.iter().zip([80, 95, 66]) {
            driver.feed(*id, &subject.ids[..depth], Want::Nothing);
        }
        for step in 0..10 {
            let rows: Vec<_> = [80, 95, 66].map(|depth| depth + step).to_vec();
            let feeds: Vec<_> =
                ids.iter().zip(&rows).map(|(id, at)| (*id, &subject.ids[*at..at + 1], Want::All)).collect();
            let found = driver.feed_together(&feeds).unwrap_or_else(|e| panic!("{e}"));
            for (found, at) in found.iter().zip(rows) {
                failures.same(format!("{}, decode at {at}", subject.name), found, subject.rows(at..at + 1));
            }
        }
        ids.into_iter().for_each(|id| driver.sequences.close(id).expect("open"));
        assert_eq!(driver.sequences.free_blocks(), 64);
    }
    failures.finish();
}

/// Forks, snapshots, rewinds and resets lead to a past; the logits depend on its tokens only.
#[test]
fn the_way_to_a_past_changes_no_bit() {
    let mut failures = Failures::default();
    for subject in some(F16) {
        let mut driver = subject.open(&cpu(2));
        let name = |how: &str| format!("{}, {how}", subject.name);
        let wrong = Random::new(99).tokens(30, subject.vocab());
        let ids = &subject.ids;

        let trunk = driver.sequences.open();
        driver.feed(trunk, &ids[..75], Want::Nothing);
        let fork = driver.sequences.fork(trunk).expect("open");
        let kept = driver.sequences.snapshot(trunk).expect("open");
        driver.feed(trunk, &wrong, Want::Nothing);
        failures.same(name("fork"), &driver.feed_in(fork, &ids[75..], 13), subject.rows(75..LENGTH));
        driver.sequences.restore(trunk, &kept).expect("open");
        failures.same(name("restore"), &driver.feed_in(trunk, &ids[75..], 1), subject.rows(75..LENGTH));
        driver.sequences.restore(fork, &kept).expect("open");
        driver.sequences.release(kept);
        failures.same(name("restore other"), &driver.feed_in(fork, &ids[75..], 66), subject.rows(75..LENGTH));
        driver.sequences.close(fork).expect("open");

        // A reset that first had another past.
        driver.sequences.rewind(trunk, 0).expect("open");
        driver.feed(trunk, &wrong, Want::Nothing);
        driver.sequences.rewind(trunk, 0).expect("open");
        failures.same(name("reset"), &driver.feed_in(trunk, ids, 50), &subject.expected);
        driver.sequences.close(trunk).expect("open");
        assert_eq!(driver.sequences.free_blocks(), 64);
    }
    failures.finish();
}

/// Rewinds to positions from the end on, with other tokens written over what is then fed again. A recurrent model goes back to
/// the last kept state before it.
fn rewinds(driver: &mut Driver<CpuExec>, subject: &Subject, failures: &mut Failures) {
    let recurrent = driver.sequences.exec().has_fixed_states();
    let wrong = Random::new(98).tokens(40, subject.vocab());
    let id = driver.sequences.open();
    driver.feed(id, &subject.ids, Want::Nothing);
    // Small models at every position; the others at every fourth, for time.
    let step = if subject.name.contains('/') { 4 } else { 1 };
    for to in (0..LENGTH).rev().step_by(step) {
        let reached = driver.sequences.rewind(id, to).expect("open");
        assert!(reached == to || reached < to && recurrent, "{}: {reached} for {to}", subject.name);
        driver.feed(id, &wrong[..1 + to % 40], Want::Nothing);
        let reached = driver.sequences.rewind(id, reached).expect("open");
        let again = driver.feed(id, &subject.ids[reached..to + 1], Want::All);
        failures.same(format!("{}, rewind to {to}", subject.name), &again, subject.rows(reached..to + 1));
    }
}

#[test]
fn a_rewind_to_any_position_changes_no_bit() {
    let mut failures = Failures::default();
    for subject in some(F16) {
        rewinds(&mut subject.open(&cpu(2)), &subject, &mut failures);
    }
    failures.finish();
}

/// Packed types keep the promise as well: chunks, threads, instruction sets, neighbours and shared pasts.
#[test]
fn packed_caches_are_exact_in_themselves() {
    let mut failures = Failures::default();
    for kv in ["q8:q4", "tq4:tq3"].map(|kv| kv.parse::<KvTypes>().expect("types")) {
        let files = families().into_iter().filter(|f| f.file == "model.safetensors" && KINDS.contains(&f.model));
        let subjects = files.map(|f| Subject::new(f.model.to_owned(), Model::open(&f.path()), kv));
        for subject in subjects {
            let name = |how: &str| format!("{}, {how}", subject.name);
            let mut scalar = subject.open(&cpu(1).with_isa(Isa::SCALAR));
            failures.same(name("scalar"), &scalar.logits(&subject.ids, 64), &subject.expected);
            let mut driver = subject.open(&cpu(3));
            let (trunk, other) = (driver.sequences.open(), driver.sequences.open());
            driver.feed(trunk, &subject.ids[..70], Want::Nothing);
            let fork = driver.sequences.fork(trunk).expect("open");
            driver.feed(trunk, &Random::new(3).tokens(9, subject.vocab()), Want::Nothing);
            let mut found = Vec::new();
            for ids in subject.ids[70..].chunks(3) {
                let feeds = [(other, &subject.ids[..2], Want::Last), (fork, ids, Want::All)];
                found.extend(driver.feed_together(&feeds).unwrap_or_else(|e| panic!("{e}")).swap_remove(1));
            }
            failures.same(name("fork beside another"), &found, subject.rows(70..LENGTH));
            let single = driver.logits(&subject.ids, 1);
            failures.same(name("row by row"), &single, &subject.expected);
        }
    }
    failures.finish();
}

/// The reference device keeps the same promise for chunks, since it works row by row.
#[test]
fn the_reference_device_is_exact_too() {
    let mut failures = Failures::default();
    for (name, model) in made() {
        let subject = Subject::new(name, model, F32);
        let mut driver = subject.open(&ReferenceDevice);
        let expected = driver.logits(&subject.ids, LENGTH);
        for chunk in [1, 7, 64] {
            failures.same(format!("{}, {chunk}", subject.name), &driver.logits(&subject.ids, chunk), &expected);
        }
    }
    failures.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Models of random shapes: right against the reference, and exact for random cuts and thread counts.
    #[test]
    fn random_shapes_are_right_and_exact(seed in any::<u64>(), cuts in prop::collection::vec(1..50usize, 1..6)) {
        let options = Options::random(seed);
        let model = synthetic(seed, &options).model();
        let ids = Random::new(seed).tokens(110, model.spec.vocab);
        let expected = Driver::of_model(&ReferenceDevice, &model, limits(F32)).logits(&ids, 110);
        let mut whole = Driver::of_model(&cpu(1), &model, limits(F32));
        let whole = whole.logits(&ids, 110);
        let error = testkit::nmse(&whole, &expected);
        prop_assert!(error < 1e-9, "{options:?}: {error:e}");

        let mut driver = Driver::of_model(&cpu(1 + seed as usize % 4), &model, limits(F32));
        let id = driver.sequences.open();
        let (mut rest, mut found) = (ids.as_slice(), Vec::new());
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at(rest.len().min(*cut));
            if now.is_empty() {
                break;
            }
            found.extend(driver.feed(id, now, Want::All));
            rest = later;
        }
        prop_assert!(turbospark_conformance::difference(&found, &whole).is_none(), "{options:?}, {cuts:?}");
    }
}
