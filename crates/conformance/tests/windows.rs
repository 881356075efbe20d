//! Sequences far longer than their windows: what no row can see any more is given back, memory stays bounded, and no bit
//! changes, whatever the way to a past.

use cpu::{CpuDevice, CpuExec};
use plan::reference::ReferenceDevice;
use plan::{BlockId, Device, Exec, KvType, KvTypes, Limits, SequenceId, Sequences, Table, Want, lower_for};
use testkit::{Model, Options, Random, families, synthetic};
use turbospark_conformance::{Driver, Failures, with_damaged_tables};

/// More than four of the widest windows here, 33, with a block on either side.
const LENGTH: usize = 200;

/// Rows of a run: so few that blocks are freed all the time.
const ROWS: usize = 16;

const F16: KvTypes = KvTypes::both(KvType::F16);

fn device() -> CpuDevice {
    CpuDevice::new(Some(2))
}

fn limits(rows: usize, sequences: usize) -> Limits {
    Limits { rows, wanted: rows, sequences, state_slots: 8 * sequences, ..Limits::for_context(1024, rows, F16) }
}

/// Golden models with windows of 8 to 32, and made ones.
fn models() -> Vec<(String, Model)> {
    const MODELS: [&str; 6] = ["mistral", "gemma3", "gemma4_e", "gpt_oss", "muse_glimmer", "spark2_5"];
    let files = families().into_iter().filter(|f| f.file == "model.safetensors" && MODELS.contains(&f.model));
    let golden = files.map(|f| (f.model.to_owned(), Model::open(&f.path())));
    let windows = |windows: [Option<usize>; 3]| Options { windows: windows.to_vec(), ..Options::tiny() };
    let made = [("4", windows([Some(4), None, Some(4)])), ("33", windows([Some(33), Some(33), None]))];
    golden.chain(made.map(|(name, o)| (format!("window {name}"), synthetic(5, &o).model()))).collect()
}

struct Subject {
    name: String,
    model: Model,
    ids: Vec<u32>,
    /// Of one run of everything, where no window loses a block.
    expected: Vec<f32>,
}

impl Subject {
    fn all() -> Vec<Self> {
        let subject = |(name, model): (String, Model)| {
            let ids = Random::new(3).tokens(LENGTH, model.spec.vocab);
            let expected = Driver::of_model(&device(), &model, limits(LENGTH, 8)).logits(&ids, LENGTH);
            Self { name, model, ids, expected }
        };
        models().into_iter().map(subject).collect()
    }

    fn open(&self, sequences: usize) -> Driver<CpuExec> {
        Driver::of_model(&device(), &self.model, limits(ROWS, sequences))
    }

    fn rows(&self, range: std::ops::Range<usize>) -> &[f32] {
        let vocab = self.model.spec.vocab;
        &self.expected[range.start * vocab..range.end * vocab]
    }
}

/// The windows of a driver's program.
fn windows<E: Exec>(driver: &Driver<E>) -> Vec<usize> {
    driver.sequences.exec().windows().iter().flatten().copied().collect()
}

#[test]
fn sequences_of_many_windows_give_the_bits_of_one_run() {
    let mut failures = Failures::default();
    for subject in Subject::all() {
        let mut driver = subject.open(1);
        assert!(!windows(&driver).is_empty(), "{} has windows", subject.name);
        for chunk in [1, 7, ROWS] {
            let found = driver.logits(&subject.ids, chunk);
            failures.same(format!("{}, chunks of {chunk}", subject.name), &found, &subject.expected);
        }
    }
    failures.finish();
}

#[test]
fn the_reference_device_reads_the_same_positions() {
    for (name, model) in models().into_iter().filter(|(name, _)| name.starts_with("window")) {
        let ids = Random::new(3).tokens(LENGTH, model.spec.vocab);
        let f32s = |rows| Limits { kv: KvTypes::both(KvType::F32), ..limits(rows, 2) };
        let whole = Driver::of_model(&ReferenceDevice, &model, f32s(LENGTH)).logits(&ids, LENGTH);
        let found = Driver::of_model(&ReferenceDevice, &model, f32s(ROWS)).logits(&ids, 11);
        assert_eq!(turbospark_conformance::difference(&found, &whole), None, "{name}");
    }
}

#[test]
fn a_long_sequence_holds_no_more_than_its_window_needs() {
    let (_, model) = models().pop().expect("some");
    let budget = |context| {
        let limits = Limits::for_context(context, ROWS, F16);
        let program = lower_for(&device().caps(), &model.spec, &model.index).expect("lowers");
        device().memory(&[program], &model.weights, &limits).expect("fits")
    };
    // Two layers of three have a window: beyond it, only the third grows.
    let grown = budget(8192).states - budget(4096).states;
    assert_eq!(grown, 4096 * budget(64).per_position);
    assert_eq!(3 * budget(64).per_position, (2 * model.spec.layers.len() * 2 * 2 * 8) as u64);

    let mut driver = Driver::of_model(&device(), &model, Limits::for_context(4096, ROWS, F16));
    let total = driver.sequences.exec().limits().blocks_of(Some(33));
    assert_eq!(total, (33 + ROWS).div_ceil(32) + 1 + 4 * 3);
    let id = driver.sequences.open();
    for chunk in Random::new(1).tokens(4000, model.spec.vocab).chunks(ROWS) {
        driver.feed(id, chunk, Want::Last);
    }
    assert_eq!(driver.sequences.free_blocks(), (4096 - 4000) / 32);
    driver.sequences.close(id).expect("open");
    assert_eq!(driver.sequences.free_blocks_of(Some(33)), total);
}

