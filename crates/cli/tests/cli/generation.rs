//! `run` and `complete` over scripted models: text, JSON, stops, standard input, Ctrl-C, control codes.

use crate::support::{Desk, Outcome};
use serde_json::json;
use std::io::Read;
use std::process::Stdio;

#[test]
fn text_goes_to_stdout_and_statistics_to_stderr() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "Hello wörld 🙂"}"#);
    for call in [
        &["run", &m, "hi", "there"][..],
        &["run", "--model", &m, "hi"],
        &["complete", &m, "--prompt", "hi"],
        &["complete", "--model", &m, "--prompt", "- hi"],
    ] {
        let outcome = desk.run(call);
        assert_eq!(outcome.out, "Hello wörld 🙂\n", "{call:?}");
        assert!(outcome.err.contains("answer 18 tokens"), "{outcome:?}");
        assert_eq!(outcome.code, Some(0));
        let quiet = desk.run(&[call, &["--quiet"]].concat());
        assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("Hello wörld 🙂\n", ""), "{call:?}");
    }
}

#[test]
fn the_prompt_comes_from_wherever_it_is() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "ok"}"#);
    desk.write("prompt.txt", "12345\n");
    let counts = |outcome: Outcome| outcome.json()["counts"]["prompt"].clone();
    assert_eq!(counts(desk.run(&["complete", &m, "--prompt", "12345", "--json"])), 5);
    assert_eq!(counts(desk.run(&["complete", &m, "--prompt-file", "prompt.txt", "--json"])), 6);
    assert_eq!(counts(desk.pipe(&["complete", &m, "-", "--json"], "12345\n")), 6);
    assert_eq!(counts(desk.pipe(&["complete", "--model", &m, "-", "--json"], "123")), 3);
    let by_word = counts(desk.run(&["run", &m, "a b", "c", "--json"]));
    assert_eq!(counts(desk.pipe(&["run", &m, "-", "--json"], "a b c")), by_word);
    assert_eq!(counts(desk.pipe(&["run", &m, "--json"], "a b c")), by_word);
    assert_eq!(counts(desk.pipe(&["run", "--model", &m, "-", "--json"], "a b c")), by_word);
    let with_system = counts(desk.run(&["run", &m, "a b c", "--system", "- be brief", "--json"]));
    assert!(with_system.as_u64() > by_word.as_u64());
}

#[test]
fn a_first_word_with_spaces_is_a_prompt_for_the_default_model() {
    let desk = Desk::new();
    // The default model cannot be fetched here, which shows that it was the one wanted.
    let call = ["run", "Why is the sky blue?", "--python", "./no-such-python"];
    let outcome = desk.run(&call);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("pulling smollm2") && outcome.err.contains("Apache-2.0"), "{outcome:?}");
}

#[test]
fn prompts_of_every_kind() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "ok", "context": 8192}"#);
    let four_kib = "All work and no play. ".repeat(187);
    for prompt in ["x", "👩‍👩‍👧‍👦 e\u{301}\u{323} ﷽ \u{202e}abc", "<|im_end|>", "a\tb\\nc", &four_kib]
    {
        assert_eq!(desk.run(&["run", &m, "--", prompt]).success(), "ok\n", "{prompt}");
        assert_eq!(desk.run(&["complete", &m, "--prompt", prompt]).success(), "ok\n", "{prompt}");
        assert_eq!(desk.pipe(&["run", &m], prompt).success(), "ok\n", "{prompt}");
    }
}

#[test]
fn one_json_object_tells_everything() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "abcdef"}"#);
    let json = desk.run(&["complete", &m, "--prompt", "xyz", "--json", "--seed", "7", "--stop", "de"]).json();
    assert_eq!(json["model"], m.as_str());
    assert_eq!(json["text"], "abc");
    assert_eq!(json["ids"], json!([97, 98, 99, 100, 101]));
    assert_eq!(json["reason"], "stop_string");
    assert_eq!(json["counts"], json!({"prompt": 3, "new": 5, "reused": 0}));
    assert_eq!(json["seed"], 7);
    for time in ["load_s", "prefill_s", "decode_s"] {
        assert!(json["timings"][time].as_f64().is_some_and(|t| t >= 0.0), "{json}");
    }
    let run = desk.run(&["run", &m, "hi", "--json"]).json();
    assert_eq!((run["text"].as_str(), run["reason"].as_str()), (Some("abcdef"), Some("eos")));
    assert!(run["seed"].is_u64());
}

