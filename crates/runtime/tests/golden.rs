//! Every golden model, on every device, whole, token by token and in chunks.

use cpu::CpuDevice;
use foundation::TokenId;
use plan::reference::ReferenceDevice;
use plan::{Device, KvType, KvTypes, Limits, lower_for};
use testkit::{Expected, golden, nmse, worst};
use turbospark_runtime::{LogitProducer, ModelFiles, RealForwardRunner, Want};

const F32: KvTypes = KvTypes::both(KvType::F32);

fn runner<D: Device>(device: &D, files: &ModelFiles, rows: usize, kv: KvTypes) -> RealForwardRunner<D::Exec> {
    let program = lower_for(&device.caps(), &files.spec, &files.index).expect("lowers");
    let mut limits = Limits::for_context(128, rows, kv);
    limits.wanted = rows;
    let exec = device.compile(vec![program], &files.weights, limits).expect("compiles");
    RealForwardRunner::new(exec, 128)
}

/// Logits of every position, `chunk` tokens at a time.
fn logits(producer: &mut impl LogitProducer, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let tokens: Vec<_> = tokens.iter().copied().map(TokenId).collect();
    producer.reset();
    let mut all = Vec::new();
    for chunk in tokens.chunks(chunk) {
        let mut out = vec![0.0; chunk.len() * producer.vocab()];
        producer.produce(chunk, Want::All, &mut out).expect("produces");
        all.extend(out);
    }
    all
}

const MODELS: &[&str] = &["llama", "llama_rope3", "llama_tied", "mistral", "qwen2", "qwen3", "gemma3"];

/// (file of the model, file of the expected values), where the model has the file.
fn containers(name: &str) -> Vec<(&'static str, &'static str)> {
    let gguf = if name == "mistral" { "expected-llamacpp.safetensors" } else { "expected.safetensors" };
    [("model.safetensors", "expected.safetensors"), ("model.gguf", gguf)]
        .into_iter()
        .filter(|(file, _)| golden(name).join(file).exists())
        .collect()
}

#[test]
fn all_positions_match_the_reference_logits() {
    let mut failures = Vec::new();
    for name in MODELS {
        for (file, expected) in containers(name) {
            let files = ModelFiles::open(&golden(name).join(file)).unwrap_or_else(|e| panic!("{name}/{file}: {e}"));
            let expected = Expected::read(name, expected);
            for (device, got) in [
                ("reference", logits(&mut runner(&ReferenceDevice, &files, 72, F32), &expected.tokens, 72)),
                ("cpu", logits(&mut runner(&CpuDevice::new(Some(2)), &files, 72, F32), &expected.tokens, 72)),
            ] {
                let error = worst(&got, &expected.logits);
                println!("{name:12} {file:18} {device:9} max {error:.1e} nmse {:.1e}", nmse(&got, &expected.logits));
                if error.is_nan() || error > 1e-3 {
                    failures.push(format!("{name}/{file} on {device}: {error}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
