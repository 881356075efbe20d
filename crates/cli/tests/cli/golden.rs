//! Real forward passes over the tiny golden models.

use crate::support::Desk;
use testkit::{Expected, families, golden, with_whole};
use weights::safetensors::SafetensorsFile;

#[test]
fn logits_are_the_expected_ones_whatever_the_chunk() {
    let desk = Desk::new();
    for file in families().into_iter().filter(|file| file.path().exists() && !file.file.contains("mxfp4")) {
        let Expected { tokens, vocab, .. } = file.expected();
        let ids = tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let model = file.path();
        for flags in [&["--prefill-chunk", "7"][..], &["--threads", "1"], &["--device", "reference"]] {
            let mut command = desk.turbospark();
            command.arg("logits").arg("--model").arg(&model).args(["--tokens", &ids, "--out", "l.safetensors"]);
            command.args(["--kv", "f32"]).args(flags).assert().success().stdout("");
            let written = SafetensorsFile::open(&desk.path().join("l.safetensors")).expect("a safetensors file");
            let tensor = |name| written.weights().require(name).expect("a tensor");
            assert_eq!(tensor("logits").shape(), [tokens.len(), vocab]);
            let fed: Vec<i64> = tokens.iter().map(|id| i64::from(*id)).collect();
            assert_eq!(tensor("tokens").to_i64().expect("integers"), fed);
            let errors = file.errors(&tensor("logits").to_f32().expect("f32"));
            assert!(errors.iter().all(|error| *error <= 1e-3), "{} {flags:?}: {errors:?}", model.display());
        }
    }
}

/// The number in the message then loads, and the smallest contexts work or are refused with a sum of their own.
#[test]
fn d31_a_context_that_does_not_fit_is_refused_with_one_that_does() {
    let desk = Desk::new();
    let model = golden("llama").join("model.gguf");
    let complete = |flags: &[&str]| {
        let mut call = vec!["complete", model.to_str().expect("UTF-8"), "--max-new", "1", "--quiet"];
        call.extend(flags);
        desk.run(&call)
    };
    for context in ["1099511627776", "9223372036854775808"] {
        complete(&["--prompt", "x", "--ctx", context]).fails(1, &[context, "trained for 512"]);
    }
    // As much as the trained context takes, but for 400 positions.
    let json = desk.run(&["inspect".as_ref(), model.as_os_str(), "--json".as_ref()]).json();
    let contexts = json["memory"].as_array().expect("contexts");
    let full = contexts.iter().find(|memory| memory["context"] == 512).expect("the trained one");
    let bytes = |key: &str| full[key].as_u64().expect("bytes");
    let memory = (bytes("total") - 400 * bytes("per_position")).to_string();
    let refused = complete(&["--prompt", "x", "--ctx", "512", "--memory", &memory]);
    let fits = refused.err.split("a context of ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let fits = fits.to_owned();
    assert!(fits.parse::<usize>().is_ok_and(|fits| (96..=128).contains(&fits)), "{refused:?}");
    refused.fails(1, &["the model needs", "may be used", "512 positions", "--ctx", "--memory"]);
    complete(&["--prompt", "x", "--ctx", &fits, "--memory", &memory]).success();
    // Unset, it is fitted.
    complete(&["--prompt", "x", "--memory", &memory]).success();
    complete(&["--prompt", "a prompt longer than this", "--ctx", "8"]).fails(1, &["but the context holds 8"]);
    for context in 2..=16 {
        complete(&["--prompt", "x", "--ctx", &context.to_string()]).success();
    }
    complete(&["--prompt", "x", "--ctx", "1"]).fails(1, &["an answer needs at least one"]);
}

#[test]
fn logits_print_the_five_best() {
    let desk = Desk::new();
    let model = golden("llama").join("model.gguf");
    let out = desk.run(&["logits".as_ref(), model.as_os_str(), "--tokens".as_ref(), "1, 2,3".as_ref()]).success();
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), 3);
    for (position, line) in lines.iter().enumerate() {
        assert_eq!(line[0], position.to_string());
        assert_eq!(line.len(), 2 + 5);
        let values: Vec<f32> =
            line[2..].iter().map(|c| c.split_once(':').expect("id:logit").1.parse().expect("f32")).collect();
        assert!(values.is_sorted_by(|a, b| a >= b), "{values:?}");
    }
}

