//! The flags of the samplers: what they do to answers, what is reported, and what is refused.

use crate::support::Desk;
use serde_json::json;

fn complete<'a>(m: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    [&["complete", m, "--prompt", "hi", "--json", "--seed", "5"], flags].concat()
}

/// The scripted model prefers each letter of its text by 10.
#[test]
fn flags_reach_the_chain() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "abab abab"}"#);
    let nine = |flags: &[&str]| desk.run(&complete(&m, &[&["--max-new", "9"], flags].concat()));
    let text = |flags: &[&str]| nine(flags).json()["text"].as_str().map(str::to_owned);
    let greedy = |flags: &[&str]| text(&[&["--temperature", "0"], flags].concat()).expect("a text");
    assert_eq!(greedy(&[]), "abab abab");
    assert_eq!(greedy(&["--logit-bias", "b=-inf"]).matches('b').count(), 0);
    assert_eq!(greedy(&["--logit-bias", "98=-9.5"]), "abab abab");
    assert!(!greedy(&["--logit-bias", "98=-10.5"]).contains('b'));
    assert_eq!(greedy(&["--logit-bias", "\"c\"=20"]), "ccccccccc");
    assert_ne!(greedy(&["--frequency-penalty", "2", "--repetition-penalty", "100"]), "abab abab");
    assert_eq!(greedy(&["--repetition-penalty", "100", "--penalty-window", "1"]), "abab abab");
    // Of "abab", "ab" is a repetition of two: what followed it is weakened by 20.
    assert_ne!(greedy(&["--dry-multiplier", "20"]), "abab abab");
    assert_eq!(greedy(&["--dry-multiplier", "20", "--dry-allowed-length", "9"]), "abab abab");
    assert_eq!(greedy(&["--dry-multiplier", "20", "--dry-breaker", "a", "--dry-breaker", "b"]), "abab abab");
    // At temperature 5 little of the preference is left, but the order decides what is cut before.
    let hot = ["--temperature", "5", "--top-p", "0.9"];
    assert_ne!(text(&hot).as_deref(), Some("abab abab"));
    assert_eq!(text(&[&hot[..], &["--samplers", "original"]].concat()).as_deref(), Some("abab abab"));
    let mirostat = ["--mirostat", "2", "--mirostat-tau", "0.01", "--mirostat-eta", "1"];
    assert_eq!(text(&mirostat).as_deref(), Some("abab abab"));
}

#[test]
fn what_was_chosen_is_reported() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "ab"}"#);
    let flags = ["--samplers", "dry,top-k,temperature,xtc", "--dry-multiplier", "0.5", "--xtc-probability", "0.25"];
    let json = desk.run(&complete(&m, &flags)).json();
    assert_eq!(json["seed"], 5);
    let sampling = &json["sampling"];
    assert_eq!(sampling["samplers"], json!(["dry", "top-k", "temperature", "xtc"]));
    assert_eq!(sampling["dry"], json!({"multiplier": 0.5, "base": 1.75, "allowed_length": 2, "range": null}));
    assert_eq!((&sampling["xtc_probability"], &sampling["top_p"]), (&json!(0.25), &json!(1.0)));
    assert_eq!(sampling["mirostat"], json!(null));
    let call = ["run", &m, "hi", "--verbose", "--mirostat", "2", "--logit-bias", "a=1.5"];
    let err = desk.run(&call).err;
    for text in ["samplers penalties,dry,temperature", "mirostat 2, tau 5, eta 0.1", "logit bias 97=1.5", "top-p 1,"] {
        assert!(err.contains(text), "{text}: {err}");
    }
}

