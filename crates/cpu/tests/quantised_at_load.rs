//! Checkpoints rounded to a smaller type while they are loaded, family by family.

use foundation::TokenId;
use model::Source;
use plan::reference::ReferenceDevice;
use plan::{
    Device, Exec, Feed, KvType, KvTypes, Limits, Passes, PlanError, Program, ProgramId, Sequences, Want, WeightRole,
    WeightUse, lower_for, lower_with,
};
use testkit::{GoldenFile, Model, families, nmse};
use turbospark_cpu::CpuDevice;
use weights::{DType, Tensor, Weights};

fn program(device: &impl Device, model: &Model, to: DType) -> Result<Program, PlanError> {
    lower_with(&device.caps(), &model.spec, &model.index, &Passes { quantise: Some(to), ..Passes::default() })
}

/// The logits of all the golden prompt's positions, `chunk` tokens at a time.
fn logits<D: Device>(device: &D, program: Program, weights: &Weights, golden: &GoldenFile, chunk: usize) -> Vec<f32> {
    let tokens: Vec<_> = golden.expected().tokens.iter().copied().map(TokenId).collect();
    let rows = tokens.len();
    let limits = Limits { wanted: rows, ..Limits::for_context(rows, rows, KvTypes::both(KvType::F32)) };
    let exec = device.compile(vec![program], weights, limits).unwrap_or_else(|e| panic!("{golden:?}: {e}"));
    let vocab = exec.vocab(ProgramId(0));
    let mut sequences = Sequences::new(exec);
    let sequence = sequences.open();
    let mut all = Vec::new();
    for tokens in tokens.chunks(chunk) {
        let mut logits = vec![0.0; tokens.len() * vocab];
        sequences.run(ProgramId(0), &[Feed { sequence, tokens, want: Want::All }], &mut logits).expect("runs");
        all.extend(logits);
    }
    all
}

#[test]
fn every_family_runs_rounded() {
    let mut failures = Vec::new();
    for golden in families().into_iter().filter(|g| g.file == "model.safetensors") {
        let (model, device) = (Model::open(&golden.path()), CpuDevice::new(Some(2)));
        // Tiny random models take small changes far: a rounded weight makes near ties of a router fall otherwise.
        for (to, bound) in [(DType::Q8_0, 0.3), (DType::Q4_0, 1.2)] {
            let rounded = program(&device, &model, to).unwrap_or_else(|e| panic!("{golden:?}: {e}"));
            let mut experts = rounded.weights.iter().filter(|w| matches!(w.role, WeightRole::Experts(_)));
            let fits = |w: &WeightUse| w.shape[1].is_multiple_of(to.block_len());
            assert!(experts.all(|w| w.to == fits(w).then_some(to)), "{golden:?}: experts too");
            let whole = logits(&device, rounded.clone(), &model.weights, &golden, usize::MAX);
            let by_seven = logits(&device, rounded, &model.weights, &golden, 7);
            let oracle = program(&ReferenceDevice, &model, to).expect("as above");
            let oracle = logits(&ReferenceDevice, oracle, &model.weights, &golden, usize::MAX);
            let (error, devices) = (nmse(&whole, &golden.expected().logits), nmse(&whole, &oracle));
            println!("{:20} {to}: NMSE {error:.1e}, between devices {devices:.1e}", golden.model);
            if error.is_nan() || error > bound {
                failures.push(format!("{} {to}: NMSE {error}", golden.model));
            }
            if devices.is_nan() || devices > 0.2 {
                failures.push(format!("{} {to}: NMSE between devices {devices}", golden.model));
            }
            if whole.iter().zip(&by_seven).any(|(a, b)| a.to_bits() != b.to_bits()) {
                failures.push(format!("{} {to}: chunks of 7", golden.model));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

fn transposes(source: &Source) -> bool {
    match source {
        Source::Transpose { .. } => true,
        Source::Rows { of, .. } | Source::Column(of) | Source::PlusOne(of) | Source::NegExp(of) => transposes(of),
        Source::Stack(parts) => parts.iter().any(transposes),
        Source::Tensor(_) | Source::Mxfp4 { .. } => false,
    }
}

/// Rounding while loading is what writing a rounded checkpoint and loading that would be.
#[test]
fn the_bits_are_those_of_a_rounded_checkpoint() {
    let mut compared = 0;
    for golden in families().into_iter().filter(|g| g.file == "model.safetensors") {
        let (model, device) = (Model::open(&golden.path()), CpuDevice::new(Some(2)));
        for to in [DType::Q8_0, DType::IQ4NL] {
            let program = program(&device, &model, to).expect("lowers");
            let rounded: Vec<_> = program.weights.iter().filter(|w| w.to.is_some()).collect();
            // A transposed matrix has other rows in the file than in the program.
            if program.weights.iter().any(|w| w.role != WeightRole::Vector && transposes(&w.source)) {
                continue;
            }
            compared += 1;
            let names: Vec<_> = rounded.iter().flat_map(|w| w.source.tensors()).collect();
            let write = |t: &Tensor| if names.contains(&t.name()) { t.quantised(to) } else { Ok(t.clone()) };
            let written: Weights = model.weights.iter().map(|t| write(t).expect("rounds")).collect();
            let plain = lower_for(&device.caps(), &model.spec, &model.index).expect("lowers");
            let expected = logits(&device, plain, &written, &golden, usize::MAX);
            let found = logits(&device, program, &model.weights, &golden, usize::MAX);
            assert!(found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{golden:?} {to}");
        }
    }
    assert!(compared > 30, "{compared} checkpoints");
}

#[test]
fn what_cannot_be_rounded_is_refused() {
    let quantised = testkit::quantised().into_iter().find(|g| g.file == "model-Q4_0.gguf").expect("golden");
    let model = Model::open(&quantised.path());
    let message = |to| program(&CpuDevice::new(Some(1)), &model, to).expect_err("is refused").to_string();
    let refused = message(DType::Q8_0);
    assert!(refused.contains("Q8_0") && refused.contains("found Q4_0"), "{refused}");
    assert!(message(DType::IQ3S).contains("only to Q8_0, Q4_0"), "{}", message(DType::IQ3S));
}
