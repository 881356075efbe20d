//! `--experts`, `--stats` and `imatrix`.

use crate::support::Desk;
use testkit::{golden, smollm2, upcycled};

#[test]
fn experts_are_kept_where_they_are_told_to_be() {
    let desk = Desk::new();
    let model = golden("qwen3_moe").join("model.safetensors").display().to_string();
    let logits = |experts: &str| desk.run(&["logits", &model, "--tokens", "1,2,3,4,5", "--experts", experts]).success();
    let whole = logits("ram");
    for experts in ["auto", "mapped", "streamed", "streamed:1", "streamed:8"] {
        assert_eq!(logits(experts), whole, "{experts}");
    }
    desk.run(&["logits", &model, "--tokens", "1", "--experts", "streamed:0"])
        .fails(2, &["streamed:SLOTS", "at least 1"]);
    let dense = golden("llama").join("model.safetensors").display().to_string();
    desk.run(&["logits", &dense, "--tokens", "1", "--experts", "mapped"]).fails(1, &["no experts", "--experts"]);
    let text = desk.run(&["inspect", &model, "--experts", "streamed:2"]).success();
    for part in ["experts streamed: 2 of 8 in each of 4 layers", "layers 0-3: 2 of 8 experts in memory"] {
        assert!(text.contains(part), "{text}");
    }
    let json = desk.run(&["inspect", &model, "--experts", "streamed:2", "--json"]).json();
    let layer = &json["experts"]["layers"][3];
    assert_eq!((layer["layer"].as_u64(), layer["slots"].as_u64()), (Some(3), Some(2)), "{layer}");
    assert_eq!(layer["residency"].as_str(), Some("streamed"));
}

#[test]
fn streamed_experts_are_counted() {
    let desk = Desk::new();
    let model = upcycled(testkit::Router::Random).display().to_string();
    let call = ["complete", &model, "--prompt", "The river", "--max-new", "4", "--temperature", "0", "--stats"];
    let whole = desk.run(&call);
    assert!(whole.err.contains("no experts are streamed"), "{whole:?}");
    let streamed = desk.run(&[&call[..], &["--experts", "streamed:1", "--verbose"]].concat());
    assert_eq!(streamed.out, whole.out);
    for part in ["experts streamed: 1 of 4 in each of 30 layers", "read a token", "waited for reads"] {
        assert!(streamed.err.contains(part), "{streamed:?}");
    }
    let json = desk.run(&[&call[..], &["--experts", "streamed:4", "--json"]].concat()).json();
    let experts = &json["experts"];
    assert!(experts["hits"].as_u64().is_some_and(|hits| hits > 0), "{experts}");
    assert!(experts["requests"].as_u64() > experts["hits"].as_u64(), "{experts}");
    let bench = ["bench", &model, "--experts", "streamed:2", "--pp", "4", "--tg", "2", "--depth", "0", "--reps", "1"];
    let text = desk.run(&[&bench[..], &["--stats"]].concat()).success();
    assert!(text.contains("experts: ") && text.contains("read a token"), "{text}");
    let json = desk.run(&[&bench[..], &["--stats", "--json"]].concat()).json();
    assert!(json["experts"]["tg2@0"]["bytes_read"].as_u64().is_some(), "{json}");
}

#[test]
fn importance_is_collected_from_a_text() {
    let desk = Desk::new();
    let model = smollm2().display().to_string();
    desk.write("text.txt", "The river rises in the hills above the old town, and in spring it carries branches down.");
    let call = ["imatrix", &model, "--text", "text.txt", "--out", "i.gguf", "--ctx", "16", "--windows", "1"];
    let outcome = desk.run(&call);
    assert!(outcome.err.contains("i.gguf: ") && outcome.err.contains("over 16 tokens"), "{outcome:?}");
    outcome.success();
    let pack =
        ["pack", &model, "a.gturbo", "--requantize", "--keep", "blk.0.ffn_up.weight=iq4_nl", "--imatrix", "i.gguf"];
    desk.run(&pack).success();
    desk.run(&["imatrix", "scripted:x.json", "--text", "text.txt", "--out", "j.gguf"]).fails(1, &["no matrices"]);
    desk.write("empty.txt", "");
    desk.run(&["imatrix", &model, "--text", "empty.txt", "--out", "j.gguf"]).fails(1, &[]);
    assert!(!desk.path().join("j.gguf").exists());
}
