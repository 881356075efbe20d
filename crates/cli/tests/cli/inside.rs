//! `--steer` and `--capture`.

use crate::support::Desk;
use testkit::golden;
use weights::Tensor;
use weights::safetensors::{self, SafetensorsFile};

const IDS: &str = "1,2,3,4,5,6,7,8,9";

/// A desk with a vector for layer 1 of the golden llama, and that model's path.
fn desk() -> (Desk, String) {
    let (desk, model) = (Desk::new(), golden("llama").join("model.safetensors"));
    let file = SafetensorsFile::open(&model).expect("a model");
    let norm = file.weights().require("model.norm.weight").expect("a norm");
    let direction = Tensor::from_f32("layer.1", vec![norm.elements()], &vec![0.5; norm.elements()]);
    safetensors::write(&desk.path().join("v.safetensors"), &[direction], &Default::default()).expect("written");
    (desk, model.display().to_string())
}

#[test]
fn steering_changes_logits_and_an_alpha_of_zero_does_not() {
    let (desk, model) = desk();
    let logits = |flags: &[&str]| {
        let call = [&["logits", "--model", &model, "--tokens", IDS], flags].concat();
        desk.run(&call).success()
    };
    let plain = logits(&[]);
    assert_eq!(logits(&["--steer", "v.safetensors:0:ablate"]), plain);
    assert_eq!(logits(&["--steer", "v.safetensors:2", "--steer-threshold", "1e30"]), plain);
    for flags in ["v.safetensors", "v.safetensors:-3:add:1", "v.safetensors:1:clamp=4", "v.safetensors:1:renorm"] {
        assert_ne!(logits(&["--steer", flags]), plain, "{flags}");
    }
    let plan = desk.run(&["inspect", &model, "--plan", "--json", "--steer", "v.safetensors:2"]).json();
    assert!(plan["plan"].as_str().is_some_and(|plan| plan.contains("steer ")), "{plan}");
}

#[test]
fn what_cannot_be_steered_or_captured_is_refused() {
    let (desk, model) = desk();
    let script = desk.script(r#"{"text": "x"}"#);
    for (flags, code, texts) in [
        (["--steer", "v.safetensors:1:push"], 2, &["mode `push`"][..]),
        (["--steer", "v.safetensors:1:add:0"], 1, &["v.safetensors", "layer 0 was asked for"]),
        (["--steer", "absent.gguf"], 1, &["cannot read absent.gguf"]),
        (["--steer-threshold", "1"], 2, &["--steer"]),
        (["--capture", "everything=f"], 2, &["residual, router, ffn"]),
        (["--capture", "router=f"], 1, &["router cannot be captured"]),
        (["--capture", "ffn=no/such/folder/f"], 1, &["cannot write no/such/folder/f"]),
    ] {
        let call = [&["logits", "--model", &model, "--tokens", IDS], &flags[..]].concat();
        desk.run(&call).fails(code, texts);
    }
    let twice = ["logits", "--model", &model, "--tokens", IDS, "--capture", "ffn=f", "--capture", "residual=f"];
    desk.run(&twice).fails(1, &["two captures go to f"]);
    // The file is refused before anyone looks for the model.
    desk.run(&["complete", "no-such-model", "--prompt", "x", "--capture", "ffn=no/such/folder/f"])
        .fails(1, &["cannot write no/such/folder/f"]);
    desk.run(&["complete", &script, "--prompt", "x", "--steer", "v.safetensors"])
        .fails(1, &["a scripted model has no residual stream"]);
}

#[test]
fn a_capture_is_a_file_and_its_description() {
    let (desk, model) = desk();
    let call = ["logits", "--model", &model, "--tokens", IDS, "--capture", "residual=r", "--capture", "ffn=f"];
    let outcome = desk.run(&call);
    assert!(outcome.err.contains("captured residual to r, 9 positions"), "{outcome:?}");
    outcome.success();
    let file = SafetensorsFile::open(&desk.path().join("r")).expect("a safetensors file");
    assert_eq!(file.weights().require("layer.1").expect("a layer").rows(), 9);
    let description = std::fs::read(desk.path().join("f.json")).expect("a description");
    let description: serde_json::Value = serde_json::from_slice(&description).expect("JSON");
    assert_eq!((&description["what"], &description["positions"]), (&"ffn".into(), &9.into()));
    assert_eq!(description["model"], model);
}
