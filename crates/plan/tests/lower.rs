//! What a model becomes: the program as text, and what is refused.

use testkit::{Architecture, Options, synthetic};
use turbospark_plan::{Caps, Fusion, KvType, PlanError, Step, WeightRole, lower, lower_for};

const CAPS: Caps =
    Caps { device: "a test", fusions: &[Fusion::Linears, Fusion::LinearAdd, Fusion::GateUpAct], kv: &[KvType::F32] };

fn tiny(architecture: Architecture) -> testkit::Model {
    synthetic(1, &Options::tiny().of(architecture)).model()
}

#[test]
fn plain_steps_over_fresh_slots() {
    let mut options = Options::tiny().of(Architecture::Synthetic);
    options.windows.truncate(1);
    let model = synthetic(1, &options).model();
    let program = lower(&model.spec, &model.index).expect("lowers");
    assert_eq!(program.to_string(), include_str!("snapshots/synthetic.txt"));
}

#[test]
fn fused_steps_over_shared_slots() {
    let model = tiny(Architecture::Qwen2);
    let program = lower_for(&CAPS, &model.spec, &model.index).expect("lowers");
    assert_eq!(program.to_string(), include_str!("snapshots/qwen2.txt"));
    let model = tiny(Architecture::Gemma3);
    let program = lower_for(&CAPS, &model.spec, &model.index).expect("lowers");
    assert_eq!(program.to_string(), include_str!("snapshots/gemma3.txt"));
}

#[test]
fn a_tied_table_is_one_weight_used_as_a_matrix() {
    let model = tiny(Architecture::Qwen2);
    let program = lower(&model.spec, &model.index).expect("lowers");
    let (Some(Step::Embed { table, .. }), Some(Step::Linear { part, .. })) =
        (program.steps.first(), program.steps.last())
    else {
        panic!("{program}");
    };
    assert_eq!((*table, program.weight(*table).role), (part.weight, WeightRole::Matrix));

    let model = tiny(Architecture::Llama);
    let program = lower(&model.spec, &model.index).expect("lowers");
    assert_eq!(program.weights[0].role, WeightRole::Table);
}

/// A spec and a checkpoint that do not fit each other.
#[test]
fn tensors_are_checked_again() {
    let model = tiny(Architecture::Llama);
    for (index, message) in [
        (tiny(Architecture::Synthetic).index, "tensor `model.embed_tokens.weight` is missing from the checkpoint"),
        (
            synthetic(1, &Options { inner: 16, ..Options::tiny() }.of(Architecture::Llama)).model().index,
            "tensor `model.layers.0.mlp.gate_proj.weight` has shape [16, 32], expected [48, 32]",
        ),
    ] {
        let error = lower(&model.spec, &index).expect_err("another model");
        assert!(matches!(error, PlanError::MissingTensor { .. } | PlanError::BadShape { .. }));
        assert_eq!(error.to_string(), message);
    }
}