#[test]
fn tokens_are_the_reference_tokenizers() {
    let desk = Desk::new();
    let expected = std::fs::read(golden("llama").join("tokenize.json")).expect("recorded tokens");
    let expected: serde_json::Value = serde_json::from_slice(&expected).expect("JSON");
    let model = golden("llama").join("model.gguf").display().to_string();
    for (text, ids) in expected.as_object().expect("an object") {
        let json = desk.run(&["tokenize", "--json", &model, "--", text]).json();
        assert_eq!(&json["ids"], ids, "{text:?}");
        let plain = desk.run(&["tokenize", "--model", &model, "--", text]).success();
        assert_eq!(plain.lines().count(), ids.as_array().expect("ids").len(), "{text:?}");
    }
}

#[test]
fn inspect_describes_and_adds_up() {
    let desk = Desk::new();
    let model = golden("llama").join("model.gguf").display().to_string();
    let json = desk.run(&["inspect", &model, "--json", "--plan", "--memory", "1MiB"]).json();
    assert_eq!(json["architecture"], "llama");
    assert_eq!(json["chat_template"], false);
    assert_eq!(json["stop_tokens"], serde_json::json!([[2, "</s>"]]));
    assert!(json["plan"].as_str().is_some_and(|plan| plan.contains("attend") && plan.contains("logits in")));
    let formats = json["formats"].as_object().expect("formats");
    let tensors: u64 = formats.values().map(|f| f["tensors"].as_u64().expect("a count")).sum();
    assert_eq!(tensors, 40);
    for memory in json["memory"].as_array().expect("contexts") {
        let n = |key: &str| memory[key].as_u64().expect("bytes");
        assert_eq!(n("total"), n("weights") + n("states") + n("slots"));
        assert_eq!(n("states"), n("per_position") * n("context"));
    }
    let text = desk.run(&["inspect", &model]).success();
    for row in ["architecture   llama", "BF16 ", "tokenizer      gpt2", "chat template  none", "fits "] {
        assert!(text.contains(row), "{row}: {text}");
    }
    let reference = desk.run(&["inspect", &model, "--device", "reference", "--json"]).json();
    assert_ne!(reference["memory"], json["memory"]);
}

#[test]
fn a_seeded_completion_is_the_same_for_every_chunk_and_thread_count() {
    let desk = Desk::new();
    let model = golden("llama").join("model.gguf").display().to_string();
    let prompt = "the thing on a hat. ".repeat(5);
    let complete = |flags: &[&str]| {
        let call = ["complete", &model, "--prompt", &prompt, "--json", "--seed", "11", "--max-new", "24"];
        desk.run(&[&call, flags].concat()).json()["ids"].clone()
    };
    let expected = complete(&[]);
    assert!(!expected.as_array().expect("ids").is_empty());
    for flags in [["--prefill-chunk", "1"], ["--prefill-chunk", "7"], ["--threads", "1"], ["--threads", "3"]] {
        assert_eq!(complete(&flags), expected, "{flags:?}");
    }
    assert_ne!(complete(&["--temperature", "2", "--top-p", "1"]), expected);
}

#[test]
fn a_checkpoint_can_be_rounded_while_it_is_loaded() {
    let desk = Desk::new();
    let model = golden("qwen3_moe").join("model.safetensors").display().to_string();
    let memory = |flags: &[&str]| {
        let json = desk.run(&[&["inspect", &model, "--json"], flags].concat()).json();
        json["memory"][0]["weights"].as_u64().expect("bytes")
    };
    let (plain, q8, q4) = (memory(&[]), memory(&["--quantize", "q8_0"]), memory(&["--quantize", "Q4_0"]));
    assert!(q4 < q8 && q8 < plain, "{q4}, {q8}, {plain}");
    let logits = |flags: &[&str]| desk.run(&[&["logits", &model, "--tokens", "1,2,3"], flags].concat()).success();
    assert_ne!(logits(&["--quantize", "q8_0"]), logits(&[]));
    let verbose = desk.run(&["logits", &model, "--tokens", "1", "--quantize", "q8_0", "--verbose"]);
    for part in ["rounded to Q8_0", "stay as they are stored"] {
        assert!(verbose.err.contains(part), "{part}: {verbose:?}");
    }
    desk.run(&["logits", &model, "--tokens", "1", "--quantize", "iq3_s"]).fails(2, &["iq3_s", "q8_0, q4_0"]);
    let already = golden("llama_k256").join("model-Q4_0.gguf").display().to_string();
    desk.run(&["logits", &already, "--tokens", "1", "--quantize", "q8_0"]).fails(1, &["found Q4_0"]);
}