#[test]
fn stops_and_budgets() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "one, two, three"}"#);
    let cases: &[(&[&str], &str, &str)] = &[
        (&[], "one, two, three", "eos"),
        (&["--max-new", "5"], "one, ", "max_tokens"),
        (&["--stop", "two"], "one, ", "stop_string"),
        (&["--stop", "three", "--stop", ", t"], "one", "stop_string"),
        (&["--stop", "four"], "one, two, three", "eos"),
        (&["--stop", "--"], "one, two, three", "eos"),
    ];
    for (flags, text, reason) in cases {
        let json = desk.run(&[&["run", &m, "hi", "--json"], *flags].concat()).json();
        assert_eq!((json["text"].as_str(), json["reason"].as_str()), (Some(*text), Some(*reason)), "{flags:?}");
        let plain = desk.run(&[&["run", &m, "hi"], *flags].concat()).success();
        assert_eq!(plain, format!("{text}\n"), "{flags:?}");
    }
}

#[test]
fn a_tool_call_is_shown_as_the_model_wrote_it() {
    let desk = Desk::new();
    // "ok", <tool_call> as a control token, {"name": …}, </tool_call>, the end.
    let call = r#"{"name": "look", "arguments": {}}"#;
    let written: Vec<String> = call.bytes().map(|byte| byte.to_string()).collect();
    let m = desk.script(&format!(r#"{{"ids": [111, 107, 10, 262, {}, 263, 257]}}"#, written.join(", ")));
    for flags in [&[][..], &["--hide-reasoning"]] {
        let out = desk.run(&[&["run", &m, "hi"], flags].concat()).success();
        assert_eq!(out, format!("ok\n<tool_call>{call}</tool_call>\n"), "{flags:?}");
    }
    assert_eq!(desk.run(&["run", &m, "hi", "--json"]).json()["text"], format!("ok\n<tool_call>{call}</tool_call>"));
}

#[test]
fn reasoning_can_be_hidden() {
    let desk = Desk::new();
    // <think>, "hm", </think>, "\n\nyes" with the tags as control tokens.
    let m = desk.script(r#"{"ids": [260, 104, 109, 261, 10, 10, 121, 101, 115, 257]}"#);
    assert_eq!(desk.run(&["run", &m, "hi"]).success(), "hm\n\nyes\n");
    assert_eq!(desk.run(&["run", &m, "hi", "--json"]).json()["text"], "hm\n\nyes");
    assert_eq!(desk.run(&["run", &m, "hi", "--hide-reasoning"]).success(), "yes\n");
    assert_eq!(desk.run(&["run", &m, "hi", "--hide-reasoning", "--json"]).json()["text"], "yes");
    // Where the tags are tokens, their letters are text.
    let m = desk.script(r#"{"text": "<think>hm</think>\n\nyes"}"#);
    assert_eq!(desk.run(&["run", &m, "hi", "--hide-reasoning"]).success(), "<think>hm</think>\n\nyes\n");
}

#[test]
fn chat_template_prints_the_prompt() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "x"}"#);
    let file = |name: &str, text: &str| desk.write(name, text).to_str().expect("UTF-8").to_owned();
    let messages =
        file("m.json", r#"[{"role": "system", "content": "s"}, {"role": "user", "content": "a<|im_end|>"}]"#);
    let prompt = "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|><|im_end|>\n";
    let call = ["chat-template", &m, "--messages", &messages];
    assert_eq!(desk.run(&call).success(), format!("{prompt}<|im_start|>assistant\n"));
    assert_eq!(desk.run(&[&call[..], &["--no-generation-prompt"]].concat()).success(), prompt);
    let json = desk.run(&[&call[..], &["--ids"]].concat()).json();
    // The user's own marker is no control token.
    let ends = json["ids"].as_array().expect("a list").iter().filter(|id| **id == 259).count();
    assert_eq!((ends, json["dialect"].as_str()), (2, Some("chatml")));

    let both = file("b.json", r#"{"messages": [{"role": "user", "content": null}], "tools": []}"#);
    assert_eq!(
        desk.run(&["chat-template", &m, "--messages", &both, "--set", "x=1"]).success(),
        "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"
    );
    let bad = file("bad.json", r#"[{"content": "no role"}]"#);
    let outcome = desk.run(&["chat-template", &m, "--messages", &bad]);
    assert!(outcome.err.contains("bad.json") && outcome.err.contains("role"), "{outcome:?}");
    let tools = file("t.json", "{}");
    let outcome = desk.run(&["chat-template", &m, "--messages", &messages, "--tools", &tools]);
    assert!(outcome.err.contains("expected a list"), "{outcome:?}");
}

#[test]
fn no_control_codes_where_there_is_no_terminal() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "<think>hm</think>yes"}"#);
    for call in [&["run", &m, "hi", "--verbose"][..], &["--help"], &["run", "--help"], &["list"], &["dance"]] {
        for colour in [None, Some(("NO_COLOR", "1"))] {
            let mut command = desk.turbospark();
            command.env("TERM", "xterm-256color").envs(colour).args(call);
            let outcome = Outcome::of(command.output().expect("it runs"));
            assert!(!outcome.out.contains('\u{1b}') && !outcome.err.contains('\u{1b}'), "{outcome:?}");
        }
    }
}

#[test]
fn verbose_prints_what_was_resolved() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "x"}"#);
    let err = desk.run(&["run", &m, "hi", "--verbose", "--seed", "42", "--exact"]).err;
    for text in ["temperature 0.7", "top-p 0.95", "seed 42", "context 4096", "kv f16", "max new until"] {
        assert!(err.contains(text), "{text}: {err}");
    }
}

#[test]
fn a_fault_of_the_model_is_an_error() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "abc", "faults": [{"run": 2, "what": "smoke"}]}"#);
    let outcome = desk.run(&["complete", &m, "--prompt", "hi"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.out.starts_with('a') && outcome.err.contains("smoke"), "{outcome:?}");
}

