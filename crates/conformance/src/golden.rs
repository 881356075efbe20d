//! The golden models on a device: close to the publishers' logits, layer by layer, in every container and storage type.

use crate::{Failures, TRUNK};
use foundation::TokenId;
use plan::{Device, Exec, Feed, KvType, KvTypes, Limits, Outputs, Passes, Place, Point, Sequences, Want, lower_with};
use testkit::{Expected, GoldenFile, Model, families, nmse, quantised};

/// Logits of all tokens and the residual stream after each layer.
fn whole<D: Device>(device: &D, golden: &GoldenFile, expected: &Expected) -> (Vec<f32>, Vec<Vec<f32>>) {
    let model = Model::open(&golden.path());
    let residual = |place: Place| place.point == Point::Residual;
    let passes = Passes { tapped: Some(&residual), ..Passes::default() };
    let program = lower_with(&device.caps(), &model.spec, &model.index, &passes).unwrap_or_else(|e| panic!("{e}"));
    let rows = expected.tokens.len();
    let limits = Limits { wanted: rows, ..Limits::for_context(2 * rows, rows, KvTypes::both(KvType::F32)) };
    let exec = device.compile(vec![program], &model.weights, limits).unwrap_or_else(|e| panic!("{e}"));
    let mut sequences = Sequences::new(exec);
    let tokens: Vec<_> = expected.tokens.iter().copied().map(TokenId).collect();
    let mut logits = vec![0.0; rows * expected.vocab];
    let mut layers = vec![Vec::new(); sequences.exec().taps(TRUNK).len()];
    let feed = Feed { sequence: sequences.open(), tokens: &tokens, want: Want::All };
    let outputs = Outputs { logits: &mut logits, taps: &mut layers };
    sequences.run_tapped(TRUNK, &[feed], outputs).unwrap_or_else(|e| panic!("{e}"));
    (logits, layers)
}

/// Every family's models.
///
/// # Panics
/// If the device refuses a model or fails, or a file is not there.
pub fn golden<D: Device>(device: &D, failures: &mut Failures) {
    for file in families() {
        let (logits, layers) = whole(device, &file, &file.expected());
        let name = format!("{}/{}", file.model, file.file);
        let error = file.errors(&logits).into_iter().fold(0.0, f32::max);
        failures.within(&name, error.into(), 1e-3);
        let off = file.layers_off(&layers);
        failures.check(format!("{name}, layers"), (!off.is_empty()).then(|| format!("off by {off:?}")));
    }
    for file in quantised() {
        let expected = file.expected();
        let limit = if file.file.contains("F16") { 1e-9 } else { 1e-3 };
        failures.within(file.file, nmse(&whole(device, &file, &expected).0, &expected.logits), limit);
    }
}
