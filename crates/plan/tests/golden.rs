//! Every golden model on the reference device: the logits of all positions against the publisher's code, and the same
//! bits however the prompt is cut up.

use foundation::TokenId;
use testkit::{Model, families};
use turbospark_plan::reference::{ReferenceDevice, ReferenceExec};
use turbospark_plan::{
    Device, Feed, KvType, KvTypes, Limits, Outputs, Passes, Place, Point, ProgramId, SequenceId, Sequences, Want,
    lower_with,
};

/// The logits of all positions, `chunk` tokens at a time.
fn logits(
    sequences: &mut Sequences<ReferenceExec>,
    sequence: SequenceId,
    tokens: &[TokenId],
    (chunk, vocab): (usize, usize),
) -> Vec<f32> {
    sequences.rewind(sequence, 0).expect("is open");
    let run = |tokens: &[TokenId]| {
        let mut logits = vec![0.0; tokens.len() * vocab];
        let feed = Feed { sequence, tokens, want: Want::All };
        sequences.run(ProgramId(0), &[feed], &mut logits).expect("runs");
        logits
    };
    tokens.chunks(chunk).flat_map(run).collect()
}

#[test]
fn all_positions_match_the_reference_logits() {
    let mut failures = Vec::new();
    for golden in families() {
        let (model, expected) = (Model::open(&golden.path()), golden.expected());
        let (rows, vocab) = (expected.tokens.len(), expected.vocab);
        let residual = |place: Place| place.point == Point::Residual;
        let passes = Passes { tapped: Some(&residual), ..Passes::default() };
        let program =
            lower_with(&ReferenceDevice.caps(), &model.spec, &model.index, &passes).unwrap_or_else(|e| panic!("{e}"));
        let limits = Limits { wanted: rows, ..Limits::for_context(rows, rows, KvTypes::both(KvType::F32)) };
        let exec = ReferenceDevice.compile(vec![program], &model.weights, limits).unwrap_or_else(|e| panic!("{e}"));
        let mut sequences = Sequences::new(exec);
        let sequence = sequences.open();
        let tokens: Vec<_> = expected.tokens.iter().copied().map(TokenId).collect();
        let (mut whole, mut layers) = (vec![0.0; rows * vocab], vec![Vec::new(); model.spec.layers.len()]);
        let feed = Feed { sequence, tokens: &tokens, want: Want::All };
        let outputs = Outputs { logits: &mut whole, taps: &mut layers };
        sequences.run_tapped(ProgramId(0), &[feed], outputs).expect("runs");
        for (layer, error) in golden.layers_off(&layers) {
            failures.push(format!("{}/{}: layer {layer} is off by {error}", golden.model, golden.file));
        }
        let error = golden.errors(&whole).into_iter().fold(0.0, f32::max);
        println!("{:20} {:24} reference max {error:.1e}", golden.model, golden.file);
        if error.is_nan() || error > 1e-3 {
            failures.push(format!("{}/{}: {error}", golden.model, golden.file));
        }
        for chunk in [1, 7] {
            if logits(&mut sequences, sequence, &tokens, (chunk, vocab)) != whole {
                failures.push(format!("{}/{}: chunks of {chunk}", golden.model, golden.file));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
