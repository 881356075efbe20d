//! `--prefix-memory` and `--prefix-cache`: what is kept of prompts and answers, from one call to the next.

use crate::support::{Desk, Outcome};
use std::fs;
use std::path::PathBuf;
use testkit::{golden, with_whole};
use weights::gguf::write::GgufWriter;
use weights::gguf::{GgufFile, Value};

const PROMPT: &str = "the thing on a hat is not on the mat. the mat is on the thing. the hat is not. ";

/// A golden model, lying on the desk.
fn model(desk: &Desk, name: &str) -> String {
    let name = format!("{name}.gguf");
    let (from, to) = (golden(name.trim_end_matches(".gguf")).join("model.gguf"), desk.path().join(&name));
    with_whole(&from, |from| fs::copy(from, to)).expect("copied");
    name
}

/// A greedy answer whose prompt is this.
fn complete(desk: &Desk, model: &str, prompt: &str, flags: &[&str]) -> Outcome {
    let call =
        ["complete", model, "--prompt", prompt, "--json", "--temperature", "0", "--max-new", "8", "--threads", "2"];
    desk.run(&[&call, flags].concat())
}

/// The tokens of the answer, and how many of the prompt's were reused.
fn answer(outcome: Outcome) -> (serde_json::Value, u64) {
    let json = outcome.json();
    (json["ids"].clone(), json["counts"]["reused"].as_u64().expect("a count"))
}

/// The files of the folder `kept`.
fn files(desk: &Desk) -> Vec<PathBuf> {
    fs::read_dir(desk.path().join("kept")).expect("made").map(|entry| entry.expect("readable").path()).collect()
}

const KEPT: [&str; 2] = ["--prefix-cache", "kept"];

#[test]
fn the_next_process_reads_only_what_is_new_and_answers_the_same() {
    // Full attention, windows, a recurrent hybrid.
    for name in ["llama", "mistral", "qwen3_5"] {
        let desk = Desk::new();
        let model = model(&desk, name);
        let longer = format!("{PROMPT}{PROMPT}");
        let cold: Vec<_> =
            [PROMPT, &longer].iter().map(|prompt| answer(complete(&desk, &model, prompt, &[]))).collect();
        assert_eq!(answer(complete(&desk, &model, PROMPT, &KEPT)), cold[0], "{name}");
        let tokens = complete(&desk, &model, PROMPT, &[]).json()["counts"]["prompt"].as_u64().expect("a count");
        for (prompt, cold) in [(PROMPT, &cold[0]), (&longer, &cold[1])] {
            let (ids, reused) = answer(complete(&desk, &model, prompt, &KEPT));
            assert_eq!((&ids, cold.1), (&cold.0, 0), "{name}");
            assert!(reused + 16 >= tokens, "{name}: {reused} of {tokens}");
        }
        // Kept under other types or directions it is another past.
        assert_eq!(answer(complete(&desk, &model, PROMPT, &[&KEPT[..], &["--kv", "f32"]].concat())).1, 0, "{name}");
        let verbose = complete(&desk, &model, PROMPT, &[&KEPT[..], &["--verbose"]].concat());
        for text in ["restored from kept", "1 of 1 prompts went on from one", "saved to kept", "nothing else needs"] {
            assert!(verbose.err.contains(text), "{text}: {verbose:?}");
        }
    }
}

#[test]
fn a_damaged_or_foreign_file_costs_a_warning_and_no_answer() {
    let desk = Desk::new();
    let model = model(&desk, "llama");
    let kept = |flags: &[&str]| complete(&desk, &model, PROMPT, &[&KEPT[..], flags].concat());
    let cold = answer(kept(&[]));
    let file = files(&desk).pop().expect("saved");
    let whole = fs::read(&file).expect("read");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (bytes, why) in [
        (flipped, "checksum"),
        (whole[..whole.len() / 2].to_vec(), "checksum"),
        (whole[..50].to_vec(), "cut short"),
        (b"somebody else's notes ".repeat(9), "no file of this version"),
        (Vec::new(), "cut short"),
    ] {
        fs::write(&file, bytes).expect("written");
        let outcome = kept(&[]);
        assert!(outcome.err.contains("is ignored") && outcome.err.contains(why), "{why}: {outcome:?}");
        assert_eq!(answer(outcome), cold, "{why}");
        // A good one has taken its place.
        let (ids, reused) = answer(kept(&[]));
        assert!(ids == cold.0 && reused > 0, "{why}: {reused}");
    }
    let outcome = kept(&["--prefix-disk", "1KiB"]);
    assert!(outcome.err.contains("1024 are allowed"), "{outcome:?}");
    assert_eq!(answer(outcome), cold);
    fs::remove_file(&file).expect("removed");
    fs::create_dir(&file).expect("made");
    let outcome = kept(&[]);
    assert!(outcome.err.contains("it is no file") && outcome.err.contains("is not saved"), "{outcome:?}");
    assert_eq!(answer(outcome), cold);
}

#[test]
fn what_cannot_be_saved_costs_a_warning_and_no_answer() {
    let desk = Desk::new();
    let model = model(&desk, "llama");
    desk.write("file", "");
    let cold = answer(complete(&desk, &model, PROMPT, &[]));
    for folder in ["file", "file/below"] {
        let outcome = complete(&desk, &model, PROMPT, &["--prefix-cache", folder]);
        assert!(outcome.err.contains("is not saved") && outcome.err.contains("choose another folder"), "{outcome:?}");
        assert_eq!(answer(outcome), cold);
    }
}

