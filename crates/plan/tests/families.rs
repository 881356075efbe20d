//! What must hold for every family: each tensor counts, and what is missing, misshapen or unknown is refused by name.

use foundation::TokenId;
use model::{Checkpoint, Config, Container, ModelError, ModelSpec, WeightIndex, build};
use testkit::{GoldenFile, checkpoint, families, golden};
use turbospark_plan::reference::ReferenceDevice;
use turbospark_plan::{Device, Feed, KvType, KvTypes, Limits, ProgramId, Sequences, Want, lower};
use weights::{Tensor, Weights};

/// Models whose shapes another one of the list has too.
const LIKE_OTHERS: &[&str] =
    &["llama_rope3", "deepseek2_lite27", "deepseek2_qlora", "gpt_oss_lim7", "qwen4_exp", "minimax_m3_lim7"];

/// Tensors that are no part of the language model: towers, and numbers that follow from the config.
fn outside(name: &str) -> bool {
    let constants = ["layer_multipliers", "ngram_heads_offsets", "ngram_heads_vocab_sizes"];
    name.starts_with("model.vision_") || constants.iter().any(|c| name.ends_with(c))
}

/// Tensors of GGUF files without which they are another valid model: a tied head, no frequency divisors, and in
/// Gemma 4 full layers whose values are their keys.
fn optional(checkpoint: &Checkpoint, name: &str) -> bool {
    let names = ["lm_head.weight", "rope_freqs.weight", "model.layers.2.self_attn.v_proj.weight"];
    checkpoint.container == Container::Gguf
        && (names[..2].contains(&name) || checkpoint.architecture == "gemma4" && name == names[2])
}

/// An expert whose choice bias keeps it out of every prompt tried.
fn never_chosen(model: &str, name: &str) -> bool {
    model == "minimax_m2" && name.starts_with("model.layers.3.block_sparse_moe.experts.3.")
}

/// A hashed table may be longer than the hash needs, and a GGUF file does not say how long it is.
fn any_length(container: Container, name: &str) -> bool {
    container == Container::Gguf && name == "model.embed_tokens_per_layer.weight"
}

/// One of several tensors that are read alike: experts beyond the first two are left out.
fn stands_for_others(name: &str) -> bool {
    let expert = name.split_once(".experts.").and_then(|(_, rest)| rest.split_once('.')?.0.parse::<usize>().ok());
    !outside(name) && expert.is_none_or(|e| e < 2)
}

fn with_weights(of: &Checkpoint, weights: &Weights) -> Checkpoint {
    Checkpoint {
        architecture: of.architecture.clone(),
        container: of.container,
        config: of.config.clone(),
        index: WeightIndex::of(weights),
    }
}

/// Builds and lowers; the text of what went wrong.
fn open(checkpoint: &Checkpoint) -> Result<ModelSpec, String> {
    let spec = build(checkpoint).map_err(|e| e.to_string())?;
    lower(&spec, &checkpoint.index).map_err(|e| e.to_string())?;
    Ok(spec)
}

fn logits(spec: &ModelSpec, weights: &Weights, tokens: &[TokenId]) -> Vec<f32> {
    let program = lower(spec, &WeightIndex::of(weights)).expect("lowers");
    let limits = Limits { wanted: tokens.len(), ..Limits::for_context(96, tokens.len(), KvTypes::both(KvType::F32)) };
    let exec = ReferenceDevice.compile(vec![program], weights, limits).expect("compiles");
    let mut sequences = Sequences::new(exec);
    let sequence = sequences.open();
    let mut logits = vec![0.0; tokens.len() * spec.vocab];
    let feed = Feed { sequence, tokens, want: Want::All };
    sequences.run(ProgramId(0), &[feed], &mut logits).expect("runs");
    logits
}

fn models() -> impl Iterator<Item = GoldenFile> {
    families().into_iter().filter(|g| !LIKE_OTHERS.contains(&g.model) && g.file.starts_with("model."))
}