#[test]
fn tensors_that_nobody_reads_are_listed() {
    let desk = Desk::new();
    let file = SafetensorsFile::open(&golden("llama").join("model.safetensors")).expect("a checkpoint");
    let mut weights = file.weights().clone();
    for name in ["mtp.0.norm.weight", "mtp.1.norm.weight"] {
        weights.insert(weights::Tensor::from_f32(name, vec![4], &[1.0; 4]));
    }
    desk.write("config.json", std::fs::read_to_string(golden("llama").join("config.json")).expect("a config"));
    let tensors: Vec<_> = weights.iter().cloned().collect();
    weights::safetensors::write(&desk.path().join("model.safetensors"), &tensors, &Default::default())
        .expect("written");
    let model = desk.path().join("model.safetensors").display().to_string();
    let text = desk.run(&["inspect", &model]).success();
    assert!(text.contains("2 tensors that this model does not read: mtp.*.norm.weight (2)"), "{text}");
    let verbose = desk.run(&["logits", &model, "--tokens", "1", "--verbose"]);
    assert!(verbose.err.contains("mtp.*.norm.weight (2)"), "{verbose:?}");
}

#[test]
fn notes_of_the_model_are_warnings() {
    let desk = Desk::new();
    let outcome = with_whole(&golden("mistral").join("model.gguf"), |model| {
        desk.run(&["complete", &model.display().to_string(), "--prompt", "x", "--max-new", "1", "--temperature", "0"])
    });
    assert!(outcome.err.contains("warning: ") && outcome.err.contains("window"), "{outcome:?}");
}

#[test]
fn perplexity_against_itself_is_exact() {
    let desk = Desk::new();
    let folder = golden("llama");
    let model = folder.join("model.gguf").display().to_string();
    desk.write("text.txt", "the thing on a hat is not on the mat. ".repeat(10));
    let call = ["perplexity", &model, "--text", "text.txt", "--ctx", "64", "--json"];
    let json = desk.run(&[&call[..], &["--against", &model]].concat()).json();
    assert_eq!(
        (json["against"]["mean_kl"].as_f64(), json["against"]["top1_agreement"].as_f64()),
        (Some(0.0), Some(1.0))
    );
    assert_eq!(json["perplexity"], desk.run(&call).json()["perplexity"]);
    let json = with_whole(&golden("qwen2").join("model.gguf"), |other| {
        desk.run(&[&call[..], &["--against", &other.display().to_string()]].concat()).json()
    });
    assert!(json["against"]["mean_kl"].as_f64().is_some_and(|kl| kl > 0.1), "{json}");
    assert!(json["against"]["kl_standard_error"].as_f64().is_some_and(|e| e > 0.0), "{json}");
    // A file of logits is a reference as well, and gives the tokens where there is no text.
    let expected = folder.join("expected.safetensors").display().to_string();
    let json = desk.run(&["perplexity", &model, "--against", &expected, "--kv", "f32", "--json"]).json();
    assert!(json["against"]["mean_kl"].as_f64().is_some_and(|kl| kl < 1e-6), "{json}");
    desk.run(&[&call[..], &["--against", &expected]].concat()).fails(2, &["--ctx"]);
    desk.run(&["perplexity", &model, "--text", "text.txt", "--against", &expected]).fails(1, &["another text"]);
    desk.run(&["perplexity", &model, "--against", &model]).fails(2, &["--text is needed"]);
}

