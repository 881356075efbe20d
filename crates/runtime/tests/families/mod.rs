//! What every family must do when it is run as the product runs it: files opened by the runtime, one sequence behind
//! [`LogitProducer`]. The suites `real_forward_*` name the models of a family and call these checks.
#![allow(dead_code, unused_macros, reason = "a suite calls some of the checks")]

pub(crate) mod kv_quant;

use foundation::TokenId;
use plan::{KvType, KvTypes, Want};
use std::path::Path;
use testkit::{GoldenFile, families, golden, with_whole};
use turbospark_runtime::{DeviceKind, LogitProducer, OpenOptions, open_logits};
use weights::safetensors::{self, SafetensorsFile};
use weights::{Tensor, Weights};

/// The checks of a family, for the golden models named.
macro_rules! family {
    ($($model:literal),+ $(,)?) => {
        const MODELS: &[&str] = &[$($model),+];

        #[test]
        fn logits_are_the_publishers_on_every_device_and_from_every_container() {
            families::logits_are_the_publishers(MODELS);
        }

        #[test]
        fn greedy_tokens_are_the_publishers() {
            families::greedy_tokens_are_the_publishers(MODELS);
        }

        #[test]
        fn rewinding_and_resetting_forget_exactly_what_came_later() {
            families::rewinds_are_exact(MODELS);
        }

        #[test]
        fn what_does_not_fit_is_refused_by_name() {
            families::misfits_are_refused(MODELS);
        }
    };
}

/// The checks of feeding a prompt in chunks, for the golden models named.
macro_rules! chunked {
    ($($model:literal),+ $(,)?) => {
        #[test]
        fn every_chunking_gives_the_bits_of_single_tokens() {
            families::chunks_change_no_bit(&[$($model),+]);
        }
    };
}

/// The checks of every cache type, for the golden models named.
macro_rules! kv_quant {
    ($($model:literal),+ $(,)?) => {
        #[test]
        fn every_cache_type_is_exact_in_itself_and_near_the_wide_one() {
            families::kv_quant::every_type_is_exact_in_itself(&[$($model),+]);
        }
    };
}

/// Each container of the models.
fn files(models: &[&str]) -> Vec<GoldenFile> {
    let files: Vec<_> = families().into_iter().filter(|f| models.contains(&f.model)).collect();
    for model in models {
        assert!(files.iter().any(|f| f.model == *model), "there is no golden model {model}");
    }
    files
}

/// One container of each model.
fn one_file_each(models: &[&str]) -> Vec<GoldenFile> {
    files(models).into_iter().filter(|f| f.file == "model.safetensors").collect()
}

struct Opened {
    producer: Box<dyn LogitProducer + Send>,
    tokens: Vec<TokenId>,
}

/// Models whose state cannot be cut anywhere: a rewind goes back to a kept point at or before the one asked for.
const RECURRENT: [&str; 4] = ["qwen3_5", "qwen3_5_moe", "qwen4_exp", "qwen4_exp_ple64"];

/// Positions beyond the golden prompt.
const MORE: usize = 24;

impl Opened {
    fn new(golden: &GoldenFile, device: DeviceKind) -> Self {
        Self::with(golden, device, KvTypes::both(KvType::F32))
    }

    fn with(golden: &GoldenFile, device: DeviceKind, kv: KvTypes) -> Self {
        let tokens: Vec<_> = golden.expected().tokens.iter().copied().map(TokenId).collect();
        let options = OpenOptions {
            device,
            threads: Some(2),
            context: Some(tokens.len() + MORE),
            kv: kv.into(),
            prefill_chunk: tokens.len(),
            all_logits: true,
            ..OpenOptions::default()
        };
        let open = |path: &Path| open_logits(path, &options).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (producer, _) = with_whole(&golden.path(), open);
        Self { producer, tokens }
    }

    /// The logits of the prompt's tokens from the present position on, `chunk` at a time.
    fn rest(&mut self, chunk: usize) -> Vec<f32> {
        let (from, vocab) = (self.producer.position(), self.producer.vocab());
        let feed = |tokens: &[TokenId]| {
            let mut logits = vec![0.0; tokens.len() * vocab];
            self.producer.produce(tokens, Want::All, &mut logits).expect("runs");
            logits
        };
        self.tokens[from..].chunks(chunk).flat_map(feed).collect()
    }

