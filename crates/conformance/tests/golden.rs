//! Logits of every position with a narrow cache, and for every quantised type.

use cpu::CpuDevice;
use model::{Ffn, Layer};
use plan::reference::ReferenceDevice;
use plan::{Device, KvType, KvTypes, Limits};
use testkit::{Expected, Model, families, nmse, quantised, worst};
use turbospark_conformance::{Driver, Failures};

fn logits<D: Device>(device: &D, model: &Model, expected: &Expected, kv: KvType) -> Vec<f32> {
    let rows = expected.tokens.len();
    let limits = Limits { wanted: rows, ..Limits::for_context(rows, rows, KvTypes::both(kv)) };
    Driver::of_model(device, model, limits).logits(&expected.tokens, rows)
}

/// Dense models only: a value rounded in the cache may choose another expert or another block of keys. Gemma 4, whose
/// scores are not scaled down, feels the rounding most.
#[test]
fn narrow_caches_match() {
    let mut failures = Failures::default();
    for file in families() {
        let (model, expected) = (Model::open(&file.path()), file.expected());
        let dense = |layer: &Layer| matches!(layer.ffn.op, Ffn::Gated(_));
        if !model.spec.layers.iter().all(dense) {
            continue;
        }
        let narrow = logits(&CpuDevice::new(Some(2)), &model, &expected, KvType::F16);
        let name = format!("{}/{} on cpu with an f16 cache", file.model, file.file);
        failures.within(name, nmse(&narrow, &expected.logits), 3e-5);
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
