//! Replies that were cut off: a call whose arguments had not begun is text, one that the model ended is a call.

mod support;

use serde_json::json;
use support::dialects::*;
use turbospark_tokenizer::{CallError, Dialect, ReplyEvent, Tools};

#[test]
fn arguments_that_had_not_begun_are_not_none() {
    let cases = [
        ("harmony", "<|channel|>commentary to=functions.now <|constrain|>json<|message|>", ""),
        ("harmony", "<|channel|>commentary to=functions.now<|message|>", "\n"),
        ("mistral-v11", "[TOOL_CALLS]now[ARGS]", ""),
        ("mistral-v11", "[TOOL_CALLS]now[CALL_ID]abcdefgh0[ARGS]", " "),
    ];
    for (name, head, rest) in cases {
        let dialect = Dialect::named(name).unwrap();
        let tokenizer = dialect_vocabulary(dialect, Holds::Control);
        let tools = Some(Tools::new(&json!([{"function": {"name": "now"}}])));
        let reply = Reply { tokenizer: &tokenizer, dialect, prompt: "", tools };
        let text = format!("{head}{rest}");
        let read = |cut: bool| {
            let (mut parser, mut decoder, mut events) = (reply.parser(), tokenizer.stream(true), Vec::new());
            for id in encode(&tokenizer, &text) {
                events.extend(parser.push(id, &decoder.push(id)));
            }
            events.extend(parser.push_text(&decoder.finish()));
            events.extend(if cut { parser.cut_off() } else { parser.finish() });
            joined(events)
        };
        let ended = read(false);
        assert_eq!(calls_of(&ended).iter().map(|call| call.arguments.as_str()).collect::<Vec<_>>(), ["{}"], "{text}");
        match &read(true)[..] {
            [ReplyEvent::ReleasedToolSpan { text: released, why: CallError::Incomplete }] => {
                assert_eq!(released.trim(), text.trim());
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}
