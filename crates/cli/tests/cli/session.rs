//! The interactive session, driven through a pipe.

use crate::support::{Desk, Outcome};

const SCRIPT: &str = r#"{"text": "ok", "repeat": true}"#;

fn talk(desk: &Desk, lines: &str) -> Outcome {
    let m = desk.script(SCRIPT);
    desk.pipe(&["run", &m, "--interactive", "--max-new", "3"], lines)
}

#[test]
fn turns_commands_and_the_end_of_input() {
    let desk = Desk::new();
    let outcome = talk(&desk, "hello\nhow are\\\nyou?\n/save talk.json\n");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.out, "ok\nok\n", "{outcome:?}");
    assert!(outcome.err.contains("/help lists commands"), "{outcome:?}");
    let saved = std::fs::read(desk.path().join("talk.json")).expect("saved");
    let saved: serde_json::Value = serde_json::from_slice(&saved).expect("JSON");
    let said: Vec<_> = saved["messages"].as_array().expect("messages").iter().map(|m| m["content"].as_str()).collect();
    assert_eq!(said, [Some("hello"), Some("ok"), Some("how are\nyou?"), Some("ok")]);
}

#[test]
fn the_next_turn_reuses_the_last_one() {
    let desk = Desk::new();
    let outcome = talk(&desk, "hello\nagain\n");
    let turns: Vec<_> = outcome.err.lines().filter(|line| line.starts_with("[prompt")).collect();
    assert_eq!(turns.len(), 2, "{outcome:?}");
    assert!(!turns[0].contains("reused") && turns[1].contains("reused"), "{turns:?}");
}

/// Prompt tokens fed in each turn: those of the prompt without the reused ones.
fn fed_rows(outcome: &Outcome) -> Vec<usize> {
    let number = |text: Option<&str>| text.and_then(|t| t.split_whitespace().next()).and_then(|n| n.parse().ok());
    let turns = outcome.err.lines().filter_map(|line| line.strip_prefix("[prompt "));
    let turns = turns.map(|line| line.split(", answer").next().unwrap_or(line));
    turns
        .map(|turn| {
            let prompt: usize = number(Some(turn)).unwrap_or_else(|| panic!("{turn}"));
            prompt - number(turn.split('(').nth(1).filter(|rest| rest.contains("reused"))).unwrap_or(0)
        })
        .collect()
}

/// The template writes `<|im_start|>user\n`, the message, `<|im_end|>\n` and `<|im_start|>assistant\n`: 19 tokens around
/// a message. The answer is in the cache but for its end, and the next prompt writes `<|im_end|>\n` after it.
#[test]
fn a_turn_feeds_only_what_is_new() {
    let desk = Desk::new();
    let messages = ["hello", "again", "and once more", "x"];
    let outcome = talk(&desk, &messages.join("\n"));
    let expected: Vec<usize> =
        messages.iter().enumerate().map(|(turn, m)| m.len() + 19 + if turn > 0 { 2 } else { 0 }).collect();
    assert_eq!(fed_rows(&outcome), expected, "{outcome:?}");
}