#[test]
fn bench_prints_one_json_line() {
    let desk = Desk::new();
    let model = golden("llama").join("model.gguf").display().to_string();
    let call = ["bench", "--model", &model, "--threads", "2", "--pp", "4,16", "--tg", "4", "--depth", "0,32"];
    let out = desk.run(&[&call[..], &["--reps", "2", "--json"]].concat()).success();
    assert_eq!(out.lines().count(), 1);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    for key in ["load_s", "first_s", "pp4", "pp16", "tg4@0", "tg4@32", "bandwidth_bytes_s"] {
        assert!(json[key].as_f64().is_some_and(|x| x > 0.0), "{key}: {json}");
    }
    for arm in ["tg4@0", "tg4@32"] {
        assert!(json["bandwidth_percent"][arm].as_f64().is_some_and(|x| x > 0.0), "{json}");
    }
    let bytes = |arm: &str| json["bytes_per_token"][arm].as_u64().expect("bytes");
    // 4 layers × 2 heads × 16 channels × keys and values × f16, at 32 positions more.
    assert_eq!(bytes("tg4@32") - bytes("tg4@0"), 32 * 4 * 2 * 16 * 2 * 2);
}

#[test]
fn bench_times_every_turn() {
    let desk = Desk::new();
    let model = golden("gemma3").join("model.safetensors").display().to_string();
    let call = ["bench", "--model", &model, "--turns", "3", "--reps", "1", "--pp", "8", "--tg", "8"];
    let json = desk.run(&[&call[..], &["--depth", "100", "--json"]].concat()).json();
    assert_eq!(json["first_token_s"].as_array().map(Vec::len), Some(3), "{json}");
    assert!(json["gain"].as_f64().is_some_and(|gain| gain > 0.0), "{json}");
    desk.run(&[&call[..], &["--depth", "5"]].concat()).fails(1, &["3 turns in 5 tokens", "at least 12"]);
}

#[test]
fn paths_need_not_be_ascii_nor_utf_8() {
    use std::ffi::OsString;
    let desk = Desk::new();
    let mut names = vec![OsString::from("größe 张 модель 🙂/a b")];
    #[cfg(unix)]
    names.push(std::os::unix::ffi::OsStringExt::from_vec(b"byte \xff".to_vec()));
    for name in names {
        let folder = desk.path().join(&name);
        std::fs::create_dir_all(&folder).expect("made");
        let model = folder.join("model.gguf");
        std::fs::copy(golden("llama").join("model.gguf"), &model).expect("copied");
        for path in [model.as_os_str(), folder.as_os_str(), name.as_os_str()] {
            let mut command = desk.turbospark();
            command.arg("complete").arg(path).args(["--prompt", "the", "--max-new", "2", "--home"]);
            command.arg(folder.join("home")).assert().success();
            desk.turbospark().arg("inspect").arg(path).assert().success();
        }
        let out = folder.join("logits.safetensors");
        desk.turbospark().arg("logits").arg(&model).args(["--tokens", "1,2", "--out"]).arg(&out).assert().success();
        assert!(out.is_file());
    }
}

#[test]
fn selftest_checks_golden_models_and_counts_what_fails() {
    let desk = Desk::new();
    let out = desk.run(&["selftest", "--device", "cpu", "--threads", "2", "--only", "golden"]).success();
    assert!(out.starts_with("cpu golden: golden models: ") && out.lines().count() == 1, "{out}");
    // Missing files end the part, and the command.
    std::fs::create_dir_all(desk.path().join("empty/llama")).expect("made");
    let outcome = desk.run(&["selftest", "--only", "golden", "--golden", "empty"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.out.contains("stopped: ") && outcome.err == "error: 1 checks of cpu failed\n", "{outcome:?}");
}

#[test]
fn devices_are_listed_with_why_not() {
    let desk = Desk::new();
    let out = desk.run(&["devices"]).success();
    assert!(out.contains("cpu ") && out.contains("reference") && out.contains("cuda"), "{out}");
    let json = desk.run(&["devices", "--json"]).json();
    assert_eq!(json[0]["name"], "cpu", "{json}");
}
