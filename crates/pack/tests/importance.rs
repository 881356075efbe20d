//! The importance of columns, collected from what a model is multiplied with.

use foundation::TokenId;
use runtime::ModelFiles;
use testkit::golden;
use turbospark_pack::{Importance, PackOptions, pack};
use weights::DType;
use weights::gguf::GgufFile;

/// Sums of squares and rows of a matrix, as they were written.
fn written(file: &GgufFile, name: &str) -> (Vec<f32>, Vec<f32>) {
    let of = |what: &str| file.weights().require(&format!("{name}.{what}")).expect("is there").to_f32().expect("f32");
    (of("in_sum2"), of("counts"))
}

/// The first matrices of a model read its normed embeddings, every expert the rows that were routed to it, and what one collects
/// is what the rounding reads.
#[test]
fn what_is_collected_is_what_matrices_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().join("imatrix.gguf");
    let files = ModelFiles::open(&golden("qwen3_moe")).unwrap_or_else(|e| panic!("{e}"));
    let tokens: Vec<_> = (0..50).map(|i| TokenId(i * 37 % 256)).collect();
    let mut windows = Vec::new();
    let found = Importance::collect(&files, &tokens, (32, Some(2)), &mut |done| windows.push(done));
    let found = found.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(windows, [1, 2]);
    found.write(&at).unwrap_or_else(|e| panic!("{e}"));
    let file = GgufFile::open(&at).expect("was written");

    // rms norm: the squares of a row of the first layer's input add up to those of the norm's weights, near enough.
    let (sums, counts) = written(&file, "model.layers.0.self_attn.q_proj.weight");
    assert_eq!(counts, [50.0]);
    let norm = files.weights.require("model.layers.0.input_layernorm.weight").expect("is there").to_f32().expect("f32");
    let embeddings = files.weights.require("model.embed_tokens.weight").expect("is there").to_f32().expect("f32");
    for (column, weight) in norm.iter().enumerate() {
        let square = |token: &TokenId| {
            let row = &embeddings[token.index() * norm.len()..][..norm.len()];
            let mean = row.iter().map(|x| x * x).sum::<f32>() / norm.len() as f32;
            (row[column] / (mean + 1e-6).sqrt() * weight).powi(2)
        };
        let expected: f32 = tokens.iter().map(square).sum();
        assert!((sums[column] - expected).abs() <= 1e-3 * expected.max(1e-3), "{column}: {} {expected}", sums[column]);
    }
    assert_eq!(written(&file, "model.layers.0.self_attn.k_proj.weight"), (sums, counts));

    // Each token uses three experts of a layer.
    let rows: Vec<_> =
        (0..8).map(|e| written(&file, &format!("model.layers.2.mlp.experts.{e}.down_proj.weight")).1[0]).collect();
    assert_eq!(rows.iter().sum::<f32>(), 150.0, "{rows:?}");

    let importance = Importance::read(&at).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(importance.matrices(), found.matrices());
}

/// A bank in one tensor gets a row of numbers for each expert, and rounding with them is another than without.
#[test]
fn what_is_collected_can_be_packed_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let source = testkit::quantised().into_iter().find(|g| g.file == "model-F16.gguf").expect("a golden model").path();
    let files = ModelFiles::open(&source).unwrap_or_else(|e| panic!("{e}"));
    let tokens: Vec<_> = (0..40).map(TokenId).collect();
    let found = Importance::collect(&files, &tokens, (64, None), &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    let plain = PackOptions { quantize: Some(DType::Q3K), ..PackOptions::default() };
    let weighted = PackOptions { importance: Some(found), ..plain.clone() };
    for (name, options) in [("plain.gturbo", &plain), ("weighted.gturbo", &weighted)] {
        pack(&source, &at(name), options, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    }
    let [plain, weighted] = ["plain.gturbo", "weighted.gturbo"].map(|name| ModelFiles::open(&at(name)).expect("opens"));
    let bytes =
        |files: &ModelFiles| files.weights.require("model.layers.0.mlp.up_proj.weight").expect("up").bytes().to_vec();
    assert_ne!(bytes(&plain), bytes(&weighted));
}
