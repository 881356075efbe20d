//! What steering must do in every family, run as the product runs it: a control vector in a file, one sequence behind
//! [`LogitProducer`]. The suites `*_steered*` name the models of a family and call these checks.

use foundation::TokenId;
use plan::{KvType, KvTypes, Want};
use std::path::{Path, PathBuf};
use testkit::{GoldenFile, Random, families, nmse};
use turbospark_runtime::{CaptureKind, DeviceKind, LogitProducer, ModelFiles, OpenOptions, open_logits};
use weights::Tensor;
use weights::gguf::Value;
use weights::gguf::write::GgufWriter;

/// The checks, for the golden models named.
macro_rules! steered {
    ($($model:literal),+ $(,)?) => {
        #[test]
        fn an_edit_moves_its_layer_and_what_follows_and_nothing_before() {
            steered::edits_are_local(&[$($model),+]);
        }

        #[test]
        fn many_rows_at_once_give_the_bits_of_single_ones() {
            steered::chunks_change_no_bit(&[$($model),+]);
        }

        #[test]
        fn an_alpha_of_zero_changes_no_bit() {
            steered::nothing_is_nothing(&[$($model),+]);
        }

        #[test]
        fn both_devices_agree() {
            steered::devices_agree(&[$($model),+]);
        }
    };
}

const MODES: [&str; 4] = ["add", "ablate", "clamp=0.5", "renorm"];

/// A golden model and a control vector for all of its layers.
struct Steered {
    golden: GoldenFile,
    layers: usize,
    tokens: Vec<TokenId>,
    vector: PathBuf,
    _folder: tempfile::TempDir,
}

impl Steered {
    fn each(models: &[&str]) -> Vec<Self> {
        models.iter().map(|model| Self::of(model)).collect()
    }

    fn of(model: &str) -> Self {
        let all = families().into_iter();
        let golden = all.filter(|f| f.file == "model.safetensors").find(|f| f.model == model);
        let golden = golden.unwrap_or_else(|| panic!("there is no golden model {model}"));
        let spec = ModelFiles::open(&golden.path()).expect("opens").spec;
        let (folder, mut random) = (tempfile::tempdir().expect("a folder"), Random::new(3));
        let mut writer = GgufWriter::new();
        writer.set("general.architecture", Value::String("controlvector".into()));
        for layer in 0..spec.layers.len() {
            let values = random.normals(spec.hidden, 0.0, 0.3);
            writer.tensor(Tensor::from_f32(format!("direction.{layer}"), vec![spec.hidden], &values));
        }
        let vector = folder.path().join("vector.gguf");
        writer.write(&vector).expect("written");
        let tokens = golden.expected().tokens.iter().copied().map(TokenId).collect();
        Self { golden, layers: spec.layers.len(), tokens, vector, _folder: folder }
    }

    fn steer(&self, rest: &str) -> String {
        format!("{}{rest}", self.vector.display())
    }

    fn open(&self, device: DeviceKind, steer: &[String]) -> Box<dyn LogitProducer + Send> {
        let options = OpenOptions {
            device,
            threads: Some(2),
            context: Some(self.tokens.len()),
            kv: KvTypes::both(KvType::F32).into(),
            prefill_chunk: self.tokens.len(),
            all_logits: true,
            steer: steer.iter().map(|s| s.parse().expect("well formed")).collect(),
            capture: vec![CaptureKind::Residual],
            ..OpenOptions::default()
        };
        let path: &Path = &self.golden.path();
        open_logits(path, &options).unwrap_or_else(|e| panic!("{}: {e}", self.golden.model)).0
    }

    /// All positions' logits, and the residual stream after each layer.
    fn run(&self, device: DeviceKind, steer: &[String], chunk: usize) -> (Vec<f32>, Vec<Vec<f32>>) {
        let mut producer = self.open(device, steer);
        let mut all = Vec::new();
        for tokens in self.tokens.chunks(chunk) {
            let mut logits = vec![0.0; tokens.len() * producer.vocab()];
            producer.produce(tokens, Want::All, &mut logits).expect("runs");
            all.extend(logits);
        }
        (all, producer.captured().iter().map(|c| c.values.clone()).collect())
    }
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

pub(crate) fn edits_are_local(models: &[&str]) {
    for steered in Steered::each(models) {
        let (logits, plain) = steered.run(DeviceKind::Cpu, &[], usize::MAX);
        let at = steered.layers - 2;
        for mode in MODES {
            let (moved, streams) =
                steered.run(DeviceKind::Cpu, &[steered.steer(&format!(":0.8:{mode}:{at}"))], usize::MAX);
            for (layer, (stream, plain)) in streams.iter().zip(&plain).enumerate() {
                let same = same_bits(stream, plain);
                assert_eq!(same, layer < at, "{} {mode} at {at}: layer {layer}", steered.golden.model);
            }
            assert!(nmse(&moved, &logits) > 1e-7, "{} {mode}: the logits stay", steered.golden.model);
        }
    }
}

pub(crate) fn chunks_change_no_bit(models: &[&str]) {
    for steered in Steered::each(models) {
        let all: Vec<_> = MODES.iter().map(|mode| steered.steer(&format!(":0.5:{mode}"))).collect();
        let (single, streams) = steered.run(DeviceKind::Cpu, &all, 1);
        for chunk in [2, 7, 16, 17, 33, usize::MAX] {
            let (logits, chunked) = steered.run(DeviceKind::Cpu, &all, chunk);
            assert!(same_bits(&logits, &single), "{} in chunks of {chunk}", steered.golden.model);
            let same = chunked.iter().zip(&streams).all(|(a, b)| same_bits(a, b));
            assert!(same, "{}: the streams in chunks of {chunk}", steered.golden.model);
        }
    }
}

pub(crate) fn nothing_is_nothing(models: &[&str]) {
    for steered in Steered::each(models) {
        let (plain, _) = steered.run(DeviceKind::Cpu, &[], usize::MAX);
        let all: Vec<_> = MODES.iter().map(|mode| steered.steer(&format!(":0:{mode}"))).collect();
        let (logits, _) = steered.run(DeviceKind::Cpu, &all, usize::MAX);
        assert!(same_bits(&logits, &plain), "{}", steered.golden.model);
    }
}

pub(crate) fn devices_agree(models: &[&str]) {
    for steered in Steered::each(models) {
        let all: Vec<_> = MODES.iter().map(|mode| steered.steer(&format!(":0.5:{mode}"))).collect();
        let (logits, _) = steered.run(DeviceKind::Cpu, &all, usize::MAX);
        let (oracle, _) = steered.run(DeviceKind::Reference, &all, usize::MAX);
        let error = nmse(&logits, &oracle);
        assert!(error <= 1e-6, "{}: NMSE {error}", steered.golden.model);
    }
}
