//! Calls that cannot work: which exit code, and what the message says.

use crate::support::Desk;
use testkit::golden;

#[test]
fn malformed_calls_exit_with_2() {
    let desk = Desk::new();
    desk.write("a.json", r#"{"text": "x"}"#);
    let m = "scripted:a.json";
    let cases: &[(&[&str], &str)] = &[
        (&["dance"], "unrecognized subcommand"),
        (&["run", m, "hi", "--loud"], "unexpected argument '--loud'"),
        (&["run", m, "hi", "--temperature", "-1"], "at least 0"),
        (&["run", m, "hi", "--temperature", "warm"], "expected a number"),
        (&["run", m, "hi", "--top-p", "nan"], "--top-p"),
        (&["run", m, "hi", "--min-p", "1.5"], "from 0 (off) to 1"),
        (&["run", m, "hi", "--repetition-penalty", "0"], "greater than 0"),
        (&["run", m, "hi", "--presence-penalty", "-2.5"], "from -2 to 2"),
        (&["run", m, "hi", "--frequency-penalty", "3"], "from -2 to 2"),
        (&["run", m, "hi", "--top-k", "-1"], "--top-k"),
        (&["run", m, "hi", "--max-new", "0"], "at least 1"),
        (&["run", m, "hi", "--seed", "x"], "--seed"),
        (&["run", m, "hi", "--stop", ""], "every answer"),
        (&["run", m, "hi", "--ctx", "0"], "at least 1"),
        (&["run", m, "hi", "--threads", "0"], "at least 1"),
        (&["run", m, "hi", "--prefill-chunk", "0"], "at least 1"),
        (&["run", m, "hi", "--memory", "lots"], "4GiB"),
        (&["run", m, "hi", "--device", "abacus"], "cpu, reference"),
        (&["run", m, "hi", "--kv", "q1"], "f32, f16, q8, q4, tq4, tq3, tq2 or tq3.5"),
        (&["run", m, "hi", "--kv", "q4,0"], "LAYER=TYPE"),
        (&["run", m, "hi", "--kv", "auto:much"], "expected a size"),
        (&["run", m, "hi", "--quiet", "--quiet"], "cannot be used multiple times"),
        (&["run", m, "hi", "--interactive"], "leave the prompt out"),
        (&["run", m, "--interactive", "--json"], "--json needs a prompt"),
        (&["run", "--model", m, m, "hi"], "named twice"),
        (&["run", m, "hi", "--prompt", "x"], "unexpected argument '--prompt'"),
        (&["complete", m], "--prompt TEXT"),
        (&["complete"], "MODEL"),
        (&["complete", m, "text"], "one word too many"),
        (&["complete", m, "-", "--prompt", "x"], "cannot be used with"),
        (&["complete", m, "--prompt", "x", "--prompt-file", "y"], "cannot be used with"),
        (&["complete", "--model", m, m, "--prompt", "x"], "named twice"),
        (&["complete", m, "--prompt", "x", "--system", "y"], "unexpected argument '--system'"),
        (&["complete", m, "--prompt", "x", "--hide-reasoning"], "unexpected argument"),
        (&["pull"], "MODEL"),
        (&["pull", "smollm2", "--temperature", "1"], "unexpected argument"),
        (&["pull", "--model", "smollm2", "smollm2"], "cannot be used with"),
        (&["list", "--threads", "2"], "unexpected argument"),
        (&["rm"], "MODEL"),
        (&["path", "a", "b"], "unexpected argument"),
        (&["inspect", m, "--temperature", "1"], "unexpected argument"),
        (&["inspect"], "MODEL"),
        (&["tokenize", m], "a MODEL and a TEXT"),
        (&["tokenize", "--model", m, m, "x"], "named twice"),
        (&["tokenize", m, "x", "--kv", "f16"], "unexpected argument"),
        (&["logits", m], "--tokens"),
        (&["logits", m, "--tokens", "1,x"], "separated by commas"),
        (&["logits", m, "--tokens", ""], "separated by commas"),
        (&["logits", m, "--tokens", "1", "--seed", "1"], "unexpected argument"),
        (&["bench", m, "--tg", "0"], "at least 1"),
        (&["bench", m, "--stop", "x"], "unexpected argument"),
        (&["perplexity", m], "--text"),
        (&["perplexity", m, "--text", "x", "--tg", "1"], "unexpected argument"),
        (&["devices", "x"], "unexpected argument"),
        (&["selftest", "--device", "gpu"], "cpu, reference, cuda, cuda:N"),
        (&["selftest", "--only", "all"], "steps, golden, exact"),
        (&["completions", "cobol"], "SHELL"),
        (&["completions", "bash", "--home", "x"], "unexpected argument"),
    ];
    for (call, text) in cases {
        desk.run(call).fails(2, &[text]);
    }
    // A build without GPUs says how to make one with them.
    if cfg!(not(feature = "cuda")) {
        desk.run(&["run", m, "hi", "--device", "cuda"]).fails(2, &["--features cuda", "--device cpu"]);
        desk.run(&["bench", m, "--device", "cuda:1"]).fails(2, &["--features cuda"]);
    }
}

#[test]
fn failures_exit_with_1_and_one_line() {
    let desk = Desk::new();
    desk.write("a.json", r#"{"text": "x"}"#);
    desk.write("file", "");
    let model = golden("llama").join("model.gguf").display().to_string();
    let bytes = std::fs::read(&model).expect("the golden model");
    desk.write("header.gguf", &bytes[..1000]);
    desk.write("cut.gguf", &bytes[..bytes.len() - 1000]);
    desk.write("empty.gguf", "");
    desk.write("broken.json", "{");
    desk.write("latin1.txt", b"caf\xe9");
    std::fs::create_dir(desk.path().join("folder")).expect("made");
    let m = "scripted:a.json";
    let cases: &[(&[&str], &[&str])] = &[
        (&["run", "smolm2", "hi"], &["smolm2", "Did you mean smollm2?", "Known: smollm2", "turbospark run smollm2"]),
        (&["run", "hello"], &["no model is called \"hello\"", "turbospark run smollm2"]),
        (&["complete", "smolm2", "--prompt", "x"], &["Did you mean smollm2?"]),
        (&["run", "./none.gguf", "hi"], &["no model at ./none.gguf"]),
        (&["run", "hf:nothing", "hi"], &["owner or the repository is missing"]),
        (&["run", "scripted:none.json", "hi"], &["none.json"]),
        (&["run", "scripted:broken.json", "hi"], &["broken.json", "expected JSON"]),
        (&["run", "header.gguf", "hi"], &["truncated or damaged"]),
        (&["run", "cut.gguf", "hi"], &["cut.gguf"]),
        (&["run", "empty.gguf", "hi"], &["empty.gguf"]),
        (&["run", "folder", "hi"], &["folder"]),
        (&["selftest", "--golden", "nowhere"], &["no golden models in nowhere", "crates/testkit/golden"]),
        (&["run", m, ""], &["the prompt is empty"]),
        (&["run", m, " \n"], &["the prompt is empty"]),
        (&["run", m, "-"], &["the prompt is empty"]),
        (&["run", m], &["the prompt is empty"]),
        (&["complete", m, "--prompt", ""], &["the prompt is empty"]),
        (&["complete", m, "-"], &["the prompt is empty"]),
        (&["complete", m, "--prompt-file", "none.txt"], &["cannot read none.txt"]),
        (&["complete", m, "--prompt-file", "latin1.txt"], &["latin1.txt is not UTF-8", "offset 3"]),
        (&["run", &model, "hi"], &["no chat template", "turbospark complete"]),
        (&["complete", &model, "--prompt", "x", "--ctx", "9999"], &["9999", "512"]),
        (&["complete", &model, "--prompt", "x", "--memory", "1KiB"], &["needs", "--memory"]),
        (&["complete", &model, "--prompt", "x", "--max-new", "600"], &["600", "context holds 512"]),
        (&["logits", &model, "--tokens", "1,99999"], &["99999", "256"]),
        (&["logits", &model, "--tokens", "1", "--out", "no/such/folder/x"], &["no/such/folder/x"]),
        (&["perplexity", &model, "--text", "none.txt"], &["cannot read none.txt"]),
        (&["inspect", m], &["scripted"]),
        (&["pull", "smollm2", "--home", "file"], &["file"]),
        (&["pull", "./x.gguf"], &["nothing to fetch"]),
        (&["pull", "nonsense"], &["Known: smollm2"]),
        (&["rm", "smollm2"], &["smollm2 is not pulled"]),
        (&["rm", "nonsense"], &["nonsense"]),
        (&["path", "smollm2"], &["turbospark pull smollm2"]),
    ];
    for (call, texts) in cases {
        desk.run(call).fails(1, texts);
    }
}

#[test]
fn a_prompt_longer_than_the_context_names_the_numbers() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "x", "context": 100}"#);
    let long = "word ".repeat(1000);
    desk.run(&["complete", &m, "--prompt", &long]).fails(1, &["5000 tokens", "context holds 100", "--ctx"]);
}

#[test]
fn without_a_command_the_help_is_an_error() {
    let desk = Desk::new();
    let outcome = desk.run::<&str>(&[]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.err.contains("Usage: turbospark <COMMAND>"), "{outcome:?}");
}