    fn one_more(&mut self, token: TokenId) -> Vec<f32> {
        let mut logits = vec![0.0; self.producer.vocab()];
        self.producer.produce(&[token], Want::Last, &mut logits).expect("runs");
        logits
    }
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// Logits of all positions within 1e-3 of the reference code's, on every device and from every container.
pub(crate) fn logits_are_the_publishers(models: &[&str]) {
    for golden in files(models) {
        for device in [DeviceKind::Cpu, DeviceKind::Reference] {
            let whole = Opened::new(&golden, device).rest(usize::MAX);
            let error = golden.errors(&whole).into_iter().fold(0.0, f32::max);
            assert!(error <= 1e-3, "{}/{} on {device:?}: {error}", golden.model, golden.file);
        }
    }
}

/// The reference code's greedy continuation, as far as its two best tokens are not a near tie.
pub(crate) fn greedy_tokens_are_the_publishers(models: &[&str]) {
    for golden in one_file_each(models) {
        let (mut opened, greedy) = (Opened::new(&golden, DeviceKind::Cpu), golden.expected().greedy);
        assert!(!greedy.is_empty(), "{}: no greedy tokens are recorded", golden.model);
        let whole = opened.rest(usize::MAX);
        let mut last = whole[whole.len() - opened.producer.vocab()..].to_vec();
        for (at, (token, margin)) in greedy.into_iter().enumerate() {
            if margin < 1e-2 {
                break;
            }
            let best = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b])).expect("a vocabulary");
            assert_eq!(best, token as usize, "{} at {at}", golden.model);
            last = opened.one_more(TokenId(token));
        }
    }
}

/// After any rewind the same tokens give the same bits; a reset is a fresh start.
pub(crate) fn rewinds_are_exact(models: &[&str]) {
    for golden in one_file_each(models) {
        let mut opened = Opened::new(&golden, DeviceKind::Cpu);
        let (whole, vocab) = (opened.rest(usize::MAX), opened.producer.vocab());
        for to in [71, 61, 33, 32, 8, 1] {
            let reached = opened.producer.rewind(to);
            let near = if RECURRENT.contains(&golden.model) { reached <= to } else { reached == to };
            assert!(near && opened.producer.position() == reached, "{}: {reached} for {to}", golden.model);
            assert_eq!(opened.producer.fed(), &opened.tokens[..reached]);
            assert!(same_bits(&opened.rest(5), &whole[reached * vocab..]), "{} rewound to {reached}", golden.model);
        }
        opened.producer.reset();
        assert!(same_bits(&opened.rest(usize::MAX), &whole), "{} after a reset", golden.model);
    }
}

/// The same bits for a token at a time and any chunk.
pub(crate) fn chunks_change_no_bit(models: &[&str]) {
    for golden in one_file_each(models) {
        let mut opened = Opened::new(&golden, DeviceKind::Cpu);
        let single = opened.rest(1);
        let further = opened.one_more(TokenId(1));
        for chunk in [2, 3, 7, 31, 32, 33, usize::MAX] {
            opened.producer.reset();
            assert!(same_bits(&opened.rest(chunk), &single), "{} in chunks of {chunk}", golden.model);
            assert!(same_bits(&opened.one_more(TokenId(1)), &further), "{} after chunks of {chunk}", golden.model);
        }
    }
}

/// A tensor that is not there or has another shape, and a config key that nobody reads, are errors that name it.
pub(crate) fn misfits_are_refused(models: &[&str]) {
    for model in models {
        let folder = golden(model);
        let config = std::fs::read_to_string(folder.join("config.json")).expect("a config");
        let file = SafetensorsFile::open(&folder.join("model.safetensors")).expect("a checkpoint");
        let name =
            file.weights().iter().map(Tensor::name).find(|n| n.contains("layers.1.") && n.ends_with("_proj.weight"));
        let tensor = file.weights().require(name.expect("a projection of the second layer")).expect("is there");
        let taller = Tensor::from_f32(
            tensor.name(),
            vec![tensor.rows() + 1, tensor.cols()],
            &vec![0.0; (tensor.rows() + 1) * tensor.cols()],
        );
        let without: Weights = file.weights().iter().filter(|t| t.name() != tensor.name()).cloned().collect();
        let mut misshapen = without.clone();
        misshapen.insert(taller);
        // Names are shown in their canonical form, which may be without a prefix.
        let shown = tensor.name().split_once("layers.1.").expect("as chosen").1;
        for (what, weights) in [("missing", &without), ("misshapen", &misshapen)] {
            let message = refusal(&config, weights);
            assert!(message.contains(shown), "{model}, {what}: {message}");
        }
        let message = refusal(&config.replacen('{', r#"{"surprise_factor": 3,"#, 1), file.weights());
        assert!(message.contains("surprise_factor"), "{model}: {message}");
    }
}

fn refusal(config: &str, weights: &Weights) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("config.json"), config).expect("written");
    let tensors: Vec<_> = weights.iter().cloned().collect();
    safetensors::write(&folder.path().join("model.safetensors"), &tensors, &Default::default()).expect("written");
    match open_logits(folder.path(), &OpenOptions::default()) {
        Ok(_) => panic!("a checkpoint that does not fit its config was opened"),
        Err(error) => error.to_string(),
    }
}
