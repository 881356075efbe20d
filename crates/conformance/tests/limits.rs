//! Memory is known before it is taken, and what is outside the limits is refused by name and changes nothing.

use cpu::CpuDevice;
use foundation::TokenId;
use plan::reference::ReferenceDevice;
use plan::{Budget, Device, ExecError, Feed, KV_BLOCK, KvType, KvTypes, Limits, PlanError, Want, lower_for};
use proptest::prelude::*;
use std::collections::BTreeMap;
use testkit::{Model, Options, Random, families, quantised, synthetic};
use turbospark_conformance::{Driver, Failures, TRUNK};
use weights::{DType, Tensor, UnsupportedType};

const F32: KvTypes = KvTypes::both(KvType::F32);
const F16: KvTypes = KvTypes::both(KvType::F16);
const MIXED: KvTypes = KvTypes { k: KvType::F32, v: KvType::F16 };

fn budget<D: Device>(device: &D, model: &Model, limits: &Limits) -> Budget {
    let program = lower_for(&device.caps(), &model.spec, &model.index).unwrap_or_else(|e| panic!("{e}"));
    device.memory(&[program], &model.weights, limits).unwrap_or_else(|e| panic!("{e}"))
}

/// Bytes of one position's keys and values, window by window, from the model's description.
fn per_position(model: &Model, kv: KvTypes) -> BTreeMap<Option<usize>, u64> {
    let mut groups = BTreeMap::new();
    for layer in &model.spec.layers {
        let model::Mixer::Attention(a) = &layer.mixer.op else { panic!("these models have attention only") };
        let bytes = kv.k.bytes(a.kv_heads * a.head_dim) + kv.v.bytes(a.kv_heads * a.head_dim);
        *groups.entry(a.window).or_insert(0) += bytes as u64;
    }
    groups
}

/// Models of plain attention and gated layers whose every tensor is one weight.
fn models() -> Vec<(String, Model)> {
    const PLAIN: &[&str] = &["llama", "llama_rope3", "llama_tied", "mistral", "qwen2", "qwen3", "gemma3"];
    let files = families().into_iter().filter(|f| PLAIN.contains(&f.model)).chain(quantised());
    files.map(|f| (format!("{}/{}", f.model, f.file), Model::open(&f.path()))).collect()
}

#[test]
fn weights_and_states_are_counted_exactly() {
    let mut failures = Failures::default();
    for (name, model) in models() {
        // Every tensor of these files is used once: matrices as stored, vectors as f32.
        let values: u64 = model.weights.iter().map(|t| 4 * t.elements() as u64).sum();
        let stored = |t: &Tensor| if t.shape().len() == 1 { 4 * t.elements() } else { t.bytes().len() };
        let stored: u64 = model.weights.iter().map(|t| stored(t) as u64).sum();
        for (blocks, sequences, kv) in [(1, 9, F32), (7, 9, F16), (16, 1, MIXED), (500, 1, F16), (500, 3, F32)] {
            let limits = Limits { rows: 8, wanted: 1, blocks, kv, sequences, state_slots: 0 };
            let mut check = |device: &str, found: Budget, weights: u64| {
                let groups = per_position(&model, kv);
                // A sequence's window and a run's rows, each point kept and its window: 5 windows that end inside blocks.
                let needed = |w: usize| sequences * ((w + 8).div_ceil(KV_BLOCK) + 1 + 4 * (w.div_ceil(KV_BLOCK) + 1));
                let blocks = |window: &Option<usize>| window.map_or(blocks, |w| blocks.min(needed(w)));
                let states = groups.iter().map(|(window, bytes)| (blocks(window) * KV_BLOCK) as u64 * bytes).sum();
                let expected = (weights, states, groups.get(&None).copied().unwrap_or(0));
                let found = (found.weights, found.states, found.per_position);
                let wrong = (found != expected).then(|| format!("{found:?}, expected {expected:?}"));
                failures.check(format!("{name} on {device}, {limits:?}"), wrong);
            };
            check("cpu", budget(&CpuDevice::new(Some(2)), &model, &limits), stored);
            if kv == F32 {
                check("reference", budget(&ReferenceDevice, &model, &limits), values);
            }
        }
    }
    failures.finish();
}

