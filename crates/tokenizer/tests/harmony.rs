//! Replies as the reference package of Harmony renders and reads them.

mod support;

use serde_json::{Value, json};
use support::dialects::*;
use turbospark_tokenizer::{Dialect, ReplyEvent, ToolCall, Tools};

const FIXTURES: &str = include_str!("data/harmony.json");

/// The events for the messages that the package's own parser read.
fn expected(messages: &Value) -> Vec<ReplyEvent> {
    let mut events: Vec<ReplyEvent> = Vec::new();
    for message in messages.as_array().unwrap() {
        let text = message["text"].as_str().unwrap();
        let event = match (message["recipient"].as_str(), message["channel"].as_str()) {
            (Some(recipient), _) => {
                let name = recipient.trim_start_matches("functions.");
                if serde_json::from_str::<Value>(text).is_ok_and(|json| json.is_object()) {
                    call(name, text)
                } else {
                    ReplyEvent::ReleasedToolSpan { text: text.into(), why: turbospark_tokenizer::CallError::Incomplete }
                }
            }
            (None, Some("analysis")) => reasoning(text),
            (None, _) => content(text),
        };
        let separator = match (events.last(), &event) {
            (Some(ReplyEvent::Reasoning(_)), ReplyEvent::Reasoning(_)) => Some(reasoning("\n\n")),
            (Some(ReplyEvent::Content(_)), ReplyEvent::Content(_)) => Some(content("\n\n")),
            _ => None,
        };
        events.extend(separator);
        events.push(event);
    }
    joined(events)
}

#[test]
fn replies_are_read_as_the_reference_reads_them() {
    let fixtures: Value = serde_json::from_str(FIXTURES).unwrap();
    let harmony = Dialect::named("harmony").unwrap();
    let tokenizer = dialect_vocabulary(harmony, Holds::Control);
    assert_eq!(tokenizer.dialect().name, "harmony");
    let tools = Some(Tools::any(&json!([])));
    let reply = Reply { tokenizer: &tokenizer, dialect: harmony, prompt: fixtures["prompt"].as_str().unwrap(), tools };
    let replies = fixtures["replies"].as_array().unwrap();
    assert_eq!(replies.len(), 10);
    for fixture in replies {
        let text = fixture["reply"].as_str().unwrap();
        let ids = encode(&tokenizer, text);
        let wanted = expected(&fixture["messages"]);
        for cut in 0..=ids.len() {
            let events = reply.read_ids(&ids, |at| at + 1 == cut, true);
            match (events.as_slice(), wanted.as_slice()) {
                // The reason and the header are ours.
                ([ReplyEvent::ReleasedToolSpan { text, .. }], [ReplyEvent::ReleasedToolSpan { text: wanted, .. }]) => {
                    assert!(text.ends_with(wanted.as_str()), "{text}")
                }
                _ => assert_eq!(events, wanted, "{} cut at {cut}", fixture["name"]),
            }
        }
    }
}

#[test]
fn calls_are_written_as_the_reference_renders_them() {
    let fixtures: Value = serde_json::from_str(FIXTURES).unwrap();
    let harmony = Dialect::named("harmony").unwrap();
    let find = |name: &str| fixtures["replies"].as_array().unwrap().iter().find(|reply| reply["name"] == name).unwrap();
    let of = |name: &str| find(name)["reply"].as_str().unwrap();
    assert_eq!(harmony.write_reply("2 + 2, easy.", "2 + 2 = 4.", &[]).unwrap(), of("answer"));
    let messages = &find("call")["messages"];
    let weather =
        ToolCall { id: None, name: "get_weather".into(), arguments: messages[1]["text"].as_str().unwrap().into() };
    let written = harmony.write_reply(messages[0]["text"].as_str().unwrap(), "", &[weather]).unwrap();
    assert_eq!(written, of("call"));
}
