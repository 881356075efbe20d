//! The exactness contract: the same tokens, file and cache type give the same logit bits, whatever the chunks, the
//! threads, the neighbours in the batch and the way the past came to be.

use cpu::CpuDevice;
use cpu::isa::Isa;
use plan::reference::ReferenceDevice;
use plan::{KvType, KvTypes, Want};
use proptest::prelude::*;
use testkit::{Model, Options, Random, families, synthetic};
use turbospark_conformance::exact::{self, KINDS, LENGTH, Subject, every, made, roomy};
use turbospark_conformance::{Driver, Failures};

const F32: KvTypes = KvTypes::both(KvType::F32);
const F16: KvTypes = KvTypes::both(KvType::F16);

fn cpu(threads: usize) -> CpuDevice {
    CpuDevice::new(Some(threads))
}

fn holds(suite: impl FnOnce(&CpuDevice, &mut Failures)) {
    let mut failures = Failures::default();
    suite(&cpu(2), &mut failures);
    failures.finish();
}

#[test]
fn chunks_change_no_bit() {
    holds(exact::chunks_change_no_bit);
}

#[test]
fn wanted_rows_change_no_bit() {
    holds(exact::wanted_rows_change_no_bit);
}

#[test]
fn neighbours_change_no_bit() {
    holds(exact::neighbours_change_no_bit);
}

#[test]
fn the_way_to_a_past_changes_no_bit() {
    holds(exact::the_way_to_a_past_changes_no_bit);
}

#[test]
fn a_rewind_to_any_position_changes_no_bit() {
    holds(exact::a_rewind_to_any_position_changes_no_bit);
}

#[test]
fn threads_change_no_bit() {
    let mut failures = Failures::default();
    for subject in every(&cpu(2), F16) {
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
    for subject in every(&cpu(2), F16) {
        let mut driver = subject.open(&cpu(2).with_isa(Isa::SCALAR));
        failures.same(&subject.name, &driver.logits(&subject.ids, 50), &subject.expected);
    }
    failures.finish();
}

/// Packed types keep the promise as well: chunks, threads, instruction sets, neighbours and shared pasts.
#[test]
fn packed_caches_are_exact_in_themselves() {
    let mut failures = Failures::default();
    for kv in ["q8:q4", "tq4:tq3"].map(|kv| kv.parse::<KvTypes>().expect("types")) {
        let files = families().into_iter().filter(|f| f.file == "model.safetensors" && KINDS.contains(&f.model));
        let subjects = files.map(|f| Subject::new(&cpu(2), f.model.to_owned(), Model::open(&f.path()), kv));
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
        let subject = Subject::new(&cpu(2), name, model, F32);
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
        let expected = Driver::of_model(&ReferenceDevice, &model, roomy(F32)).logits(&ids, 110);
        let mut whole = Driver::of_model(&cpu(1), &model, roomy(F32));
        let whole = whole.logits(&ids, 110);
        let error = testkit::nmse(&whole, &expected);
        prop_assert!(error < 1e-9, "{options:?}: {error:e}");

        let mut driver = Driver::of_model(&cpu(1 + seed as usize % 4), &model, roomy(F32));
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
