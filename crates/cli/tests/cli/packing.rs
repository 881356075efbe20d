//! `pack`, `verify`, and packed models where any model is taken.

use crate::support::Desk;
use std::process::Stdio;
use std::time::{Duration, Instant};
use testkit::{Random, golden, smollm2};

#[test]
fn a_packed_model_answers_as_its_source() {
    let desk = Desk::new();
    let source = golden("qwen3_moe").join("model.safetensors").display().to_string();
    let outcome = desk.run(&["pack", &source, "moe.gturbo"]);
    assert!(outcome.err.contains("moe.gturbo: ") && outcome.err.contains("BF16"), "{outcome:?}");
    outcome.success();
    let logits = |model: &str| desk.run(&["logits", model, "--tokens", "1,2,3,4,5", "--verify", "full"]);
    let packed = logits("moe.gturbo").success();
    assert_eq!(packed, desk.run(&["logits", &source, "--tokens", "1,2,3,4,5"]).success());
    logits(&source).fails(1, &["has no hashes", "turbospark pack"]);
    assert!(desk.run(&["inspect", "moe.gturbo"]).success().contains("architecture   Qwen3Moe"));
    let json = desk.run(&["verify", "moe.gturbo", "--json"]).json();
    assert_eq!((json["damaged"].as_array().map(Vec::len), json["repaired"].as_bool()), (Some(0), Some(false)));
    // A byte changes: named, refused where all is checked, repaired.
    let resident = desk.path().join("moe.gturbo/resident.bin");
    let mut bytes = std::fs::read(&resident).expect("a file");
    bytes[1234] ^= 1;
    std::fs::write(&resident, bytes).expect("written");
    let found = desk.run(&["verify", "moe.gturbo"]);
    assert!(found.code == Some(1) && found.out.contains("resident.bin bytes 0.."), "{found:?}");
    assert!(found.err.contains("1 damaged parts; repair them with --repair SRC"), "{found:?}");
    logits("moe.gturbo").fails(1, &["resident.bin", "--repair"]);
    let mended = desk.run(&["verify", "moe.gturbo", "--repair", &source]);
    assert!(mended.code == Some(0) && mended.err.contains("all repaired"), "{mended:?}");
    assert_eq!(logits("moe.gturbo").success(), packed);
}

#[test]
fn bad_calls_of_pack_are_refused() {
    let desk = Desk::new();
    let source = golden("llama").join("model.safetensors").display().to_string();
    desk.run(&["pack", &source, "out.bin"]).fails(2, &["OUT ends in .gturbo or .gguf", "out.bin"]);
    desk.run(&["pack", &source, "out.gguf"]).fails(1, &["cannot become a GGUF file"]);
    desk.run(&["pack", &source, "out.gturbo", "--quantize", "q9"]).fails(2, &["q9", "q8_0"]);
    desk.run(&["pack", &source, "out.gturbo", "--keep", "x"]).fails(2, &["TENSOR=TYPE"]);
    desk.run(&["pack", &source, "out.gturbo", "--keep", "nothing=q8_0"]).fails(1, &["nothing"]);
    desk.run(&["pack", "scripted:x.json", "out.gturbo"]).fails(1, &["no tensors to pack"]);
    desk.run(&["verify", "out.gturbo"]).fails(1, &["manifest.json"]);
    assert!(!desk.path().join("out.gturbo").exists());
}

/// Killed at twenty random times, packs and repairs are gone on with by the same command and end with the same bytes; until
/// then there is no model, or the damage is still told of.
#[cfg(unix)]
#[test]
fn killed_packs_and_repairs_are_gone_on_with() {
    let desk = Desk::new();
    let source = smollm2().display().to_string();
    let call = ["pack", &source, "a.gturbo", "--requantize", "--keep", "token_embd.weight=q6_k"];
    let whole = ["pack", &source, "whole.gturbo", "--requantize", "--keep", "token_embd.weight=q6_k"];
    let timed = |call: &[&str]| {
        let started = Instant::now();
        desk.run(call).success();
        started.elapsed()
    };
    let mut random = Random::new(u64::from(std::process::id()));
    let mut killed = |call: &[&str], needed: Duration| {
        let mut child =
            desk.spawnable().args(call).stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
        std::thread::sleep(needed.mul_f32(random.unit()).min(Duration::from_secs(20)));
        child.kill().expect("killed");
        child.wait().expect("ended");
    };
    let manifest = |name: &str| std::fs::read(desk.path().join(name).join("manifest.json")).expect("a manifest");
    let there = || desk.path().join("a.gturbo").exists();

    let needed = timed(&whole);
    for _ in 0..12 {
        if there() {
            assert_eq!(manifest("a.gturbo"), manifest("whole.gturbo"));
            desk.run(&["verify", "a.gturbo"]).success();
            std::fs::remove_dir_all(desk.path().join("a.gturbo")).expect("removed");
        }
        killed(&call, needed.mul_f32(0.6));
        if !there() {
            desk.run(&["inspect", "a.gturbo.partial"]).fails(1, &[]);
        }
    }
    if !there() {
        desk.run(&call).success();
    }
    assert_eq!(manifest("a.gturbo"), manifest("whole.gturbo"));
    assert!(!desk.path().join("a.gturbo.partial").exists());

    let needed = timed(&["verify", "a.gturbo"]);
    let resident = desk.path().join("a.gturbo/resident.bin");
    let repair = ["verify", "a.gturbo", "--repair", &source];
    let good = std::fs::read(&resident).expect("a file");
    for _ in 0..8 {
        let mut bytes = std::fs::read(&resident).expect("a file");
        bytes.iter_mut().step_by(5 << 20).for_each(|byte| *byte ^= 1);
        std::fs::write(&resident, bytes).expect("written");
        killed(&repair, needed.mul_f32(1.5));
        let found = desk.run(&["verify", "a.gturbo"]);
        let whole = std::fs::read(&resident).expect("a file") == good;
        assert_eq!(found.code, Some(i32::from(!whole)), "{found:?}");
    }
    desk.run(&repair);
    desk.run(&["verify", "a.gturbo"]).success();
    assert!(std::fs::read(&resident).expect("a file") == good);
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_a_pack_and_says_how_to_go_on() {
    let desk = Desk::new();
    let source = smollm2().display().to_string();
    let call = ["pack", &source, "a.gturbo", "--requantize", "--quantize", "q4_k"];
    let child = desk.spawnable().args(call).stderr(Stdio::piped()).spawn().expect("it starts");
    let growing = desk.path().join("a.gturbo.partial");
    let begun = Instant::now();
    while !growing.exists() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = child.id().to_string();
    let sent = std::process::Command::new("kill").args(["-INT", &id]).status().expect("kill runs");
    assert!(sent.success());
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("the same command goes on"), "{said}");
    assert!(!desk.path().join("a.gturbo").exists() && growing.exists());
}