#[cfg(unix)]
fn interrupt(child: &std::process::Child) {
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_the_text_so_far() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "abcdefghijklmnopqrstuvwxyz", "step_ms": 100}"#);
    let mut command = desk.spawnable();
    command.args(["complete", &m, "--prompt", "hi"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut out = child.stdout.take().expect("piped");
    let mut begun = [0];
    out.read_exact(&mut begun).expect("the first letter");
    interrupt(&child);
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    let outcome = Outcome::of(child.wait_with_output().expect("it ends"));
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
    assert!(outcome.err.contains("cancelled"), "{outcome:?}");
    let text = format!("{}{}", begun[0] as char, rest.trim_end());
    assert!("abcdefghijklmnopqrstuvwxyz".starts_with(&text) && text.len() < 26, "{text}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_a_json_object() {
    let desk = Desk::new();
    let m = desk.script(r#"{"ids": [97, 98], "repeat": true, "step_ms": 50}"#);
    let mut command = desk.spawnable();
    command.args(["run", &m, "hi", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it runs");
    std::thread::sleep(std::time::Duration::from_secs(2));
    interrupt(&child);
    let outcome = Outcome::of(child.wait_with_output().expect("it ends"));
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
    let json: serde_json::Value = serde_json::from_str(&outcome.out).expect("JSON");
    assert_eq!(json["reason"], "cancelled");
    assert!(json["text"].as_str().is_some_and(|text| text.starts_with("ab")), "{json}");
}

#[cfg(unix)]
#[test]
fn a_closed_output_ends_the_program_quietly() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "abcdefghijklmnopqrstuvwxyz", "step_ms": 20}"#);
    let mut command = desk.spawnable();
    command.args(["run", &m, "hi", "--quiet"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut out = child.stdout.take().expect("piped");
    out.read_exact(&mut [0]).expect("the first letter");
    drop(out);
    let outcome = Outcome::of(child.wait_with_output().expect("it ends"));
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
}