/// The template shows no reasoning, so a turn departs from the last one where that one's answer begins.
#[test]
fn where_old_reasoning_is_dropped_a_turn_feeds_from_there() {
    let desk = Desk::new();
    // <think>, "hm", </think>, "\n\nyes", the end.
    let m = desk.script(r#"{"ids": [260, 104, 109, 261, 10, 10, 121, 101, 115, 257], "repeat": true}"#);
    let outcome = desk.pipe(&["run", &m, "--interactive", "--hide-reasoning"], "hello\nagain\n");
    assert_eq!(fed_rows(&outcome), ["hello".len() + 19, "yes".len() + 2 + "again".len() + 19], "{outcome:?}");
}

#[test]
fn the_oldest_turns_are_left_out_where_that_is_asked_for() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "ok", "repeat": true, "context": 120}"#);
    let lines = "/system brief\none\ntwo\nthree\nfour\nfive\n/save t.json\n";
    let run = |flags: &[&str]| desk.pipe(&[&["run", &m, "--interactive", "--max-new", "3"], flags].concat(), lines);
    let refused = run(&[]);
    assert!(refused.err.contains("context-shift leaves the oldest turns out: the prompt has 1"), "{refused:?}");
    assert!(refused.err.contains("but the context holds 120"), "{refused:?}");
    let shifted = run(&["--context-shift"]);
    assert_eq!((shifted.code, shifted.out.as_str()), (Some(0), "ok\nok\nok\nok\nok\n"), "{shifted:?}");
    assert!(shifted.err.contains("turns are left out to make room"), "{shifted:?}");
    // Nothing is lost of what is saved, and a message that is too long by itself is refused.
    let saved = std::fs::read_to_string(desk.path().join("t.json")).expect("saved");
    assert!(["one", "three", "five"].iter().all(|message| saved.contains(message)), "{saved}");
    let long = "x".repeat(150);
    let arguments = ["run", &m, "--context-shift", "--max-new", "3", "--model"];
    desk.run(&[&arguments[..1], &arguments[2..], &[&m, &long]].concat()).fails(1, &["the last turn alone", "120"]);
    desk.run(&["complete", &m, "--prompt", "x", "--context-shift"]).fails(2, &["a raw text has none"]);
}

#[test]
fn coming_back_to_a_conversation_costs_what_is_new() {
    let desk = Desk::new();
    let m = desk.script(SCRIPT);
    let lines = "one\n/save a.json\n/clear\nanother\n/load a.json\ntwo\n";
    let run = |slots: &str| desk.pipe(&["run", &m, "--interactive", "--max-new", "3", "--session-slots", slots], lines);
    let (one, two) = (run("1"), run("2"));
    assert_eq!((one.code, two.code), (Some(0), Some(0)), "{one:?} {two:?}");
    assert_eq!(one.out, two.out);
    // The two share the template's beginning.
    let again = |outcome: &Outcome| fed_rows(outcome)[2];
    assert_eq!(again(&two), "two".len() + 19 + 2, "{two:?}");
    assert!(again(&one) > again(&two) + 10, "{one:?}");
    desk.run(&["run", &m, "--session-slots", "0", "hi"]).fails(2, &["--session-slots"]);
    desk.run(&["run", &m, "--session-memory", "1MiB", "hi there"]).fails(1, &["raise --session-slots"]);
}

#[test]
fn every_command() {
    let desk = Desk::new();
    let outcome = talk(
        &desk,
        "/help\n/system be brief\nhi\n/regenerate\n/save a.json\n/clear\n/regenerate\n/load a.json\n/regenerate\n\
         /load none.json\n/dance\n/save\n//slash\n/save b.json\n/quit\nnot read\n",
    );
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.out, "ok\n".repeat(4), "{outcome:?}");
    for text in [
        "/regenerate      answer",
        "there is no message to answer again",
        "3 messages loaded",
        "cannot load none.json",
        "/dance is no command",
        "/save needs a FILE",
    ] {
        assert!(outcome.err.contains(text), "{text}: {outcome:?}");
    }
    let saved = std::fs::read_to_string(desk.path().join("b.json")).expect("saved");
    assert!(saved.contains("be brief") && saved.contains("/slash") && !saved.contains("not read"), "{saved}");
}

#[test]
fn a_message_that_does_not_fit_is_forgotten_and_the_session_goes_on() {
    let desk = Desk::new();
    let m = desk.script(r#"{"text": "ok", "repeat": true, "context": 120}"#);
    let lines = format!("{}\nhi\n", "x".repeat(300));
    let outcome = desk.pipe(&["run", &m, "--interactive", "--max-new", "3"], lines);
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(0), "ok\n"), "{outcome:?}");
    assert!(outcome.err.contains("error: the conversation is too long"), "{outcome:?}");
}

#[test]
fn no_control_codes_and_no_history_through_a_pipe() {
    let desk = Desk::new();
    let outcome = talk(&desk, "hello\n");
    assert!(!outcome.out.contains('\u{1b}') && !outcome.err.contains('\u{1b}'), "{outcome:?}");
    assert!(!desk.path().join("home").exists());
}
