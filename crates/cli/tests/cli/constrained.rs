//! `--json-schema`, `--grammar` and `--regex`.

use crate::support::Desk;

const SCHEMA: &str =
    r#"{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false}"#;

#[test]
fn answers_follow_what_was_asked_for() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "zzz", "repeat": true}"#);
    desk.write("schema.json", SCHEMA);
    desk.write("list.gbnf", "root ::= [0-9] (\",\" [0-9]){2}\n");
    desk.write("call.lark", "start: \"f(\" /[0-9]{3}/ \")\"\n");
    desk.write("plain", "root ::= \"yes\" | \"no\"\n");
    for command in [&["run", &m, "hi"][..], &["complete", &m, "--prompt", "hi"]] {
        let answer = |flags: &[&str]| {
            let json = desk.run(&[command, &["--json", "--temperature", "1"], flags].concat()).json();
            assert_eq!(json["constrained"], true);
            json["text"].as_str().expect("a text").to_owned()
        };
        for seed in ["1", "2", "3"] {
            let json = answer(&["--json-schema", "schema.json", "--seed", seed]);
            assert!([r#"{"ok": true}"#, r#"{"ok": false}"#].contains(&json.as_str()), "{json}");
            let list = answer(&["--grammar", "list.gbnf", "--seed", seed]);
            assert!(list.len() == 5 && list.split(',').all(|n| n.parse::<u8>().is_ok()), "{list}");
            let call = answer(&["--grammar", "call.lark", "--seed", seed]);
            assert!(call.len() == 6 && call.starts_with("f(") && call.ends_with(')'), "{call}");
            assert!(["yes", "no"].contains(&answer(&["--grammar", "plain", "--seed", seed]).as_str()));
            assert_eq!(answer(&["--regex", "-?a{2}b", "--seed", seed]).trim_start_matches('-'), "aab");
        }
    }
    let free = desk.run(&["complete", &m, "--prompt", "hi", "--json", "--max-new", "3"]).json();
    assert_eq!((&free["text"], &free["constrained"]), (&"zzz".into(), &false.into()));
}

#[test]
fn a_cut_off_answer_is_told() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "zzz", "repeat": true}"#);
    desk.write("schema.json", SCHEMA);
    let call = ["complete", &m, "--prompt", "hi", "--json-schema", "schema.json", "--max-new", "4", "--quiet"];
    let outcome = desk.run(&call);
    assert_eq!(outcome.out, "{\"ok\n");
    assert!(outcome.err.contains("max_tokens") && outcome.err.contains("--max-new"), "{outcome:?}");
}

/// Case D43 from the outside: what cannot be enforced ends the command before anything is generated.
#[test]
fn d43_nothing_is_generated_without_the_constraint() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "zzz"}"#);
    desk.write("pattern.json", r#"{"type":"string","pattern":"^a\\!$("}"#);
    desk.write("ref.json", r##"{"properties":{"a":{"$ref":"#/$defs/none"}}}"##);
    desk.write("type.json", r#"{"type":"strng"}"#);
    desk.write("broken.gbnf", "root ::= \"a");
    desk.write("empty.lark", " ");
    let cases: &[(&[&str], &[&str])] = &[
        (&["--json-schema", "pattern.json"], &["pattern.json", "#/pattern"]),
        (&["--json-schema", "ref.json"], &["#/properties/a/$ref"]),
        (&["--json-schema", "type.json"], &["#/type", "strng"]),
        (&["--json-schema", "absent.json"], &["cannot read absent.json"]),
        (&["--grammar", "broken.gbnf"], &["broken.gbnf", "line 1, column 10"]),
        (&["--grammar", "empty.lark"], &["it is empty"]),
        (&["--regex", "a(b"], &["regular expression"]),
    ];
    for (flags, texts) in cases {
        desk.run(&[&["complete", &m, "--prompt", "hi"], *flags].concat()).fails(1, texts);
    }
    desk.run(&["run", &m, "hi", "--regex", "a", "--json-schema", "type.json"]).fails(2, &["cannot be used with"]);
}
