//! Every plain step × storage type × shape, on each device against the reference device.

use cpu::CpuDevice;
use cpu::isa::Isa;
use plan::reference::ReferenceDevice;
use plan::{Device, KvType, KvTypes};
use turbospark_conformance::{Failures, every_case, steps};

fn suite<D: Device>(device: &D) {
    let mut failures = Failures::default();
    steps(device, &mut failures);
    failures.finish();
}

#[test]
fn reference() {
    suite(&ReferenceDevice);
}

#[test]
fn cpu() {
    suite(&CpuDevice::new(Some(2)));
}

#[test]
fn cpu_scalar() {
    suite(&CpuDevice::new(Some(3)).with_isa(Isa::SCALAR));
}

/// Instruction sets are free to differ in bits, but so far none does; a change here should be a decision.
#[test]
fn instruction_sets_agree_bit_for_bit() {
    let (best, scalar) = (CpuDevice::new(Some(2)), CpuDevice::new(Some(2)).with_isa(Isa::SCALAR));
    let mut failures = Failures::default();
    for case in every_case() {
        let f16 = KvTypes::both(KvType::F16);
        failures.same(&case.name, &case.outputs(&best, f16), &case.outputs(&scalar, f16));
    }
    failures.finish();
}
