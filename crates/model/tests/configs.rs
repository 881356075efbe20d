//! Configs that must be refused, each by a message that names what is wrong, and configs that mean the same.

use serde_json::{Value, json};
use testkit::{Architecture, Options, Synthetic, checkpoint, golden, synthetic};
use turbospark_model::{
    Checkpoint, Config, Container, Exit, Layer, Mixer, ModelError, ModelSpec, Pairing, RopeScaling, WeightIndex, build,
};
use weights::Tensor;
use weights::gguf::{GgufFile, write::GgufWriter};

const ALL: [Architecture; 5] =
    [Architecture::Synthetic, Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3, Architecture::Gemma3];

fn tiny(architecture: Architecture) -> Synthetic {
    synthetic(1, &Options::tiny().of(architecture))
}

fn spec(model: &Synthetic) -> Result<ModelSpec, ModelError> {
    build(&model.checkpoint())
}

/// A tiny model of a family with some keys of its config set, or removed where the value is `"(absent)"`.
fn with(architecture: Architecture, changes: Value) -> Result<ModelSpec, ModelError> {
    let mut model = tiny(architecture);
    for (key, value) in changes.as_object().expect("changes are an object") {
        if value == "(absent)" {
            model.keys().remove(key);
        } else {
            model.keys().insert(key.clone(), value.clone());
        }
    }
    spec(&model)
}

fn attention(layer: &Layer) -> &turbospark_model::Attention {
    let Mixer::Attention(attention) = &layer.mixer.op else { panic!("{:?} is not attention", layer.mixer.op) };
    attention
}

fn windows(spec: &ModelSpec) -> Vec<Option<usize>> {
    spec.layers.iter().map(|l| attention(l).window).collect()
}

#[test]
fn every_family_builds_and_needs_each_of_its_keys() {
    for architecture in ALL {
        let spec = with(architecture, json!({})).unwrap_or_else(|e| panic!("{architecture:?}: {e}"));
        assert_eq!((spec.layers.len(), spec.hidden, spec.vocab, spec.context), (2, 32, 64, 4096));
        for key in [
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "max_position_embeddings",
            "rms_norm_eps",
        ] {
            let error = with(architecture, json!({ key: "(absent)" })).expect_err(key).to_string();
            let needed = format!("config key `{key}` is missing; the `");
            assert!(error.starts_with(&needed), "{architecture:?}: {error}");
            let null = with(architecture, json!({ key: null })).expect_err(key).to_string();
            assert_eq!(null, error, "null is absent");
        }
    }
}

