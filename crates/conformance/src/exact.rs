//! The exactness contract: the same tokens, file and cache type give the same logit bits, whatever the chunks, the neighbours in
//! the batch and the way the past came to be.

use crate::{Driver, Failures};
use plan::{Device, Exec, KvType, KvTypes, Limits, SequenceId, Want};
use testkit::{Architecture, GoldenFile, Model, Options, Random, families, quantised, synthetic};

/// More than three blocks of cache, and not a whole number of them.
pub const LENGTH: usize = 105;
const F32: KvTypes = KvTypes::both(KvType::F32);
const F16: KvTypes = KvTypes::both(KvType::F16);

/// Limits with room for every schedule here.
pub fn roomy(kv: KvTypes) -> Limits {
    Limits { rows: 256, wanted: 256, blocks: 64, kv, sequences: 99, state_slots: 16 }
}

/// One model with one cache type, its prompt, and the logits of the prompt fed whole.
#[derive(Debug)]
pub struct Subject {
    /// Model and cache type.
    pub name: String,
    /// The model.
    pub model: Model,
    kv: KvTypes,
    /// The prompt.
    pub ids: Vec<u32>,
    /// `[LENGTH, vocab]`.
    pub expected: Vec<f32>,
}

impl Subject {
    /// Feeds the prompt whole.
    ///
    /// # Panics
    /// If the device refuses the model or gives what is no number.
    pub fn new<D: Device>(device: &D, name: String, model: Model, kv: KvTypes) -> Self {
        let ids = Random::new(name.len() as u64).tokens(LENGTH, model.spec.vocab);
        let mut subject = Self { name: format!("{name}, cache {kv}"), model, kv, ids, expected: vec![] };
        subject.expected = subject.open(device).logits(&subject.ids, LENGTH);
        assert!(subject.expected.iter().all(|x| x.is_finite()), "{}", subject.name);
        subject
    }

    /// Compiles the model.
    ///
    /// # Panics
    /// If the device refuses it.
    pub fn open<D: Device>(&self, device: &D) -> Driver<D::Exec> {
        Driver::of_model(device, &self.model, roomy(self.kv))
    }

    /// Width of a row of logits.
    pub fn vocab(&self) -> usize {
        self.model.spec.vocab
    }

    /// The expected logits of a range of positions.
    pub fn rows(&self, range: std::ops::Range<usize>) -> &[f32] {
        &self.expected[range.start * self.vocab()..range.end * self.vocab()]
    }
}

/// Golden models that differ from another one in numbers only.
const ALIKE: [&str; 5] = ["deepseek2_group", "deepseek2_qlora", "gpt_oss_lim7", "minimax_m3_lim7", "qwen4_exp_ple64"];

/// One golden model of each kind of layer.
pub const KINDS: [&str; 12] = [
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
pub fn every<D: Device>(device: &D, kv: KvTypes) -> Vec<Subject> {
    let files = families().into_iter().filter(|f| match f.file {
        "model.safetensors" => !ALIKE.contains(&f.model),
        "model.gguf" => f.model == "llama",
        file => file == "model-mxfp4.safetensors" && f.model == "gpt_oss",
    });
    subjects(device, files.chain(quantised()), kv)
}

/// One of each kind: for what does not depend on sizes or storage types.
pub fn some<D: Device>(device: &D, kv: KvTypes) -> Vec<Subject> {
    let families = families().into_iter().filter(|f| f.file == "model.safetensors" && KINDS.contains(&f.model));
    let types = quantised().into_iter().filter(|f| ["model-Q4_K_S.gguf", "model-Q8_0.gguf"].contains(&f.file));
    subjects(device, families.chain(types), kv)
}

fn subjects<D: Device>(device: &D, files: impl Iterator<Item = GoldenFile>, kv: KvTypes) -> Vec<Subject> {
    let opened = files.map(|f| (format!("{}/{}", f.model, f.file), Model::open(&f.path())));
    opened.chain(made()).map(|(name, model)| Subject::new(device, name, model, kv)).collect()
}

/// Small models of shapes that no golden one has.
pub fn made() -> Vec<(String, Model)> {
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

/// The prompt fed in chunks.
///
/// # Panics
/// If the device fails.
pub fn chunks_change_no_bit<D: Device>(device: &D, failures: &mut Failures) {
    const CHUNKS: [usize; 6] = [1, 32, 3, 7, 64, LENGTH];
    let narrow = every(device, F16).into_iter().map(|subject| (subject, CHUNKS.as_slice()));
    let wide = some(device, F32).into_iter().map(|subject| (subject, &CHUNKS[..2]));
    for (subject, chunks) in narrow.chain(wide) {
        let mut driver = subject.open(device);
        for &chunk in chunks {
            let name = format!("{}, chunks of {chunk}", subject.name);
            failures.same(name, &driver.logits(&subject.ids, chunk), &subject.expected);
        }
    }
}

/// Only the last row wanted, or none until the end: other rows' outputs must not matter.
///
/// # Panics
/// If the device fails.
pub fn wanted_rows_change_no_bit<D: Device>(device: &D, failures: &mut Failures) {
    for subject in some(device, F16) {
        let mut driver = subject.open(device);
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
}

/// The prompt fed beside others in mixed batches, in several orders.
///
/// # Panics
/// If the device fails.
pub fn neighbours_change_no_bit<D: Device>(device: &D, failures: &mut Failures) {
    for subject in some(device, F16) {
        let mut driver = subject.open(device);
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
}

/// Forks, snapshots, rewinds and resets lead to a past; the logits depend on its tokens only.
///
/// # Panics
/// If the device fails.
pub fn the_way_to_a_past_changes_no_bit<D: Device>(device: &D, failures: &mut Failures) {
    for subject in some(device, F16) {
        let mut driver = subject.open(device);
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
}

/// Rewinds to positions from the end on, with other tokens written over what is then fed again. A recurrent model goes back to
/// the last kept state before it.
///
/// # Panics
/// If the device fails.
pub fn rewinds<E: Exec>(driver: &mut Driver<E>, subject: &Subject, failures: &mut Failures) {
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

/// Rewinds of one model of each kind.
///
/// # Panics
/// If the device fails.
pub fn a_rewind_to_any_position_changes_no_bit<D: Device>(device: &D, failures: &mut Failures) {
    for subject in some(device, F16) {
        rewinds(&mut subject.open(device), &subject, failures);
    }
}

/// All of the contract.
///
/// # Panics
/// If the device fails.
pub fn exactness<D: Device>(device: &D, failures: &mut Failures) {
    chunks_change_no_bit(device, failures);
    wanted_rows_change_no_bit(device, failures);
    neighbours_change_no_bit(device, failures);
    the_way_to_a_past_changes_no_bit(device, failures);
    a_rewind_to_any_position_changes_no_bit(device, failures);
}