fn slots_grow_with_rows<D: Device>(device: &D) {
    let model = synthetic(1, &Options::tiny()).model();
    let slots = |rows, wanted| {
        budget(device, &model, &Limits { rows, wanted, blocks: 1, kv: F32, sequences: 99, state_slots: 0 }).slots
    };
    let row = slots(2, 1) - slots(1, 1);
    assert!(row >= 4 * model.spec.hidden as u64);
    assert_eq!(slots(100, 1) - slots(1, 1), 99 * row);
    let wanted = slots(100, 2) - slots(100, 1);
    assert!(wanted >= 4 * (model.spec.hidden + model.spec.vocab) as u64);
    assert_eq!(slots(100, 50) - slots(100, 1), 49 * wanted);
}

#[test]
fn slots_grow_with_rows_by_equal_steps() {
    slots_grow_with_rows(&CpuDevice::new(Some(2)));
    slots_grow_with_rows(&ReferenceDevice);
}

proptest! {
    /// The largest context fits and one block more does not.
    #[test]
    fn the_largest_context_is_the_largest(available in 0..40_000_000u64, narrow in any::<bool>()) {
        let model = synthetic(1, &Options::tiny()).model();
        let kv = if narrow { F16 } else { F32 };
        let total = |context| budget(&CpuDevice::new(Some(1)), &model, &Limits::for_context(context, 16, kv)).total();
        let largest = budget(&CpuDevice::new(Some(1)), &model, &Limits::for_context(1, 16, kv)).largest_context(available);
        prop_assert!(largest.is_multiple_of(KV_BLOCK as u64));
        prop_assert!(largest == 0 || total(largest as usize) <= available);
        prop_assert!(total(largest as usize + KV_BLOCK) > available);
        // Whatever context was looked at, the answer is the same.
        let of_large = budget(&CpuDevice::new(Some(1)), &model, &Limits::for_context(3000, 16, kv));
        prop_assert_eq!(of_large.largest_context(available), largest);
    }
}

#[test]
fn small_contexts_work() {
    let model = synthetic(1, &Options::tiny()).model();
    for context in 1..=40 {
        let limits = Limits::for_context(context, 4, F16);
        let mut driver = Driver::of_model(&CpuDevice::new(Some(1)), &model, limits);
        let ids = Random::new(1).tokens(context, model.spec.vocab);
        let id = driver.sequences.open();
        for ids in ids.chunks(4) {
            driver.feed(id, ids, Want::Last);
        }
    }
}

#[test]
fn a_cache_type_that_does_not_fit_is_refused_by_name() {
    let options = Options { head_dim: 10, kv_heads: 1, ..Options::tiny() };
    let model = synthetic(1, &options).model();
    let program = lower_for(&ReferenceDevice.caps(), &model.spec, &model.index).expect("lowers");
    let limits = Limits::for_context(8, 4, KvTypes { k: KvType::Q4, v: KvType::Tq3 });
    let error = CpuDevice::new(Some(1)).memory(std::slice::from_ref(&program), &model.weights, &limits);
    assert!(matches!(error, Err(PlanError::KvHeadSize { layer: 0, dim: 10, .. })), "{error:?}");
    let error =
        ReferenceDevice.compile(vec![program.clone()], &model.weights, limits).expect_err("10 is no multiple of 8");
    let expected = "layer 0 has values of 10 channels a head, which tq3 cannot store: it needs a multiple of 8; use one of f32, \
                    f16, q8, q4";
    assert_eq!(error.to_string(), expected);
    let narrow = plan::Caps { device: "a test", fusions: &[], kv: &[KvType::F16], places_experts: false };
    let error = limits.check(&narrow, &[program]).expect_err("only f16");
    assert_eq!(error.to_string(), "a test cannot keep keys and values as q4; use one of f16");
}