#[test]
fn bad_values_are_refused_by_key() {
    use Architecture::{Gemma3, Llama, Qwen2, Qwen3, Synthetic};
    let cases: &[(Architecture, Value, &str)] = &[
        (Llama, json!({ "hidden_size": 0 }), "`hidden_size`: expected a positive integer below 2^32, found 0"),
        (Llama, json!({ "hidden_size": -32 }), "`hidden_size`: expected a positive integer below 2^32, found -32"),
        (Llama, json!({ "hidden_size": 32.5 }), "`hidden_size`: expected a positive integer"),
        (Llama, json!({ "hidden_size": "32" }), "`hidden_size`: expected a positive integer below 2^32, found \"32\""),
        (Llama, json!({ "hidden_size": [32] }), "`hidden_size`"),
        (Llama, json!({ "vocab_size": 1e18 }), "`vocab_size`"),
        (Llama, json!({ "vocab_size": u64::MAX }), "`vocab_size`"),
        (Llama, json!({ "intermediate_size": 4_294_967_295u32 }), "mlp.gate_proj.weight` has shape [48, 32]"),
        (Llama, json!({ "head_dim": 4_294_967_294u32 }), "self_attn.q_proj.weight` has shape [32, 32]"),
        (Llama, json!({ "num_hidden_layers": 3 }), "tensor `model.layers.2.self_attn.q_proj.weight` is missing"),
        (Llama, json!({ "num_hidden_layers": 4_294_967_295u32 }), "`num_hidden_layers`: expected at most 2"),
        (Qwen2, json!({ "num_hidden_layers": 4_294_967_295u32 }), "`num_hidden_layers`: expected at most 2"),
        (Gemma3, json!({ "num_hidden_layers": 4_294_967_295u32 }), "`num_hidden_layers`: expected at most 2"),
        (Llama, json!({ "num_key_value_heads": 3 }), "`num_key_value_heads`: expected a divisor of"),
        (Llama, json!({ "num_key_value_heads": 8 }), "`num_key_value_heads`: expected a divisor of"),
        (Llama, json!({ "num_key_value_heads": 0 }), "`num_key_value_heads`: expected a positive integer"),
        (Llama, json!({ "num_key_value_heads": [2, 2] }), "`num_key_value_heads`: expected a positive integer"),
        (Llama, json!({ "num_attention_heads": 5, "head_dim": "(absent)", "num_key_value_heads": 1 }), "`head_dim`"),
        (Llama, json!({ "rotary_dim": 5 }), "`rotary_dim`: expected an even number up to head_dim = 8"),
        (Llama, json!({ "rotary_dim": 10 }), "`rotary_dim`: expected an even number up to head_dim = 8"),
        (Llama, json!({ "value_head_dim": 4 }), "`value_head_dim`: expected 8, as the keys"),
        (Llama, json!({ "rms_norm_eps": 0.0 }), "`rms_norm_eps`: expected a number above zero, found 0"),
        (Llama, json!({ "rms_norm_eps": -1e-6 }), "`rms_norm_eps`: expected a number above zero"),
        (Llama, json!({ "rms_norm_eps": 1e300 }), "`rms_norm_eps`: expected a finite number"),
        (Llama, json!({ "rms_norm_eps": "1e-6" }), "`rms_norm_eps`: expected a finite number"),
        (Llama, json!({ "rope_theta": 0 }), "`rope_theta`: expected a number above zero"),
        (Llama, json!({ "hidden_act": "gelu" }), "`hidden_act`: expected silu, found \"gelu\""),
        (Gemma3, json!({ "hidden_activation": "gelu" }), "`hidden_activation`: expected gelu_pytorch_tanh"),
        (Llama, json!({ "tie_word_embeddings": 1 }), "`tie_word_embeddings`: expected true or false, found 1"),
        (Llama, json!({ "rope_scaling": "linear" }), "`rope_scaling`: expected an object"),
        (Llama, json!({ "rope_scaling": { "type": "linear" } }), "`rope_scaling.factor` is missing"),
        (Llama, json!({ "rope_scaling": { "type": "linear", "factor": 0 } }), "`rope_scaling.factor`"),
        (
            Llama,
            json!({ "rope_scaling": { "rope_type": "yarn", "factor": 4.0 } }),
            "`rope_scaling.original_max_position_embeddings` is missing",
        ),
        (
            Llama,
            json!({ "rope_scaling": { "rope_type": "linear", "factor": 4.0, "attention_factor": 2.0 } }),
            "`rope_scaling.attention_factor` = 2.0 is not understood by the `llama` family",
        ),
        (
            Llama,
            json!({ "rope_parameters": { "rope_theta": 1e4, "rope_type": "su" } }),
            "`rope_parameters.rope_type`: expected default, linear, llama3 or yarn, found \"su\"",
        ),
        (
            Llama,
            json!({ "rope_parameters": { "rope_theta": 1e4 }, "rope_scaling": { "type": "linear", "factor": 8.0 } }),
            "`rope_scaling.type` = \"linear\" is not understood",
        ),
        (Llama, json!({ "layer_types": ["full_attention", "full_attention"] }), "`layer_types` = "),
        (Llama, json!({ "logit_scale": 0.5 }), "`logit_scale` = 0.5 is not understood by the `llama` family"),
        (Synthetic, json!({ "sliding_window": 4 }), "`sliding_window` = 4 is not understood by the `synthetic` family"),
        (Gemma3, json!({ "final_logit_softcapping": 30.0 }), "`final_logit_softcapping` = 30.0 is not understood"),
        (Gemma3, json!({ "attn_logit_softcapping": 50.0 }), "`attn_logit_softcapping` = 50.0 is not understood"),
        (Gemma3, json!({ "use_bidirectional_attention": true }), "`use_bidirectional_attention` = true"),
        (Gemma3, json!({ "query_pre_attn_scalar": 0 }), "`query_pre_attn_scalar`: expected a number above zero"),
        (Gemma3, json!({ "layer_types": ["full_attention"] }), "`layer_types`: expected a list of 2 strings"),
        (Gemma3, json!({ "layer_types": ["full_attention", "ssm"] }), "`layer_types`: expected sliding_attention or"),
        (Qwen2, json!({ "layer_types": ["full_attention", "ssm"] }), "`layer_types`: expected sliding_attention or"),
        (Qwen3, json!({ "sliding_window": "(absent)" }), "`sliding_window` is missing"),
        (Qwen3, json!({ "layer_types": "(absent)" }), "`max_window_layers` is missing"),
        (
            Gemma3,
            json!({ "rope_theta": "(absent)", "rope_parameters": { "full_attention": { "rope_theta": 1e6 } } }),
            "`rope_parameters.sliding_attention` is missing",
        ),
    ];
    let mut failures = Vec::new();
    for (architecture, changes, expected) in cases {
        match with(*architecture, changes.clone()) {
            Ok(_) => failures.push(format!("{architecture:?} {changes}: accepted")),
            Err(error) if error.to_string().contains(expected) => {}
            Err(error) => failures.push(format!("{architecture:?} {changes}: {error}")),
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn options_that_say_they_are_off_change_nothing() {
    for architecture in ALL {
        let plain = with(architecture, json!({})).expect("builds");
        let off = json!({
            "final_logit_softcapping": null,
            "use_bidirectional_attention": false,
            "quantization_config": null,
            "layer_scales": [],
            "auto_map": {},
            "torch_dtype": "bfloat16",
            "eos_token_id": [1, 2],
            "transformers_version": "5.0",
            "attention_dropout": 0.1,
        });
        assert_eq!(with(architecture, off).expect("builds"), plain, "{architecture:?}");
    }
}

#[test]
fn a_window_that_is_switched_off_is_off() {
    use Architecture::{Gemma3, Llama, Qwen2};
    for (architecture, changes, expected) in [
        (Llama, json!({}), [Some(4), Some(4)]),
        (Llama, json!({ "sliding_window": null }), [None, None]),
        (Llama, json!({ "use_sliding_window": false }), [None, None]),
        (Qwen2, json!({}), [Some(4), None]),
        (Qwen2, json!({ "use_sliding_window": false }), [None, None]),
        (Qwen2, json!({ "use_sliding_window": null }), [None, None]),
        (Qwen2, json!({ "use_sliding_window": "(absent)", "sliding_window": null }), [None, None]),
        (Qwen2, json!({ "layer_types": null, "max_window_layers": 1 }), [None, Some(4)]),
        (Gemma3, json!({ "layer_types": ["full_attention", "sliding_attention"] }), [None, Some(4)]),
        (Gemma3, json!({ "layer_types": null }), [Some(4), Some(4)]),
        (Gemma3, json!({ "layer_types": null, "sliding_window_pattern": 2 }), [Some(4), None]),
    ] {
        let spec = with(architecture, changes.clone()).unwrap_or_else(|e| panic!("{changes}: {e}"));
        assert_eq!(windows(&spec), expected, "{architecture:?} {changes}");
    }
}

#[test]
fn old_and_new_spellings_of_the_rope_are_one() {
    let llama3 = |key: &str| {
        json!({
            key: "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        })
    };
    let mut new = llama3("rope_type");
    new["rope_theta"] = json!(5e5);
    let new = with(Architecture::Llama, json!({ "rope_theta": "(absent)", "rope_parameters": new })).expect("builds");
    for old in [
        json!({ "rope_theta": 5e5, "rope_scaling": llama3("rope_type") }),
        json!({ "rope_theta": 5e5, "rope_scaling": llama3("type") }),
        json!({ "rope_theta": 5e5, "rope_parameters": llama3("rope_type") }),
    ] {
        assert_eq!(with(Architecture::Llama, old.clone()).unwrap_or_else(|e| panic!("{old}: {e}")), new, "{old}");
    }
    let rope = attention(&new.layers[0]).rope.as_ref().expect("llama rotates");
    assert!(matches!(rope.scaling, RopeScaling::Llama3 { factor: 8.0, .. }), "{rope:?}");

    let new = json!({
        "rope_theta": "(absent)",
        "rope_parameters": {
            "sliding_attention": { "rope_type": "default", "rope_theta": 1e4 },
            "full_attention": { "rope_type": "linear", "rope_theta": 1e6, "factor": 8.0 },
        },
    });
    let old = json!({
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": { "rope_type": "linear", "factor": 8.0 },
    });
    let [new, old] = [new, old].map(|c| with(Architecture::Gemma3, c).unwrap_or_else(|e| panic!("{e}")));
    assert_eq!(new, old);
    let [local, global] = [0, 1].map(|i| attention(&new.layers[i]).rope.clone().expect("gemma rotates"));
    assert_eq!((local.theta, &local.scaling), (1e4, &RopeScaling::None));
    assert_eq!((global.theta, &global.scaling), (1e6, &RopeScaling::Linear { factor: 8.0 }));
}

/// Golden configs in today's spelling, rewritten in the one of older files.
#[test]
fn golden_configs_in_the_old_spelling_are_the_same_models() {
    for name in ["llama", "llama_rope3", "llama_tied", "mistral", "qwen2", "qwen3", "gemma3"] {
        let (new, weights) = checkpoint(&golden(name).join("model.safetensors"));
        let text = std::fs::read(golden(name).join("config.json")).expect("is there");
        let mut config: Value = serde_json::from_slice(&text).expect("is JSON");
        let keys = config.as_object_mut().expect("an object");
        let mut parameters = keys.remove("rope_parameters").expect("is there");
        if name == "gemma3" {
            keys.insert("rope_local_base_freq".into(), parameters["sliding_attention"]["rope_theta"].take());
            parameters = parameters["full_attention"].take();
            keys.insert("sliding_window_pattern".into(), json!(6));
            keys.remove("layer_types");
        }
        keys.insert("rope_theta".into(), parameters["rope_theta"].clone());
        parameters.as_object_mut().expect("an object").remove("rope_theta");
        keys.insert("rope_scaling".into(), if parameters["rope_type"] == "default" { Value::Null } else { parameters });
        let old = Config::from_json(config.to_string().as_bytes()).expect("is JSON");
        let old = Checkpoint::from_config(old, WeightIndex::of(&weights)).expect("names its architecture");
        assert_eq!(build(&old).unwrap_or_else(|e| panic!("{name}: {e}")), build(&new).expect("builds"), "{name}");
    }
}

#[test]
fn both_containers_describe_one_model() {
    for name in ["llama", "llama_rope3", "llama_tied", "mistral", "qwen2", "qwen3"] {
        let [hf, mut gguf] = ["model.safetensors", "model.gguf"].map(|file| {
            let (checkpoint, _) = checkpoint(&golden(name).join(file));
            build(&checkpoint).unwrap_or_else(|e| panic!("{name}/{file}: {e}"))
        });
        // A GGUF file of this architecture has its q and k rows permuted, its divisors stored, and no window.
        let permuted = ["llama", "llama_rope3", "llama_tied", "mistral"].contains(&name);
        for (gguf, hf) in gguf.layers.iter_mut().zip(&hf.layers) {
            let (Mixer::Attention(gguf), Mixer::Attention(hf)) = (&mut gguf.mixer.op, &hf.mixer.op) else {
                panic!("{name} has attention only");
            };
            let (rope, hf_rope) = (gguf.rope.as_mut().expect("rotates"), hf.rope.as_ref().expect("rotates"));
            assert_eq!(rope.pairing, if permuted { Pairing::Interleaved } else { Pairing::Half }, "{name}");
            rope.pairing = hf_rope.pairing;
            if let RopeScaling::Llama3 { .. } = hf_rope.scaling {
                assert!(matches!(&rope.scaling, RopeScaling::Divisors(s) if s.to_string() == "rope_freqs.weight"));
                rope.scaling = hf_rope.scaling.clone();
            }
            if name == "mistral" {
                assert_eq!((gguf.window, hf.window), (None, Some(8)));
                gguf.window = hf.window;
            }
        }
        // The container says `llama` for both, and may make a note of the window it lacks.
        assert_eq!(gguf.family, if permuted { "llama" } else { hf.family });
        assert_eq!(gguf, ModelSpec { notes: gguf.notes.clone(), family: gguf.family, ..hf }, "{name}");
    }
}

#[test]
fn architectures_are_known_by_name() {
    let mut model = tiny(Architecture::Llama);
    model.keys().insert("architectures".into(), json!(["GrokForCausalLM"]));
    let error = spec(&model).expect_err("unknown").to_string();
    assert!(error.starts_with("unknown architecture `GrokForCausalLM`: this build knows llama, mistral, "), "{error}");
    model.keys().remove("architectures");
    model.keys().insert("model_type".into(), json!("llama"));
    assert!(spec(&model).is_ok());
    model.keys().remove("model_type");
    let config = Config::from_json(model.config.to_string().as_bytes()).expect("is JSON");
    let error = Checkpoint::from_config(config, WeightIndex::of(&model.weights)).expect_err("nameless");
    assert!(matches!(error, ModelError::NoArchitecture), "{error}");
    for text in ["", "[]", "{", "3", "{\"a\": }", "null"] {
        let error = Config::from_json(text.as_bytes()).expect_err(text);
        assert!(matches!(error, ModelError::NotJson { .. }), "{error}");
    }
}

#[test]
fn each_missing_or_misshapen_tensor_is_named() {
    for architecture in ALL {
        let whole = tiny(architecture);
        for tensor in whole.weights.iter() {
            let optional = tensor.name().ends_with(".bias");
            let others = || whole.weights.iter().filter(|t| t.name() != tensor.name()).cloned();
            let without = Synthetic { weights: others().collect(), ..whole.clone() };
            match spec(&without) {
                Ok(_) => assert!(optional, "{architecture:?}: `{}` is not needed", tensor.name()),
                Err(error) => {
                    let expected = format!("tensor `{}` is missing from the checkpoint", tensor.name());
                    assert!(error.to_string().starts_with(&expected), "{error}");
                }
            }
            let mut shape = tensor.shape().to_vec();
            shape[0] += 1;
            let values = vec![0.0; shape.iter().product()];
            let other = Tensor::from_f32(tensor.name(), shape.clone(), &values);
            let changed = Synthetic { weights: others().chain([other]).collect(), ..whole.clone() };
            let error = spec(&changed).expect_err(tensor.name()).to_string();
            let expected = format!("tensor `{}` has shape {shape:?}, expected {:?}", tensor.name(), tensor.shape());
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}

/// Metadata of a GGUF file that a family does not understand, or that is broken.
#[test]
fn gguf_keys_are_refused_by_name() {
    use weights::gguf::Value as Gguf;
    let file = GgufFile::open(&golden("llama").join("model.gguf")).expect("opens");
    let refused = |key: &str, value: Option<Gguf>| {
        let mut writer = GgufWriter::new();
        for (name, old) in file.metadata().iter().filter(|(name, _)| *name != key) {
            writer.set(name, old.clone());
        }
        if let Some(value) = value {
            writer.set(key, value);
        }
        let bytes = writer.to_bytes().expect("writes");
        let header = GgufFile::parse(&bytes).expect("parses");
        let (known, _) = checkpoint(&golden("llama").join("model.gguf"));
        let checkpoint = Checkpoint::from_gguf(&header.metadata, known.index);
        checkpoint.and_then(|c| build(&c)).map_err(|e| e.to_string()).err()
    };
    assert_eq!(refused("llama.vocab_size", None), None, "the table's rows are the vocabulary");
    for (key, value, expected) in [
        ("general.architecture", None, "the checkpoint names no architecture"),
        ("general.architecture", Some(Gguf::String("rwkv".into())), "unknown architecture `rwkv`"),
        ("llama.block_count", None, "config key `num_hidden_layers` is missing"),
        ("llama.block_count", Some(Gguf::I32(-1)), "config key `num_hidden_layers`: expected a positive integer"),
        ("llama.attention.layer_norm_rms_epsilon", Some(Gguf::F32(f32::NAN)), "config key `rms_norm_eps` is missing"),
        ("llama.expert_count", Some(Gguf::U32(8)), "config key `num_experts_per_tok` is missing"),
        ("llama.rope.scaling.type", Some(Gguf::String("su".into())), "config key `rope_scaling.rope_type`"),
        ("llama.attention.value_length", Some(Gguf::U32(8)), "config key `value_head_dim`: expected 16"),
        ("llama.rope.dimension_count", Some(Gguf::U32(7)), "config key `rotary_dim`: expected an even number"),
    ] {
        let error = refused(key, value).unwrap_or_else(|| panic!("{key}: accepted"));
        assert!(error.starts_with(expected), "{key}: {error}");
    }
}

#[test]
fn centred_norms_are_centred_in_one_container_only() {
    let mut model = tiny(Architecture::Gemma3).checkpoint();
    let weight = |c: &Checkpoint| match build(c).expect("builds").exit {
        Exit::Norm(norm) => norm.weight.map(|w| w.to_string()),
        Exit::Hyper(_) => None,
    };
    assert_eq!(weight(&model).as_deref(), Some("1 + model.norm.weight"));
    model.container = Container::Gguf;
    assert_eq!(weight(&model).as_deref(), Some("model.norm.weight"));
}