/// A rewind is exact as far back as one run has rows, and to kept points beyond; from each, the same bits follow.
#[test]
fn short_rewinds_are_exact_and_long_ones_go_to_kept_points() {
    let mut failures = Failures::default();
    for subject in Subject::all() {
        let mut driver = subject.open(1);
        let recurrent = driver.sequences.exec().has_fixed_states();
        let id = driver.sequences.open();
        let wrong = Random::new(98).tokens(ROWS, subject.model.spec.vocab);
        driver.feed_in(id, &subject.ids[..190], ROWS);
        let mut far = 0;
        for to in (0..190).rev().step_by(9) {
            let before = driver.sequences.position(id).expect("open");
            let promised = driver.sequences.restorable(id, to).expect("open");
            let reached = driver.sequences.rewind(id, to).expect("open");
            assert_eq!(promised, reached);
            assert!(reached == to || reached < to && (recurrent || to + ROWS < before), "{reached} for {to}");
            far += usize::from(reached < to);
            // Something else is written there, which must be forgotten again.
            driver.feed(id, &wrong[..1 + to % ROWS], Want::Nothing);
            let reached = driver.sequences.rewind(id, reached).expect("open");
            let end = (to + 10).min(LENGTH);
            let again = driver.feed_in(id, &subject.ids[reached..end], ROWS);
            failures.same(format!("{}, rewind to {to}", subject.name), &again, subject.rows(reached..end));
        }
        assert!(far > 0 || subject.name == "window 4", "{}: nothing was out of reach", subject.name);
    }
    failures.finish();
}

/// Random orders of feeds, forks, rewinds, snapshots and restores of several sequences beside each other.
#[test]
fn random_schedules_change_no_bit() {
    let mut failures = Failures::default();
    for subject in Subject::all() {
        for seed in 0..6 {
            let mut driver = subject.open(6);
            let mut random = Random::new(seed);
            let mut open: Vec<SequenceId> = vec![driver.sequences.open()];
            let mut kept = Vec::new();
            for step in 0..60 {
                let at = random.below(open.len());
                match random.below(8) {
                    0 if open.len() < 4 => open.push(driver.sequences.fork(open[at]).expect("open")),
                    1 if open.len() > 1 => driver.sequences.close(open.swap_remove(at)).expect("open"),
                    2 if kept.len() < 2 => kept.push(driver.sequences.snapshot(open[at]).expect("open")),
                    3 if !kept.is_empty() => driver.sequences.restore(open[at], &kept[0]).expect("open"),
                    4 if !kept.is_empty() => driver.sequences.release(kept.swap_remove(0)),
                    5 => {
                        let to = random.below(LENGTH);
                        driver.sequences.rewind(open[at], to).expect("open");
                    }
                    _ => {
                        let from = driver.sequences.position(open[at]).expect("open");
                        let to = (from + 1 + random.below(ROWS)).min(LENGTH);
                        if from == to {
                            continue;
                        }
                        let found = driver.feed(open[at], &subject.ids[from..to], Want::All);
                        failures.same(format!("{}, {seed}.{step}", subject.name), &found, subject.rows(from..to));
                    }
                }
            }
            open.into_iter().for_each(|id| driver.sequences.close(id).expect("open"));
            kept.into_iter().for_each(|kept| driver.sequences.release(kept));
            let exec = driver.sequences.exec();
            for window in exec.windows() {
                assert_eq!(driver.sequences.free_blocks_of(*window), exec.limits().blocks_of(*window));
            }
        }
    }
    failures.finish();
}

/// Exchanges two entries, counted from the end, of the tables of a window.
fn swap(tables: &mut [Vec<Table>], window: Option<usize>, entries: [usize; 2]) {
    for table in tables.iter_mut().flatten().filter(|table| table.window == window) {
        let place = |from_end| table.blocks.len().checked_sub(from_end).filter(|at| table.blocks[*at] != BlockId::HOLE);
        if let [Some(a), Some(b)] = entries.map(place) {
            table.blocks.swap(a, b);
        }
    }
}

/// The comparison above would notice a table that names the wrong block, in either kind of layer.
#[test]
fn a_broken_block_table_is_noticed() {
    let (_, model) = models().pop().expect("some");
    let ids = Random::new(3).tokens(LENGTH, model.spec.vocab);
    let expected = Driver::of_model(&device(), &model, limits(LENGTH, 8)).logits(&ids, LENGTH);
    let broken = |window, entries| {
        let program = lower_for(&device().caps(), &model.spec, &model.index).expect("lowers");
        let exec = device().compile(vec![program], &model.weights, limits(ROWS, 1)).expect("compiles");
        let sequences = Sequences::new(with_damaged_tables(exec, |tables| swap(tables, window, entries)));
        let found = Driver { sequences }.logits(&ids, 7);
        turbospark_conformance::difference(&found, &expected).is_some()
    };
    assert!(!broken(Some(33), [1, 1]) && !broken(None, [2, 2]), "nothing was exchanged");
    assert!(broken(Some(33), [1, 2]) && broken(None, [1, 2]) && broken(None, [2, 4]));
}