/// Files may have 8 KiB here, which ends a write as a full disk does.
#[cfg(unix)]
#[test]
fn a_disk_without_room_keeps_what_was_there_before() {
    let desk = Desk::new();
    let model = model(&desk, "llama");
    let kept = |prompt: &str| answer(complete(&desk, &model, prompt, &KEPT));
    let cold = kept(PROMPT);
    let before = fs::read(&files(&desk)[0]).expect("saved");
    assert!(before.len() > 8192);
    let program = assert_cmd::cargo::cargo_bin!("turbospark");
    let mut shell = desk.spawnable_as("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "sh"]).arg(program);
    shell.args(["complete", &model, "--prompt", "another prompt", "--max-new", "2"]).args(KEPT);
    let outcome = Outcome::of(shell.output().expect("runs"));
    assert!(outcome.code == Some(0) && outcome.err.contains("is not saved"), "{outcome:?}");
    let left = files(&desk);
    assert_eq!((left.len(), fs::read(&left[0]).expect("there")), (1, before));
    let (ids, reused) = kept(PROMPT);
    assert!(ids == cold.0 && reused > 0, "{reused}");
}

#[test]
fn processes_at_the_same_time_leave_one_whole_file() {
    let desk = Desk::new();
    let model = model(&desk, "llama");
    let cold = answer(complete(&desk, &model, PROMPT, &KEPT));
    let start = |_| {
        let mut command = desk.spawnable();
        command.args(["complete", &model, "--prompt", PROMPT, "--json", "--temperature", "0", "--max-new", "8"]);
        command.args(KEPT).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.spawn().expect("starts")
    };
    let running: Vec<_> = (0..4).map(start).collect();
    for child in running {
        let outcome = Outcome::of(child.wait_with_output().expect("ends"));
        assert!(!outcome.err.contains("warning"), "{outcome:?}");
        assert_eq!(answer(outcome).0, cold.0);
    }
    assert_eq!(files(&desk).len(), 1);
    assert!(answer(complete(&desk, &model, PROMPT, &KEPT)).1 > 0);
}

#[test]
fn a_session_goes_on_where_an_earlier_one_ended() {
    let desk = Desk::new();
    let golden = GgufFile::open(&golden("llama").join("model.gguf")).expect("a model");
    let mut talking = GgufWriter::new();
    for (key, value) in golden.metadata().iter() {
        talking.set(key, value.clone());
    }
    let template = "{% for message in messages %}{{ message['content'] }} {% endfor %}";
    talking.set("tokenizer.chat_template", Value::String(template.into()));
    for tensor in golden.weights().iter() {
        talking.tensor(tensor.clone());
    }
    talking.write(&desk.path().join("talking.gguf")).expect("written");
    let talk = |lines: &str| {
        let call =
            ["run", "talking.gguf", "--interactive", "--max-new", "3", "--temperature", "0", "--prefix-cache", "kept"];
        desk.pipe(&call, lines)
    };
    let first = talk(&format!("{PROMPT}\n/quit\n"));
    let second = talk(&format!("{PROMPT}\n"));
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{first:?} {second:?}");
    assert_eq!(first.out, second.out);
    assert!(!first.err.contains("reused") && second.err.contains("reused"), "{first:?} {second:?}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let desk = Desk::new();
    let model = model(&desk, "llama");
    let script = desk.script(r#"{"text": "x"}"#);
    for flags in [&["--prefix-memory", "1MiB"][..], &["--prefix-cache", "kept"]] {
        let run = [&["run", &model, "hi", "--session-slots", "2"], flags].concat();
        desk.run(&run).fails(1, &["a session pool parks whole conversations", "leave --session-slots"]);
        complete(&desk, &model, "x", &[flags, &["--capture", "ffn=f"]].concat()).fails(1, &["leave --capture"]);
        complete(&desk, &script, "x", flags).fails(1, &["a scripted model has no states"]);
    }
    complete(&desk, &model, "x", &["--prefix-memory", "off", "--prefix-cache", "kept"]).fails(1, &["nothing is kept"]);
    complete(&desk, &model, "x", &["--prefix-disk", "1MiB"]).fails(2, &["--prefix-cache"]);
    complete(&desk, &model, "x", &["--prefix-memory", "0"]).fails(2, &["expected a size", "or off"]);
    assert!(!desk.path().join("kept").exists());
    // Off goes with everything.
    complete(&desk, &model, "x", &["--prefix-memory", "off", "--capture", "ffn=f"]).success();
    complete(&desk, &script, "x", &["--prefix-memory", "off"]).success();
}

#[test]
fn inspect_counts_what_is_kept() {
    let desk = Desk::new();
    let [llama, hybrid] = ["llama", "qwen3_5"].map(|name| model(&desk, name));
    let inspect = |name: &str, flags: &[&str]| {
        let json = desk.run(&[&["inspect", name, "--json"], flags].concat()).json();
        let all = json["memory"].as_array().expect("contexts");
        (all.last().expect("one")["total"].as_u64().expect("bytes"), json["prefix_cache"].clone())
    };
    for (name, beside) in [(&llama, false), (&hybrid, true)] {
        let (on, said) = inspect(name, &[]);
        let (off, silent) = inspect(name, &["--prefix-memory", "off"]);
        assert_eq!(on - off, said["beside"].as_u64().expect("bytes"), "{name}");
        assert_eq!((on > off, &said["on"], &silent["on"]), (beside, &true.into(), &false.into()), "{name}");
        assert_eq!(inspect(name, &["--prefix-memory", "2MiB"]).1["limit"], 2 << 20);
    }
    let text = desk.run(&["inspect", &hybrid, "--prefix-memory", "2MiB"]).success();
    assert!(text.contains("prefix cache   beginnings of prompts are kept in at most 2.0 MiB"), "{text}");
    let text = desk.run(&["inspect", &llama, "--prefix-memory", "off"]).success();
    assert!(text.contains("prefix cache   no beginnings of prompts are kept"), "{text}");
}
