//! Files of directions that fit or do not, and files of what was seen inside.

use foundation::TokenId;
use plan::{KvType, KvTypes, Want};
use std::path::{Path, PathBuf};
use testkit::golden;
use turbospark_runtime::{
    Capture, Edit, LayerSet, LogitProducer, OpenOptions, RuntimeError, ScriptedLogitProducer, SteerFile, SteerMode,
    open_logits,
};
use weights::gguf::Value;
use weights::gguf::write::GgufWriter;
use weights::safetensors::{self, SafetensorsFile};
use weights::{DType, Tensor};

/// The golden llama: 4 layers, 64 channels.
fn llama() -> PathBuf {
    golden("llama").join("model.safetensors")
}

fn width(model: &Path) -> (usize, usize) {
    let spec = turbospark_runtime::ModelFiles::open(model).expect("opens").spec;
    (spec.layers.len(), spec.hidden)
}

#[test]
fn what_a_steer_flag_says() {
    let file = |text: &str| text.parse::<SteerFile>();
    for (text, name, mode, strength, layers) in [
        ("v.gguf", "v.gguf", SteerMode::Add, 1.0, None),
        ("v.gguf:-2.5", "v.gguf", SteerMode::Add, -2.5, None),
        ("v.gguf:1:ablate", "v.gguf", SteerMode::Ablate, 1.0, None),
        ("v:0:renorm:3-5,7", "v", SteerMode::Renorm, 0.0, Some("3-5,7")),
        ("a:b.gguf:1:clamp:0", "a:b.gguf", SteerMode::Clamp { target: 0.0 }, 1.0, Some("0")),
        ("v:0.5:clamp=-3", "v", SteerMode::Clamp { target: -3.0 }, 0.5, None),
    ] {
        let layers = layers.map(|l| l.parse::<LayerSet>().expect("layers"));
        let edit = Edit { mode, strength, threshold: 0.0 };
        assert_eq!(file(text).expect(text), SteerFile { file: name.into(), edit, layers }, "{text}");
    }
    for (text, expected) in [
        ("v:much", "`much` is no number"),
        ("v:nan", "finite"),
        ("v:inf:add", "finite"),
        (":1", "no name"),
        ("v:1:push", "mode `push` is not one of add, ablate, clamp, renorm"),
        ("v:1:clamp=x", "finite"),
        ("v:1:add:5-3", "expected layers"),
        ("v:1:add:", "expected layers"),
        ("v:1:add:-1", "expected layers"),
    ] {
        let error = file(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    for (text, expected) in [("logits=f", "residual, router, ffn"), ("router", "no name"), ("ffn=", "no name")] {
        let error = text.parse::<Capture>().expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

fn options(steer: &[String], capture: &[Capture]) -> OpenOptions {
    OpenOptions {
        threads: Some(2),
        context: Some(96),
        kv: KvTypes::both(KvType::F32).into(),
        all_logits: true,
        steer: steer.iter().map(|s| s.parse().expect("well formed")).collect(),
        capture: capture.iter().map(|c| c.kind).collect(),
        ..OpenOptions::default()
    }
}

fn logits(producer: &mut dyn LogitProducer, chunk: usize) -> Vec<f32> {
    let tokens: Vec<_> = (0..40).map(|i| TokenId(i * 5 % 200)).collect();
    let mut all = Vec::new();
    for tokens in tokens.chunks(chunk) {
        let mut logits = vec![0.0; tokens.len() * producer.vocab()];
        producer.produce(tokens, Want::All, &mut logits).expect("runs");
        all.extend(logits);
    }
    all
}

#[test]
fn a_vector_is_the_same_from_either_container() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, hidden) = width(&llama());
    let values: Vec<f32> = (0..hidden).map(|i| (i as f32).sin()).collect();
    let (gguf, safe) = (folder.path().join("v.gguf"), folder.path().join("v.safetensors"));
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", Value::String("controlvector".into()));
    writer.tensor(Tensor::from_f32("direction.1", vec![hidden], &values));
    writer.write(&gguf).expect("written");
    safetensors::write(&safe, &[Tensor::from_f32("layer.1", vec![hidden], &values)], &Default::default())
        .expect("written");
    let run = |steer: &[String]| {
        let (mut producer, _) = open_logits(llama(), &options(steer, &[])).unwrap_or_else(|e| panic!("{e}"));
        logits(&mut *producer, 40)
    };
    let [from_gguf, from_safe, plain] =
        [run(&[format!("{}:2", gguf.display())]), run(&[format!("{}:2:add:1", safe.display())]), run(&[])];
    assert_eq!(from_gguf, from_safe);
    assert_ne!(from_gguf, plain);
    // Two vectors apply one after the other.
    let twice = run(&[format!("{}:1", gguf.display()), format!("{}:1", safe.display())]);
    assert!(testkit::nmse(&twice, &from_gguf) < 1e-9, "adding twice the half is adding the whole");
}

#[test]
fn vectors_that_do_not_fit_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let (layers, hidden) = width(&llama());
    let path = folder.path().join("v.safetensors");
    let ones = vec![1.0; hidden];
    let with = |at: usize, value: f32| ones.iter().enumerate().map(|(i, x)| if i == at { value } else { *x }).collect();
    let beyond = format!("layer.{layers}");
    let cases: [(&str, Vec<f32>, &str, &[&str]); 9] = [
        ("layer.1", vec![1.0; hidden + 1], "", &["layer 1 has", "hidden width is"]),
        ("layer.1", with(7, f32::NAN), "", &["layer 1 holds NaN at 7"]),
        ("layer.1", with(2, f32::INFINITY), "", &["layer 1 holds inf at 2"]),
        ("layer.0", vec![0.0; hidden], "", &["layer 0 has length 0"]),
        ("layer.0", vec![1e30; hidden], "", &["layer 0 has length inf"]),
        ("layer.1", ones.clone(), ":1:add:0-1", &["layer 0 was asked for", "directions for 1"]),
        (&beyond, ones.clone(), "", &["the model has", "name the layers"]),
        ("layer.x", ones.clone(), "", &["direction.N or layer.N, found `layer.x`"]),
        ("model.weight", ones.clone(), "", &["found `model.weight`"]),
    ];
    for (name, values, rest, expected) in cases {
        safetensors::write(&path, &[Tensor::from_f32(name, vec![values.len()], &values)], &Default::default())
            .expect("written");
        let error = refusal(&llama(), &options(&[format!("{}{rest}", path.display())], &[]));
        for text in expected.iter().chain(&["v.safetensors"]) {
            assert!(error.contains(text), "{name}{rest}: {error}");
        }
    }
    let gguf = folder.path().join("model.gguf");
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", Value::String("llama".into()));
    writer.tensor(Tensor::from_f32("direction.1", vec![hidden], &ones)).write(&gguf).expect("written");
    let error = refusal(&llama(), &options(&[gguf.display().to_string()], &[]));
    assert!(error.contains("expected general.architecture `controlvector`, found `llama`"), "{error}");
    let error = refusal(&llama(), &options(&["nowhere.gguf".to_owned()], &[]));
    assert!(error.contains("cannot read nowhere.gguf"), "{error}");
    let error = refusal(Path::new("scripted:any"), &options(&["v".to_owned()], &[]));
    assert!(error.contains("a scripted model has no residual stream"), "{error}");
}

fn refusal(model: &Path, options: &OpenOptions) -> String {
    match open_logits(model, options) {
        Ok(_) => panic!("opened"),
        Err(error) => error.to_string(),
    }
}

/// Writes one capture of the golden model, fed in chunks after a detour that is rewound.
fn captured(model: &str, capture: &Capture, chunk: usize) -> (SafetensorsFile, serde_json::Value) {
    let path = golden(model).join("model.safetensors");
    let opened = open_logits(&path, &options(&[], std::slice::from_ref(capture)));
    let (mut producer, _) = opened.unwrap_or_else(|e| panic!("{model}: {e}"));
    producer.produce(&[TokenId(9), TokenId(8), TokenId(7)], Want::Nothing, &mut []).expect("runs");
    producer.rewind(0);
    logits(&mut *producer, chunk);
    capture.check_writable().expect("can be written");
    assert_eq!(capture.write(model, &*producer).expect("written"), 40);
    let json = std::fs::read(capture.description()).expect("a description");
    (SafetensorsFile::open(&capture.file).expect("a file"), serde_json::from_slice(&json).expect("JSON"))
}

#[test]
fn captures_are_the_same_in_chunks_and_token_by_token() {
    let folder = tempfile::tempdir().expect("a folder");
    for (model, what) in [
        ("llama", "residual"),
        ("llama", "ffn"),
        ("mixtral", "router"),
        ("gemma4_moe", "router"),
        ("gemma4_moe", "ffn"),
        ("qwen4_exp", "residual"),
    ] {
        let capture: Capture = format!("{what}={}", folder.path().join("c").display()).parse().expect("well formed");
        let (single, description) = captured(model, &capture, 1);
        let all: Vec<_> = single.weights().iter().cloned().collect();
        let bytes: Vec<_> = all.iter().map(|t| (t.name().to_owned(), t.bytes().to_vec())).collect();
        for chunk in [7, 40] {
            let (chunked, same) = captured(model, &capture, chunk);
            assert_eq!(same, description);
            let chunked: Vec<_> = chunked.weights().iter().map(|t| (t.name().to_owned(), t.bytes().to_vec())).collect();
            assert!(chunked == bytes, "{model} {what} in chunks of {chunk}");
        }
        assert_eq!((&description["what"], &description["model"]), (&what.into(), &model.into()));
        assert_eq!(description["positions"], 40);
        assert_eq!(description["tokens"].as_array().map(Vec::len), Some(40));
        let layers = description["layers"].as_array().expect("layers").len();
        let tensor = |name: &str| single.weights().require(name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(tensor("tokens").dtype(), DType::I64);
        match what {
            "residual" => {
                let (all, hidden) = width(&golden(model).join("model.safetensors"));
                let last = tensor(&format!("layer.{}", all - 1));
                assert_eq!((layers, last.rows()), (all, 40));
                assert_eq!(last.cols() % hidden, 0);
                assert!(last.to_f32().expect("floats").iter().any(|x| *x != 0.0));
            }
            "router" => {
                let counts = tensor("counts");
                let chosen = description["width"].as_u64().expect("a width") / 2 * 40;
                assert_eq!(counts.rows(), layers);
                for row in counts.to_f32().expect("floats").chunks(counts.cols()) {
                    assert_eq!(row.iter().sum::<f32>(), chosen as f32);
                }
            }
            _ => {
                let histogram = tensor("histogram");
                assert_eq!(histogram.shape(), [layers, 64]);
                let sums: Vec<f32> =
                    histogram.to_f32().expect("floats").chunks(64).map(|row| row.iter().sum()).collect();
                assert!(sums.iter().all(|sum| *sum > 0.0 && sum % 40.0 == 0.0), "{sums:?}");
            }
        }
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").collect();
    assert_eq!(left.len(), 2, "a file and its description: {left:?}");
}

#[test]
fn captures_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let capture =
        |what: &str, path: &Path| format!("{what}={}", path.display()).parse::<Capture>().expect("well formed");
    for path in [folder.path().to_owned(), folder.path().join("no/such/folder/c")] {
        let error = capture("residual", &path).check_writable().expect_err("no file can be there");
        assert!(matches!(&error, RuntimeError::Write { path: named, .. } if *named == path), "{error}");
    }
    let file = folder.path().join("c");
    let error = refusal(&llama(), &options(&[], &[capture("router", &file)]));
    assert!(error.contains("router cannot be captured"), "{error}");
    let error = refusal(Path::new("scripted:any"), &options(&[], &[capture("ffn", &file)]));
    assert!(error.contains("ffn cannot be captured"), "{error}");
    let nothing = capture("residual", &file).write("none", &ScriptedLogitProducer::new(vec![], 8, 8));
    assert_eq!(nothing.expect("no failure"), 0);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing is left behind");
}