/// Case D41: natural logarithms of the model's own distribution beside the shaped one, whatever the temperature; the chosen
/// token is told also where it is not among the best; bytes of half a character are exact.
#[test]
fn d41_logprobs_tell_the_model_from_the_chain() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "é"}"#);
    // One logit of 10 and 263 of 0.
    let best = -(1.0 + 263.0 * (-10.0f64).exp()).ln();
    for temperature in ["0", "0.01", "2"] {
        let flags = ["--logprobs", "2", "--temperature", temperature, "--top-k", "1"];
        let json = desk.run(&complete(&m, &flags)).json();
        let first = &json["logprobs"][0];
        assert_eq!((&first["token"], &first["bytes"]), (&json!("\\xc3"), &json!([0xC3])));
        let model = first["model_logprob"].as_f64().expect("a number");
        assert!((model - best).abs() < 1e-6, "{temperature}: {model}");
        assert_eq!(first["shaped_logprob"], 0.0);
        assert_eq!(first["model_top"].as_array().map(Vec::len), Some(2));
        assert_eq!(first["shaped_top"].as_array().map(Vec::len), Some(1));
        assert_eq!(json["logprobs"].as_array().map(Vec::len), Some(2), "the end is no part of the answer");
    }
    let forced = desk.run(&complete(&m, &["--logprobs", "1", "--logit-bias", "x=90", "--max-new", "1"])).json();
    let forced = &forced["logprobs"][0];
    assert_eq!((&forced["token"], &forced["model_top"][0]["bytes"]), (&json!("x"), &json!([0xC3])));
    assert!(forced["model_logprob"].as_f64().is_some_and(|x| (x - (best - 10.0)).abs() < 1e-6), "{forced}");
    let outcome = desk.run(&["complete", &m, "--prompt", "hi", "--quiet", "--logprobs", "1", "--temperature", "0"]);
    assert_eq!(outcome.out, "é\n");
    assert!(outcome.err.contains("[token 0 \"\\\\xc3\" model -0.0119, shaped 0.0000; model best:"), "{outcome:?}");
    assert_eq!(desk.run(&complete(&m, &[])).json()["logprobs"], json!(null));
}

#[test]
fn what_cannot_be_meant_is_refused_by_name() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "ab"}"#);
    let usage: &[(&[&str], &str)] = &[
        (&["--typical-p", "1.5"], "from 0 to 1 (off)"),
        (&["--xtc-probability", "2"], "from 0 (off) to 1"),
        (&["--xtc-threshold", "0.2"], "--xtc-probability"),
        (&["--mirostat", "1"], "mirostat 2 only"),
        (&["--mirostat-tau", "3"], "--mirostat"),
        (&["--mirostat", "2", "--mirostat-tau", "0"], "in bits"),
        (&["--mirostat", "2", "--mirostat-eta", "nan"], "from 0 to 1"),
        (&["--dry-base", "2"], "--dry-multiplier"),
        (&["--dry-multiplier", "0"], "greater than 0"),
        (&["--dry-multiplier", "1", "--dry-base", "0.5"], "at least 1"),
        (&["--dry-multiplier", "1", "--dry-range", "0"], "at least 1"),
        (&["--penalty-window", "0"], "at least 1"),
        (&["--logprobs", "101"], "from 0 to 100"),
        (&["--logit-bias", "a"], "TOKEN=X"),
        (&["--logit-bias", "a=inf"], "no bias"),
        (&["--logit-bias", "=1"], "TOKEN=X"),
        (&["--samplers", "top-k"], "temperature is not named"),
        (&["--samplers", "temperature,heat"], "\"heat\""),
        (&["--samplers", "temperature,penalties"], "come before"),
        (&["--samplers", "temperature,temperature"], "twice"),
    ];
    for (flags, text) in usage {
        desk.run(&complete(&m, flags)).fails(2, &[text]);
    }
    let failures: &[(&[&str], &str)] = &[
        (&["--mirostat", "2", "--top-k", "5"], "mirostat and top-k"),
        (&["--samplers", "temperature", "--min-p", "0.1"], "min-p is set"),
        (&["--logit-bias", "999=1"], "there is no token 999"),
        (&["--logit-bias", "ab=1"], "\"ab\" is 2 tokens (97, 98)"),
        (&["--logit-bias", "a=1", "--logit-bias", "97=2"], "two biases"),
    ];
    for (flags, text) in failures {
        desk.run(&complete(&m, flags)).fails(1, &[text]);
    }
}
