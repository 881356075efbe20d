//! What compiled sources accept, over a vocabulary of bytes.

mod support;

use support::{accepts, byte_vocabulary, refused};
use turbospark_grammar::{GrammarError, Source};

fn schema(text: &str) -> Source {
    Source::JsonSchema(text.to_owned())
}

/// Case D44: patterns are searches with the classes of ECMAScript, at any depth.
#[test]
fn d44_patterns_are_searches_at_any_depth() {
    let cases = [
        (r#"{"type":"string","pattern":"\\S"}"#, r#"" a ""#, true),
        (r#"{"type":"string","pattern":"\\S"}"#, r#""   ""#, false),
        (r#"{"type":"string","pattern":"^\\d{4}-\\d{2}$"}"#, r#""2026-01""#, true),
        (r#"{"type":"string","pattern":"^\\d{4}-\\d{2}$"}"#, r#""2026-1""#, false),
        (r#"{"type":"string","pattern":"^\\d{4}-\\d{2}$"}"#, r#""x2026-01""#, false),
    ];
    for (text, json, expected) in cases {
        assert_eq!(accepts(&schema(text), json), expected, "{text} {json}");
        let nested = format!(
            r#"{{"type":"object","properties":{{"o":{{"type":"object","properties":{{"s":{text}}},"required":["s"],"additionalProperties":false}}}},"required":["o"],"additionalProperties":false}}"#
        );
        let json = format!(r#"{{"o": {{"s": {json}}}}}"#);
        assert_eq!(accepts(&schema(&nested), &json), expected, "{nested} {json}");
    }
}

/// Case D44: optional properties in any subset, but in declared order.
#[test]
fn d44_optional_properties_come_in_declared_order() {
    let text = r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}},
                  "required":["b"],"additionalProperties":false}"#;
    for (json, expected) in [
        (r#"{"b": 1}"#, true),
        (r#"{"a": 1, "b": 2}"#, true),
        (r#"{"b": 2, "c": 3}"#, true),
        (r#"{"a": 1, "b": 2, "c": 3}"#, true),
        (r#"{"b": 2, "a": 1}"#, false),
        (r#"{"a": 1}"#, false),
        (r#"{"b": 1, "d": 1}"#, false),
    ] {
        assert_eq!(accepts(&schema(text), json), expected, "{json}");
    }
}

/// Case D43: what cannot be enforced is refused by place and reason, and a good schema works after it.
#[test]
fn d43_what_cannot_be_enforced_is_refused_by_place() {
    for (text, path, what) in [
        (r#"{"type":"strng"}"#, "#/type", "strng"),
        (r##"{"properties":{"a":{"$ref":"#/$defs/none"}}}"##, "#/properties/a/$ref", "none"),
        (r#"{"$ref":"https://example.org/x"}"#, "#/$ref", "outside"),
        (
            r#"{"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}}"#,
            "#/properties/a/uniqueItems",
            "uniqueItems",
        ),
        (r#"{"anyOf":[{"type":"string"},{"not":{"type":"string"}}]}"#, "#/anyOf/1/not", "not"),
        (r#"{"properties":{"a/b":{"type":"string","pattern":"(?<=a)b"}}}"#, "#/properties/a~1b/pattern", ""),
        (r#"{"type":"string","pattern":"^a\\!$("}"#, "#/pattern", ""),
        (r#"{"type":"string","format":"colour"}"#, "#/format", "colour"),
        (r#"{"type":"array","minItems":1000000000}"#, "#/minItems", "1000000000"),
        (r#"{"type":"string","x-guidance":{"lenient":true}}"#, "#/x-guidance", "x-guidance"),
        ("[]", "#", "object"),
    ] {
        match refused(&schema(text)) {
            GrammarError::Schema { path: found, reason } => {
                assert_eq!(found, path, "{text}: {reason}");
                assert!(reason.contains(what), "{text}: {reason}");
            }
            other => panic!("{text}: {other}"),
        }
    }
    assert!(matches!(refused(&schema("{")), GrammarError::NotJson { .. }));
    assert!(accepts(&schema(r#"{"type":"string"}"#), r#""yes""#));
}

/// Case D46: deep and huge schemas are refused or compiled, never fatal.
#[test]
fn d46_deep_and_huge_schemas_are_bounded() {
    let deep = format!("{}{}", r#"{"items":"#.repeat(50_000), "{}".to_owned() + &"}".repeat(50_000));
    refused(&schema(&deep));
    let deep = format!("{}{}", r#"{"items":"#.repeat(70), "{}".to_owned() + &"}".repeat(70));
    assert!(refused(&schema(&deep)).to_string().contains("deeper"));
    refused(&schema(r##"{"$ref":"#"}"##));
    refused(&schema(r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##));
    let branches: Vec<String> = (0..100_000).map(|n| format!(r#"{{"const":{n}}}"#)).collect();
    refused(&schema(&format!(r#"{{"anyOf":[{}]}}"#, branches.join(","))));
}

#[test]
fn expressions_match_whole_replies() {
    let source = Source::Regex("[a-c]+x".to_owned());
    assert!(accepts(&source, "abcx"));
    assert!(!accepts(&source, "abc"));
    assert!(!accepts(&source, "dx"));
    assert!(refused(&Source::Regex("a(b".to_owned())).to_string().contains("regular expression"));
    assert!(refused(&Source::Regex("(?=a)b".to_owned())).to_string().contains("look"));
}

#[test]
fn lark_grammars_name_what_is_wrong() {
    assert!(accepts(&Source::Lark("start: \"a\" b\nb: /[0-9]+/\n".to_owned()), "a42"));
    assert!(refused(&Source::Lark("start: \"a\" c\n".to_owned())).to_string().contains('c'));
}

#[test]
fn gbnf_says_the_same_in_both_translations() {
    let flat = "root ::= (word \" \")* word # words\nword ::= [a-z]+ |\n  \"\\x41\" [^\\n]{2,3}\n";
    let nested = "root ::= \"(\" root \")\" | value\nvalue ::= \"ab\" | [a] [b-c]+ | \"\"\n";
    for (grammar, text, expected) in [
        (flat, "some words", true),
        (flat, "Axy more", true),
        (flat, "A", false),
        (flat, "some  words", false),
        (nested, "((ab))", true),
        (nested, "(abb)", true),
        (nested, "(acb)", true),
        (nested, "()", true),
        (nested, "((ab)", false),
        (nested, "b", false),
    ] {
        assert_eq!(accepts(&Source::Gbnf(grammar.to_owned()), text), expected, "{grammar} {text}");
    }
}

/// Case D43: a broken GBNF grammar is refused where it is broken.
#[test]
fn d43_broken_gbnf_is_refused_where_it_is_broken() {
    for (text, line, column, what) in [
        ("root ::= \"a", 1, 10, "closing"),
        ("root ::= a\n", 1, 10, "not defined"),
        ("root ::= \"a\"\nroot ::= \"b\"\n", 2, 1, "twice"),
        ("root = \"a\"\n", 1, 6, "::="),
        ("root ::= <think>\n", 1, 10, "tokens"),
        ("root ::= [z-a]\n", 1, 11, "empty"),
        ("root ::= \"a\"{3,2}\n", 1, 13, "repetition"),
        ("root ::= (\"a\"\n", 2, 1, ")"),
        ("other ::= \"a\"\n", 1, 1, "root"),
        ("root ::= \"a\" )\n", 1, 14, "end of the rule"),
    ] {
        match refused(&Source::Gbnf(text.to_owned())) {
            GrammarError::Gbnf { line: l, column: c, reason } => {
                assert_eq!((l, c), (line, column), "{text}: {reason}");
                assert!(reason.contains(what), "{text}: {reason}");
            }
            other => panic!("{text}: {other}"),
        }
    }
}

/// Case D45: a character that spans tokens; every byte that can complete an allowed one, and no other.
#[test]
fn d45_bytes_of_one_character() {
    let vocabulary = byte_vocabulary();
    for source in [Source::Regex("[😀-🙏]+".to_owned()), Source::Gbnf("root ::= [😀-🙏]+\n".to_owned())] {
        let mut session = vocabulary.compile(&source).unwrap().session();
        let end = vocabulary.tokenizer().eos().unwrap();
        let allowed = |session: &mut turbospark_grammar::Session| -> Vec<u32> {
            session.mask().unwrap().allowed().map(|id| id.0).collect()
        };
        let take = |session: &mut turbospark_grammar::Session, byte: u8| {
            session.take(support::byte_token(byte)).unwrap();
        };
        assert_eq!(allowed(&mut session), [0xF0]);
        take(&mut session, 0xF0);
        take(&mut session, 0x9F);
        assert_eq!(allowed(&mut session), [0x98, 0x99]);
        take(&mut session, 0x99);
        assert_eq!(allowed(&mut session), (0x80..=0x8F).collect::<Vec<u32>>());
        take(&mut session, 0x8F);
        assert!(session.mask().unwrap().allows(end));
        take(&mut session, 0xF0);
        assert!(!session.mask().unwrap().allows(end));
        assert!(session.take(end).is_err());
    }
    let mut session = vocabulary.compile(&schema(r#"{"type":"string"}"#)).unwrap().session();
    session.take(support::byte_token(b'"')).unwrap();
    session.take(support::byte_token(0xE4)).unwrap();
    assert!(session.mask().unwrap().allowed().all(|id| (0x80..0xC0).contains(&id.0)));
}

#[test]
fn a_refused_token_changes_nothing_and_forks_part_ways() {
    let vocabulary = byte_vocabulary();
    let mut session = vocabulary.compile(&Source::Regex("a[bc]d".to_owned())).unwrap().session();
    assert!(session.take(support::byte_token(b'x')).is_err());
    session.take(support::byte_token(b'a')).unwrap();
    let mut other = session.fork();
    session.take(support::byte_token(b'b')).unwrap();
    other.take(support::byte_token(b'c')).unwrap();
    assert_eq!(session.forced(), Some(support::byte_token(b'd')));
    assert!(!session.may_end().unwrap());
    session.take(support::byte_token(b'd')).unwrap();
    assert!(session.is_ended() && !other.is_ended());
    assert!(session.take(support::byte_token(b'd')).is_err());
    assert!(session.mask().is_err());
}

#[test]
fn a_grammar_that_matches_nothing_is_refused() {
    refused(&schema("false"));
    refused(&schema(r#"{"enum":[]}"#));
}
