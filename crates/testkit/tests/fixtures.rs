//! Fixtures are what they promise: the same for a seed, sane in size, and the same on disk as in memory.

use turbospark_testkit::{Architecture, Model, Options, Random, families, quantised, synthetic};
use weights::DType;

#[test]
fn a_written_model_is_the_one_in_memory() {
    for seed in 0..20 {
        let options = Options::random(seed);
        let made = synthetic(seed, &options);
        let again = synthetic(seed, &options);
        let folder = tempfile::tempdir().expect("a folder");
        made.write(folder.path());
        let (memory, disk) = (made.model(), Model::open(&folder.path().join("model.safetensors")));
        assert_eq!(memory.spec, disk.spec, "{options:?}");
        assert_eq!(memory.weights.len(), disk.weights.len());
        for ((memory, disk), again) in memory.weights.iter().zip(disk.weights.iter()).zip(again.weights.iter()) {
            assert_eq!((memory.name(), memory.dtype(), memory.bytes()), (disk.name(), disk.dtype(), disk.bytes()));
            assert_eq!(memory.bytes(), again.bytes());
        }
    }
}

#[test]
fn every_family_has_a_tiny_model() {
    for (architecture, family) in [
        (Architecture::Synthetic, "synthetic"),
        (Architecture::Llama, "llama"),
        (Architecture::Qwen2, "qwen2"),
        (Architecture::Qwen3, "qwen3"),
        (Architecture::Gemma3, "gemma3"),
    ] {
        assert_eq!(synthetic(0, &Options::tiny().of(architecture)).model().spec.family, family);
    }
}

#[test]
fn random_weights_have_the_size_asked_for() {
    for dtype in DType::all() {
        let integer = matches!(dtype.name().as_bytes(), [b'I' | b'U', b'0'..=b'9', ..] | b"BOOL" | b"F64");
        if integer || matches!(dtype, DType::Unsupported(_)) {
            continue;
        }
        for deviation in [0.05, 1.0] {
            let tensor = Random::new(3).tensor("w", dtype, [16, 1024], deviation);
            let values = tensor.to_f32().expect("converts");
            let square = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
            let size = square.sqrt() / deviation;
            assert!((0.4..2.5).contains(&size), "{dtype}: {size} times too large");
        }
    }
}

#[test]
fn normal_values_are_normal() {
    let values = Random::new(1).normals(100_000, 1.0, 2.0);
    let mean = values.iter().sum::<f32>() / 1e5;
    let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / 1e5;
    assert!((mean - 1.0).abs() < 0.03 && (variance - 4.0).abs() < 0.1, "{mean} {variance}");
}

#[test]
fn the_golden_files_are_there() {
    let models = families().into_iter().map(|f| f.model).collect::<std::collections::BTreeSet<_>>();
    assert!(models.len() >= 27 && families().len() >= 53, "{} models, {} files", models.len(), families().len());
    assert_eq!(quantised().len(), 14);
    assert!(quantised().iter().all(|f| f.path().exists() && f.expected().tokens.len() == 72));
}
