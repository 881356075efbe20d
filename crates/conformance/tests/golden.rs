//! Logits of every position against the publishers' reference code, for every family and quantised type.

use cpu::CpuDevice;
use plan::reference::ReferenceDevice;
use plan::{Device, KvType, KvTypes, Limits};
use testkit::{Expected, Model, families, nmse, quantised, worst};
use turbospark_conformance::{Driver, Failures};
use weights::Tensor;

fn logits<D: Device>(device: &D, model: &Model, expected: &Expected, kv: KvType) -> Vec<f32> {
    let limits = Limits { rows: 72, wanted: 72, blocks: 3, kv: KvTypes::both(kv) };
    Driver::of_model(device, model, limits).logits(&expected.tokens, 72)
}

#[test]
fn families_match() {
    let mut failures = Failures::default();
    for file in families() {
        let (model, expected) = (Model::open(&file.path()), file.expected());
        let name = |device: &str| format!("{}/{} on {device}", file.model, file.file);
        let reference = logits(&ReferenceDevice, &model, &expected, KvType::F32);
        failures.within(name("reference"), worst(&reference, &expected.logits).into(), 1e-3);
        let cpu = logits(&CpuDevice::new(Some(2)), &model, &expected, KvType::F32);
        failures.within(name("cpu"), worst(&cpu, &expected.logits).into(), 1e-3);
        let narrow = logits(&CpuDevice::new(Some(2)), &model, &expected, KvType::F16);
        failures.within(name("cpu with an f16 cache"), nmse(&narrow, &expected.logits), 1e-5);
    }
    failures.finish();
}

#[test]
fn quantised_types_match() {
    let mut failures = Failures::default();
    for file in quantised() {
        let (model, expected) = (Model::open(&file.path()), file.expected());
        let name = |device: &str| format!("{}/{} on {device}", file.model, file.file);
        let reference = logits(&ReferenceDevice, &model, &expected, KvType::F32);
        let error = worst(&reference, &expected.logits);
        let cpu = logits(&CpuDevice::new(Some(2)), &model, &expected, KvType::F32);
        println!("{:18} reference max {error:.1e}, cpu nmse {:.1e}", file.file, nmse(&cpu, &expected.logits));
        failures.within(name("reference"), error.into(), 1e-4);
        let limit = if file.file.contains("F16") { 1e-9 } else { 1e-3 };
        failures.within(name("cpu"), nmse(&cpu, &expected.logits), limit);
    }
    failures.finish();
}

/// A tensor that is loaded but never used would hide behind matching logits of a model where it hardly matters.
#[test]
fn every_tensor_moves_the_logits() {
    let mut failures = Failures::default();
    for file in families() {
        let (model, expected) = (Model::open(&file.path()), file.expected());
        let device = CpuDevice::new(Some(1));
        let before = logits(&device, &model, &expected, KvType::F32);
        for tensor in model.weights.iter() {
            let mut values = tensor.to_f32().unwrap_or_else(|e| panic!("{e}"));
            values.iter_mut().enumerate().for_each(|(i, x)| *x = *x * 1.5 + 0.01 * (i % 7) as f32 + 0.02);
            let mut changed = model.clone();
            changed.weights.insert(Tensor::from_f32(tensor.name(), tensor.shape().to_vec(), &values));
            let after = logits(&device, &changed, &expected, KvType::F32);
            let moved = nmse(&after, &before);
            let still = (moved.is_nan() || moved < 1e-9).then(|| format!("logits moved by {moved:.1e} only"));
            failures.check(format!("{}/{}: {}", file.model, file.file, tensor.name()), still);
        }
    }
    failures.finish();
}
