//! Logits of every position for every quantised type, against f32 activations on the same weights.

use cpu::CpuDevice;
use plan::reference::ReferenceDevice;
use plan::{Device, KvType, KvTypes, Limits};
use testkit::{Expected, Model, nmse, quantised, worst};
use turbospark_conformance::{Driver, Failures};

fn logits<D: Device>(device: &D, model: &Model, expected: &Expected, kv: KvType) -> Vec<f32> {
    let limits = Limits { rows: 72, wanted: 72, blocks: 3, kv: KvTypes::both(kv), state_slots: 8 };
    Driver::of_model(device, model, limits).logits(&expected.tokens, 72)
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
