//! Every golden model on the reference device: the logits of all positions against the publisher's code.

use foundation::TokenId;
use testkit::{Model, families};
use turbospark_plan::reference::ReferenceDevice;
use turbospark_plan::{Device, Feed, KvType, KvTypes, Limits, ProgramId, Sequences, Want, lower_for};

#[test]
fn all_positions_match_the_reference_logits() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut failures = Vec::new();
    for golden in families().into_iter().filter(|g| g.model.contains(&only)) {
        let (model, expected) = (Model::open(&golden.path()), golden.expected());
        let rows = expected.tokens.len();
        let program = lower_for(&ReferenceDevice.caps(), &model.spec, &model.index).unwrap_or_else(|e| panic!("{e}"));
        let limits = Limits { wanted: rows, ..Limits::for_context(rows, rows, KvTypes::both(KvType::F32)) };
        let exec = ReferenceDevice.compile(vec![program], &model.weights, limits).unwrap_or_else(|e| panic!("{e}"));
        let mut sequences = Sequences::new(exec);
        let sequence = sequences.open();
        let mut logits = vec![0.0; expected.logits.len()];
        let tokens: Vec<_> = expected.tokens.iter().copied().map(TokenId).collect();
        let feed = Feed { sequence, tokens: &tokens, want: Want::All };
        sequences.run(ProgramId(0), &[feed], &mut logits).expect("runs");
        let error = golden.errors(&logits).into_iter().fold(0.0, f32::max);
        println!("{:20} {:24} reference max {error:.1e}", golden.model, golden.file);
        if error.is_nan() || error > 1e-3 {
            failures.push(format!("{}/{}: {error}", golden.model, golden.file));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