#[test]
fn every_tensor_moves_the_logits() {
    let mut still = Vec::new();
    for golden in models().filter(|g| g.file == "model.safetensors") {
        let (checkpoint, weights) = checkpoint(&golden.path());
        let spec = build(&checkpoint).expect("builds");
        // Longer and other prompts only where the first few tokens do not reach an expert.
        let (whole, scattered) = (golden.expected().tokens, (0..90).map(|i| i * 37 % 256).collect());
        let prompts = [whole[..24].to_vec(), whole, (100..190).collect(), scattered];
        let prompts = prompts.map(|p: Vec<u32>| p.into_iter().map(TokenId).collect());
        let before = prompts.each_ref().map(|p: &Vec<_>| logits(&spec, &weights, p));
        for tensor in weights.iter().filter(|t| !outside(t.name()) && !never_chosen(golden.model, t.name())) {
            // Another value in every second place, so that nothing a norm or a softmax would undo is all that changes.
            let change = |(i, x): (usize, f32)| if i % 2 == 0 { 1.3 * x + 0.1 } else { x };
            let values: Vec<f32> = tensor.to_f32().expect("floats").into_iter().enumerate().map(change).collect();
            let mut changed = weights.clone();
            changed.insert(Tensor::from_f32(tensor.name(), tensor.shape().to_vec(), &values));
            let unmoved = |(p, before): (&Vec<_>, &Vec<f32>)| logits(&spec, &changed, p) == *before;
            if prompts.iter().zip(&before).all(unmoved) {
                still.push(format!("{}: {}", golden.model, tensor.name()));
            }
        }
    }
    assert!(still.is_empty(), "{still:#?}");
}

