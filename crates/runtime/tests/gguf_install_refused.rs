//! Which GGUF files open and run, and how the others are refused: by tensor and type, or by what is wrong in the file.

use foundation::TokenId;
use std::path::Path;
use testkit::{golden, quantised, with_whole};
use turbospark_runtime::{OpenOptions, RuntimeError, all_logits, open_logits};
use weights::gguf::{GgufFile, write::GgufWriter};
use weights::{DType, Tensor};

/// A tensor of the test file, by its name there and by the one it is known by.
const STORED: &str = "blk.0.ffn_down.weight";
const KNOWN: &str = "model.layers.0.mlp.down_proj.weight";

fn logits(path: &Path) -> Result<Vec<f32>, RuntimeError> {
    let options = OpenOptions { context: Some(32), all_logits: true, ..OpenOptions::default() };
    let (mut producer, _) = open_logits(path, &options)?;
    all_logits(&mut *producer, &[1, 17, 42, 99].map(TokenId), 4)
}

/// The Q8_0 file with one tensor replaced.
fn with_tensor(dtype: DType, bytes: Vec<u8>) -> Vec<u8> {
    let file = GgufFile::open(&golden("llama_k256").join("model-Q8_0.gguf")).expect("a golden file");
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        writer.set(key, value.clone());
    }
    for tensor in file.weights().iter() {
        writer.tensor(match tensor.name() == STORED {
            true => Tensor::from_bytes(STORED, dtype, tensor.shape().to_vec(), bytes.clone()).expect("whole blocks"),
            false => tensor.clone(),
        });
    }
    writer.to_bytes().expect("writes")
}

fn elements() -> usize {
    let file = GgufFile::open(&golden("llama_k256").join("model-Q8_0.gguf")).expect("a golden file");
    file.weights().require(STORED).expect("is there").elements()
}

fn opened(bytes: &[u8]) -> Result<Vec<f32>, RuntimeError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("written");
    logits(&path)
}

#[test]
fn every_type_with_a_kernel_opens_and_decodes() {
    let mut types = Vec::new();
    for golden in quantised() {
        let found = with_whole(&golden.path(), logits).unwrap_or_else(|e| panic!("{}: {e}", golden.file));
        assert!(found.iter().all(|x| x.is_finite()), "{}", golden.file);
        let file = with_whole(&golden.path(), GgufFile::open).expect("opens");
        types.extend(file.weights().iter().map(Tensor::dtype));
    }
    // MXFP4 is in gpt-oss' files, BF16 in most others.
    for dtype in DType::MATRICES.into_iter().filter(|t| ![DType::MXFP4, DType::BF16].contains(t)) {
        assert!(types.contains(&dtype), "{dtype} is in no file");
    }
    with_whole(&golden("gpt_oss_lim7").join("model-mxfp4.gguf"), logits).expect("MXFP4 experts run");
}

#[test]
fn layers_may_differ_in_type() {
    let plain = opened(&with_tensor(DType::F32, vec![0; 4 * elements()])).expect("a mixture is normal");
    assert!(plain.iter().all(|x| x.is_finite()));
}

#[test]
fn a_type_without_a_kernel_is_refused_by_tensor_and_type() {
    let unserved = DType::all().filter(|t| t.to_ggml().is_some() && !DType::MATRICES.contains(t));
    let mut refused = 0;
    for dtype in unserved {
        let Some(bytes) = dtype.bytes_for(elements()) else { continue };
        let message = opened(&with_tensor(dtype, vec![0; bytes])).expect_err("has no kernel").to_string();
        assert!(message.contains(KNOWN) || message.contains(STORED), "{dtype}: {message}");
        assert!(message.contains(dtype.name()), "{dtype}: {message}");
        refused += 1;
    }
    assert!(refused >= 15, "{refused} types");
}

#[test]
fn damaged_and_forged_files_are_refused() {
    let whole = std::fs::read(golden("llama_k256").join("model-Q4_0.gguf")).expect("a golden file");
    let with = |at: usize, bytes: &[u8]| {
        let mut forged = whole.clone();
        forged[at..at + bytes.len()].copy_from_slice(bytes);
        forged
    };
    for (what, bytes, part) in [
        ("nothing", Vec::new(), "empty"),
        ("another format", with(0, b"GGML"), "GGUF"),
        ("another version", with(4, &9u32.to_le_bytes()), "version"),
        ("more tensors than fit", with(8, &u64::MAX.to_le_bytes()), "tensor"),
        ("more keys than fit", with(16, &u64::MAX.to_le_bytes()), "key"),
        ("half of it", whole[..whole.len() / 2].to_vec(), "expected 36864 bytes"),
    ] {
        let message = opened(&bytes).expect_err(what).to_string();
        assert!(message.contains(part), "{what}: {part:?} is not in {message:?}");
    }
}
