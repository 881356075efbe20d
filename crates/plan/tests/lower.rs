//! What a model becomes: the program as text, and what is refused.

use model::{Mixer, Qkv};
use testkit::{Architecture, Model, Options, golden, synthetic};
use turbospark_plan::{
    Caps, Fusion, KvType, Passes, PlanError, Point, Program, Step, WeightRole, lower, lower_for, lower_with,
};

const CAPS: Caps = Caps {
    device: "a test",
    fusions: &[Fusion::Linears, Fusion::LinearAdd, Fusion::GateUpAct],
    kv: &[KvType::F32],
    places_experts: false,
};

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
fn what_nobody_asked_to_see_leaves_no_trace() {
    for model in [tiny(Architecture::Gemma3), Model::open(&golden("mixtral").join("model.safetensors"))] {
        let plain = lower_for(&CAPS, &model.spec, &model.index).expect("lowers");
        let mut tapped =
            lower_with(&CAPS, &model.spec, &model.index, &Passes { tapped: Some(&|_| true), ..Passes::default() })
                .expect("lowers");
        assert!(!plain.steps.iter().any(|s| matches!(s, Step::Mark { .. } | Step::Tap { .. })));
        assert!(plain.taps.is_empty());
        let layers = model.spec.layers.len();
        let residuals = tapped.taps.iter().filter(|t| t.place.point == Point::Residual);
        assert_eq!(residuals.map(|t| t.place.layer).collect::<Vec<_>>(), (0..layers).collect::<Vec<_>>());
        assert_eq!(tapped.taps.len(), 2 * layers, "a residual stream and a route or an inner activation a layer");
        let kinds = |p: &Program| p.steps.iter().map(std::mem::discriminant).collect::<Vec<_>>();
        tapped.steps.retain(|s| !matches!(s, Step::Tap { .. }));
        assert_eq!(kinds(&tapped), kinds(&plain), "taps are in the way of no fusion");
    }
}

/// What attention reads must not have been given back: a cache keeps what the widest of its readers sees.
#[test]
fn a_shared_cache_keeps_what_its_widest_reader_sees() {
    let mut model = Model::open(&golden("gemma4_e").join("model.safetensors"));
    for widened in [false, true] {
        for layer in &mut model.spec.layers {
            if let Mixer::Attention(a) = &mut layer.mixer.op
                && matches!(a.qkv, Qkv::SharedWith { .. })
                && widened
            {
                a.window = a.window.map(|w| w + 5);
            }
        }
        let program = lower(&model.spec, &model.index).expect("lowers");
        let mut shared = 0;
        for step in &program.steps {
            let Step::Attend { state, window, .. } = step else { continue };
            let kept = program.state(*state).kv().expect("a cache").window;
            assert!(kept.is_none_or(|kept| window.is_some_and(|w| w <= kept)), "{window:?} of {kept:?}");
            shared += usize::from(kept != *window);
        }
        assert_eq!(shared > 0, widened);
    }
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