/// The bytes of cache and states announced are those allocated, in every type and family.
#[test]
fn what_is_announced_is_allocated() {
    use KvType::{F16, F32, Q4, Q8, Tq2, Tq3, Tq4};
    let device = CpuDevice::new(Some(1));
    let mut failures = Failures::default();
    for file in families().into_iter().filter(|f| f.file == "model.safetensors") {
        let model = Model::open(&file.path());
        let program = lower_for(&device.caps(), &model.spec, &model.index).unwrap_or_else(|e| panic!("{e}"));
        for (k, v) in [(F32, F16), (Q8, Q8), (Q4, Q8), (Tq4, Tq3), (Tq2, Q4)] {
            let limits = Limits::for_context(70, 16, KvTypes { k, v });
            let announced = budget(&device, &model, &limits).states;
            let exec = device.compile(vec![program.clone()], &model.weights, limits).unwrap_or_else(|e| panic!("{e}"));
            let wrong =
                (exec.state_bytes() as u64 != announced).then(|| format!("{} of {announced}", exec.state_bytes()));
            failures.check(format!("{}, {k}:{v}", file.model), wrong);
        }
    }
    failures.finish();
}

/// A type without kernels is refused when the model is compiled, naming the tensor, wherever it is used.
#[test]
fn a_storage_type_the_device_lacks_is_refused_by_name() {
    let model = synthetic(1, &Options { hidden: 256, ..Options::tiny() }).model();
    for dtype in [DType::F64, DType::I32, DType::Unsupported(UnsupportedType::IQ2XXS)] {
        for name in ["model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight"] {
            let mut model = model.clone();
            let shape = model.index.shape(name).expect("is there").to_vec();
            let bytes = vec![0; dtype.bytes_for(shape.iter().product()).expect("whole blocks")];
            model.weights.insert(Tensor::from_bytes(name, dtype, shape, bytes).expect("fits"));
            let device = CpuDevice::new(Some(1));
            let program = lower_for(&device.caps(), &model.spec, &model.index).expect("lowers");
            let error = device.compile(vec![program], &model.weights, Limits::for_context(8, 4, F32));
            let error = error.expect_err("no such kernel").to_string();
            assert!(error.contains(&format!("`{name}` is stored as {dtype}")), "{error}");
        }
    }
}

fn refusals<D: Device>(device: &D) {
    let model = synthetic(2, &Options::tiny()).model();
    let ids = Random::new(1).tokens(40, model.spec.vocab);
    let limits = Limits { rows: 8, wanted: 2, blocks: 2, kv: F32, sequences: 99, state_slots: 0 };
    let mut fresh = Driver::of_model(device, &model, limits);
    let mut driver = Driver::of_model(device, &model, limits);
    let (id, whole) = (driver.sequences.open(), fresh.sequences.open());
    driver.feed(id, &ids[..5], Want::Nothing);
    fresh.feed(whole, &ids[..5], Want::Nothing);

    type Refusal = fn(&ExecError) -> bool;
    let vocab = model.spec.vocab;
    let cases: [(&str, Vec<u32>, Want, usize, Refusal); 5] = [
        ("rows", vec![1; 9], Want::Last, vocab, |e| matches!(e, ExecError::TooManyRows { found: 9, limit: 8 })),
        ("wanted rows", vec![1; 3], Want::All, 3 * vocab, |e| {
            matches!(e, ExecError::TooManyRows { found: 3, limit: 2 })
        }),
        ("an unknown id", vec![1, 64], Want::Last, vocab, |e| {
            matches!(e, ExecError::TokenOutsideVocabulary { token: 64, vocab: 64 })
        }),
        ("a short buffer", vec![1], Want::Last, vocab - 1, |e| matches!(e, ExecError::OutputSize { .. })),
        ("no tokens", vec![], Want::Last, 0, |e| matches!(e, ExecError::Empty)),
    ];
    for (name, tokens, want, values, refusal) in cases {
        let tokens: Vec<_> = tokens.into_iter().map(TokenId).collect();
        let feed = Feed { sequence: id, tokens: &tokens, want };
        let error = driver.sequences.run(TRUNK, &[feed], &mut vec![0.0; values]).expect_err(name);
        assert!(refusal(&error), "{name}: {error}");
        assert_eq!((driver.sequences.position(id).ok(), driver.sequences.free_blocks()), (Some(5), 1), "{name}");
    }
    let found = driver.feed(id, &ids[5..8], Want::Last);
    assert_eq!(found, fresh.feed(whole, &ids[5..8], Want::Last));
}

#[test]
fn what_is_refused_changes_nothing() {
    refusals(&CpuDevice::new(Some(2)));
    refusals(&ReferenceDevice);
}