#[test]
fn a_missing_tensor_is_refused_by_name() {
    let mut failures = Vec::new();
    for golden in models() {
        let (checkpoint, weights) = checkpoint(&golden.path());
        for name in weights.iter().map(Tensor::name).filter(|n| stands_for_others(n) && !optional(&checkpoint, n)) {
            let rest: Weights = weights.iter().filter(|t| t.name() != name).cloned().collect();
            match open(&with_weights(&checkpoint, &rest)) {
                Err(message) if message.contains(name) => {}
                other => failures.push(format!("{}/{} without {name}: {:?}", golden.model, golden.file, other.err())),
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn a_tensor_of_another_shape_is_refused_by_name() {
    let mut failures = Vec::new();
    for golden in models() {
        let (checkpoint, weights) = checkpoint(&golden.path());
        for tensor in weights.iter().filter(|t| stands_for_others(t.name())) {
            let mut shape = tensor.shape().to_vec();
            shape[0] += 1;
            let mut changed = weights.clone();
            changed.insert(Tensor::from_f32(tensor.name(), shape.clone(), &vec![0.0; shape.iter().product()]));
            match open(&with_weights(&checkpoint, &changed)) {
                Err(message) if message.contains(tensor.name()) => {}
                Ok(spec) if any_length(checkpoint.container, tensor.name()) && spec.family == "qwen4_exp" => {}
                other => {
                    failures.push(format!("{}/{}: {}: {:?}", golden.model, golden.file, tensor.name(), other.err()))
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn a_config_key_that_nobody_reads_is_refused_by_name() {
    for golden in models().filter(|g| g.file == "model.safetensors") {
        let (_, weights) = checkpoint(&golden.path());
        let text = std::fs::read_to_string(golden.path().with_file_name("config.json")).expect("a config");
        let inside = text.replacen("\"hidden_size\"", "\"twist_factor\": 3, \"hidden_size\"", 1);
        let outside = text.replacen('{', "{\"twist_factor\": 3, ", 1);
        for text in [inside, outside] {
            let config = Config::from_json(text.as_bytes()).expect("JSON");
            let built = Checkpoint::from_config(config, WeightIndex::of(&weights)).and_then(|c| build(&c));
            let Err(ModelError::UnreadKey { key, .. }) = built else {
                panic!("{}: {built:?}", golden.model);
            };
            assert!(key.ends_with("twist_factor"), "{}: {key}", golden.model);
        }
    }
}

/// A multimodal checkpoint wraps the language model's config and names.
#[test]
fn a_wrapped_language_model_is_the_plain_one() {
    for (name, architecture) in [
        ("qwen3_5", "Qwen3_5ForConditionalGeneration"),
        ("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"),
        ("qwen4_exp_ple64", "Qwen4ExpForConditionalGeneration"),
        ("gemma4_dense", "Gemma4ForConditionalGeneration"),
        ("minimax_m3", "MiniMaxM3SparseForConditionalGeneration"),
    ] {
        let (plain, weights) = checkpoint(&golden(name).join("model.safetensors"));
        let text = std::fs::read_to_string(golden(name).join("config.json")).expect("a config");
        let wrapped = format!(
            r#"{{"architectures": ["{architecture}"], "image_token_id": 250, "vision_config": {{"depth": 3}}, "text_config": {text}}}"#
        );
        let prefixed: Weights = weights
            .iter()
            .map(|t| t.renamed(t.name().replacen("model.", "model.language_model.", 1)))
            .chain([Tensor::from_f32("model.visual.blocks.0.norm1.weight", vec![3], &[0.0; 3])])
            .collect();
        let index = WeightIndex::of(&model::names::canonical(None, &prefixed));
        let config = Config::from_json(wrapped.as_bytes()).expect("JSON");
        let spec =
            Checkpoint::from_config(config, index).and_then(|c| build(&c)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(spec, build(&plain).expect("builds"), "{name}");
    }
}

/// Fused, stacked and one tensor an expert are the same bank.
#[test]
fn experts_may_be_fused_or_apart() {
    let (apart, weights) = checkpoint(&golden("qwen3_5_moe").join("model.safetensors"));
    let (experts, inner, hidden) = (8, 32, 64);
    let mut fused: Weights = weights.iter().filter(|t| !t.name().contains(".experts.")).cloned().collect();
    for layer in 0..4 {
        let at = format!("model.layers.{layer}.mlp.experts");
        let rows = |e: usize, name: &str| {
            weights.require(&format!("{at}.{e}.{name}.weight")).expect("is there").to_f32().expect("floats")
        };
        let both: Vec<f32> = (0..experts).flat_map(|e| [rows(e, "gate_proj"), rows(e, "up_proj")].concat()).collect();
        let down: Vec<f32> = (0..experts).flat_map(|e| rows(e, "down_proj")).collect();
        fused.insert(Tensor::from_f32(format!("{at}.gate_up_proj"), vec![experts, 2 * inner, hidden], &both));
        fused.insert(Tensor::from_f32(format!("{at}.down_proj"), vec![experts, hidden, inner], &down));
    }
    let tokens: Vec<_> = (10..60).map(TokenId).collect();
    let spec = build(&with_weights(&apart, &fused)).expect("builds");
    assert!(logits(&spec, &fused, &tokens) == logits(&build(&apart).expect("builds"), &weights, &tokens));
}

/// A golden model's config with some keys replaced, built on its tensors.
fn with_keys(name: &str, keys: &str) -> Result<ModelSpec, String> {
    let (_, weights) = checkpoint(&golden(name).join("model.safetensors"));
    let text = std::fs::read_to_string(golden(name).join("config.json")).expect("a config");
    // Of two entries of one key, JSON's reader takes the later.
    let end = text.rfind('}').expect("an object");
    let config = Config::from_json(format!("{}, {keys}}}", &text[..end]).as_bytes()).expect("JSON");
    let checkpoint = Checkpoint::from_config(config, WeightIndex::of(&weights)).map_err(|e| e.to_string())?;
    open(&checkpoint)
}

/// What released configs say besides, and what this build would have to compute in another way.
#[test]
fn released_options_are_known_and_others_refused_by_name() {
    let known = [
        (
            "gpt_oss",
            r#""experts_per_token": 2, "initial_context_length": 16, "quantization_config": {"quant_method": "mxfp4"}"#,
        ),
        (
            "deepseek2",
            r#""moe_layer_freq": 1, "aux_loss_alpha": 0.001, "seq_aux": true, "ep_size": 1, "scoring_func": "softmax""#,
        ),
        ("qwen3_5", r#""attn_output_gate": true, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1"#),
        (
            "minimax_m2",
            r#""use_mtp": true, "num_mtp_modules": 3, "qk_norm_type": "per_layer", "scoring_func": "sigmoid""#,
        ),
        ("qwen3_moe", r#""max_window_layers": 48, "rope_scaling": null"#),
        ("mixtral", r#""rope_theta": 1e6"#),
        ("olmo2", r#""rope_theta": 500000, "rope_scaling": null, "pretraining_tp": 1"#),
    ];
    for (name, keys) in known {
        let plain = open(&checkpoint(&golden(name).join("model.safetensors")).0).expect("builds");
        assert_eq!(with_keys(name, keys).as_ref(), Ok(&plain), "{name}");
    }
    let refused = [
        ("gpt_oss", r#""experts_per_token": 4"#, "experts_per_token"),
        ("gpt_oss", r#""quantization_config": {"quant_method": "fp8"}"#, "quant_method"),
        ("minimax_m2", r#""quantization_config": {"quant_method": "fp8"}"#, "quantization_config"),
        ("minimax_m2", r#""use_qk_norm": false"#, "use_qk_norm"),
        ("deepseek2", r#""moe_layer_freq": 2"#, "moe_layer_freq"),
        ("deepseek2", r#""topk_method": "noaux_tc""#, "topk_method"),
        ("deepseek2", r#""scoring_func": "sigmoid""#, "scoring_func"),
        ("qwen3_5", r#""attn_output_gate": false"#, "attn_output_gate"),
        (
            "qwen3_5",
            r#""layer_types": ["linear_attention", "mamba", "linear_attention", "full_attention"]"#,
            "layer_types",
        ),
        ("qwen4_exp", r#""output_gate_type": "silu""#, "output_gate_type"),
        ("qwen4_exp", r#""indexer_kv_heads": 2"#, "indexer_kv_heads"),
        ("gemma4_dense", r#""use_bidirectional_attention": "all""#, "use_bidirectional_attention"),
        ("spark2_5", r#""gate_attn_act_mode": "tanh""#, "gate_attn_act_mode"),
        ("minimax_m3", r#""index_n_heads": 4"#, "index_n_heads"),
        ("mixtral", r#""num_experts_per_tok": 9"#, "num_experts_per_tok"),
        ("olmo2", r#""sliding_window": 8"#, "sliding_window"),
        ("olmo2", r#""clip_qkv": 8.0"#, "clip_qkv"),
        ("qwen3_moe", r#""hidden_act": "gelu""#, "hidden_act"),
    ];
    for (name, keys, blamed) in refused {
        let message = with_keys(name, keys).expect_err(keys);
        assert!(message.contains(&format!("{blamed}`")), "{name} with {keys}: {message}");
    }
}

/// Experts that are all alike are the dense layer, whatever the router says.
#[test]
fn identical_experts_are_the_dense_model() {
    let (moe, weights) = checkpoint(&golden("mixtral").join("model.safetensors"));
    let (mut alike, mut dense) = (Weights::default(), Weights::default());
    for tensor in weights.iter() {
        let Some((at, rest)) = tensor.name().split_once(".block_sparse_moe.") else {
            alike.insert(tensor.clone());
            dense.insert(tensor.clone());
            continue;
        };
        let Some(matrix) = rest.strip_prefix("experts.").and_then(|rest| rest.split_once('.')).map(|(_, m)| m) else {
            alike.insert(tensor.clone());
            continue;
        };
        let first = weights.require(&format!("{at}.block_sparse_moe.experts.0.{matrix}")).expect("is there");
        alike.insert(first.renamed(tensor.name()));
        let name = matrix.replace("w1", "gate_proj").replace("w2", "down_proj").replace("w3", "up_proj");
        dense.insert(first.renamed(format!("{at}.mlp.{name}")));
    }
    let text = std::fs::read_to_string(golden("mixtral").join("config.json")).expect("a config");
    let text = text.replace("\"num_local_experts\": 6", "\"num_local_experts\": null");
    let config = Config::from_json(text.replace("MixtralForCausalLM", "LlamaForCausalLM").as_bytes()).expect("JSON");
    let plain = Checkpoint::from_config(config, WeightIndex::of(&dense)).and_then(|c| {
        c.config.opt_size("num_experts_per_tok")?;
        build(&c)
    });
    let tokens: Vec<_> = (10..70).map(TokenId).collect();
    let expected = logits(&plain.expect("builds"), &dense, &tokens);
    let found = logits(&build(&with_weights(&moe, &alike)).expect("builds"), &alike, &tokens);
    assert!(testkit::worst(&found, &expected) < 1e-4);
}
