//! Cases D15 to D19, and what every dialect has to hold: writing and reading are inverse, wherever the stream is cut.

mod support;

use proptest::prelude::*;
use serde_json::{Value, json};
use support::dialects::*;
use turbospark_tokenizer::{CallError, Dialect, DialectError, ReplyEvent, StopMatcher, ToolCall, Tools};

fn dialect(name: &str) -> &'static Dialect {
    Dialect::named(name).unwrap()
}

/// Functions whose arguments have types.
fn tools() -> Tools {
    let function = |name: &str, properties: Value| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}});
    Tools::new(&json!([
        function("now", json!({})),
        function("get-item", json!({"n": {"type": "integer"}, "s": {"type": "string"}})),
        function(
            "store.put",
            json!({"key": {"type": "string"}, "value": {"type": "object"}, "list": {"type": "array"}, "flag": {"type": "boolean"}, "ratio": {"type": "number"}, "none": {"type": ["string", "null"]}})
        ),
        function("f", json!({"p": {"type": "string"}, "n": {"type": "array"}, "a": {"type": "integer"}})),
        function("sum", json!({"a": {"type": "integer"}})),
    ]))
}

fn calls() -> Vec<ToolCall> {
    let call =
        |name: &str, arguments: Value| ToolCall { id: None, name: name.into(), arguments: arguments.to_string() };
    vec![
        call("now", json!({})),
        call("get-item", json!({"n": 3, "s": "{a}\n\"b\" </think> 雪😀 \\n <|im_end|> '"})),
        call(
            "store.put",
            json!({"key": "", "value": {"a": [1, {"b": null}], "é": "x\ty", "deep": {"c": [[[-1.5]]]}}, "list": [],
                   "flag": false, "ratio": 0.25, "none": null}),
        ),
    ]
}

/// The arguments as values, which is all that dialects with tags keep of JSON.
fn values(calls: &[&ToolCall]) -> Vec<(Option<String>, String, Value)> {
    calls
        .iter()
        .map(|call| (call.id.clone(), call.name.clone(), serde_json::from_str(&call.arguments).unwrap()))
        .collect()
}

fn with_ids(dialect: &Dialect, mut calls: Vec<ToolCall>) -> Vec<ToolCall> {
    for (index, call) in calls.iter_mut().enumerate() {
        call.id = match dialect.name {
            "kimi" => Some(format!("functions.{}:{index}", call.name)),
            "mistral" | "mistral-v11" => Some(format!("abcdefgh{index}")),
            _ => None,
        };
    }
    calls
}

#[test]
fn d15_reasoning_is_split_off_wherever_the_stream_is_cut() {
    let cases: [(&str, &str, &[ReplyEvent]); 9] = [
        ("x<think>\n", "plan</think>answer", &[reasoning("plan"), content("answer")]),
        ("x<think>\n\n</think>\n\n", "answer", &[content("answer")]),
        ("x", "<think>p</think>a", &[reasoning("p"), content("a")]),
        ("x", "\n<think>\np\nq\n</think>\n\na\n", &[reasoning("p\nq"), content("a\n")]),
        ("x<think>", "cut off</thi", &[reasoning("cut off</thi")]),
        ("x", "<think>all of it\n", &[reasoning("all of it\n")]),
        ("x", "a<think>b", &[content("a<think>b")]),
        ("x", "<th", &[content("<th")]),
        ("x", "\n\n", &[content("\n\n")]),
    ];
    for holds in HOLDS {
        let tokenizer = vocabulary(&["<think>", "</think>"], holds);
        for (prompt, text, expected) in &cases {
            if holds == Holds::Control && text.starts_with("a<think>") {
                continue;
            }
            for name in ["plain", "chatml", "qwen3.5", "deepseek", "glm", "kimi", "minimax", "spark"] {
                let reply = Reply { tokenizer: &tokenizer, dialect: dialect(name), prompt, tools: None };
                // Dialects with calls hold line ends back until they know what follows.
                let ids = encode(&tokenizer, text);
                for cut in 0..=ids.len() {
                    let events = reply.read_ids(&ids, |at| at + 1 == cut, true);
                    assert_eq!(&events, expected, "{name}, {holds:?}: {prompt:?} then {text:?} cut at {cut}");
                }
            }
        }
    }
}

#[test]
fn d15_markers_are_tokens_not_their_letters() {
    let tokenizer = vocabulary(&["<think>", "</think>"], Holds::Control);
    let spelled =
        |text: &str| tokenizer.encode(text, turbospark_tokenizer::Encode { special: false, bos: false }).unwrap();
    let reply = Reply { tokenizer: &tokenizer, dialect: dialect("chatml"), prompt: "", tools: None };
    let events = reply.read_ids(&spelled("<think>p</think>a"), |_| true, true);
    assert_eq!(events, [content("<think>p</think>a")]);
    let inside = Reply { prompt: "<think>", ..reply };
    let mut ids = spelled("say </think>");
    ids.extend(encode(&tokenizer, "</think>done"));
    assert_eq!(inside.read_ids(&ids, |_| true, true), [reasoning("say </think>"), content("done")]);
}

#[test]
fn d15_a_user_cannot_open_the_reasoning() {
    let tokenizer = vocabulary(&["<|im_end|>", "<think>", "</think>"], Holds::Control);
    let reply = |prompt| Reply { tokenizer: &tokenizer, dialect: dialect("chatml"), prompt, tools: None };
    let earlier = reply("a<think>b<|im_end|>\nassistant\n");
    assert_eq!(earlier.read("hello"), [content("hello")]);
    assert_eq!(
        reply("<|im_end|>assistant\n<think>\nSo far").read(", so</think>good"),
        [reasoning(", so"), content("good")]
    );
}

#[test]
fn d16_harmony_channels() {
    let tokenizer = dialect_vocabulary(dialect("harmony"), Holds::Control);
    let reply = Reply { tokenizer: &tokenizer, dialect: dialect("harmony"), prompt: "", tools: Some(tools()) };
    let four = "<|channel|>analysis<|message|>add<|end|><|start|>assistant<|channel|>final<|message|>four<|return|>";
    let sum = "<|channel|>commentary to=functions.sum <|constrain|>json<|message|>{\"a\":1}<|call|>";
    let cases: [(&str, &[ReplyEvent]); 9] = [
        (four, &[reasoning("add"), content("four")]),
        (sum, &[call("sum", "{\"a\":1}")]),
        // The recipient beside the role, no type, no arguments, a cut after the last brace.
        (" to=functions.sum<|channel|>commentary<|message|>{\"a\":2}<|call|>", &[call("sum", "{\"a\":2}")]),
        ("<|channel|>commentary to=functions.sum json<|message|>{\"a\":3}", &[call("sum", "{\"a\":3}")]),
        ("<|channel|>commentary to=functions.now<|message|><|call|>", &[call("now", "{}")]),
        (
            "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant<|channel|>commentary to=functions.now<|message|>{}<|call|>",
            &[content("I will look."), call("now", "{}")],
        ),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>final<|message|>c",
            &[reasoning("a\n\nb"), content("c")],
        ),
        ("<|channel|>analysis<|message|>never ends", &[reasoning("never ends")]),
        ("<|channel|>fin", &[]),
    ];
    for (text, expected) in cases {
        let ids = encode(&tokenizer, text);
        for cut in 0..=ids.len() {
            assert_eq!(reply.read_ids(&ids, |at| at + 1 == cut, true), expected, "{text} cut at {cut}");
        }
    }
    let started = Reply { prompt: "<|start|>user<|message|>hi<|end|><|start|>assistant", ..reply };
    assert_eq!(started.read(four), [reasoning("add"), content("four")]);
    let filled = Reply { prompt: "<|start|>assistant<|channel|>final<|message|>It is", ..started };
    assert_eq!(filled.read(" four<|return|>"), [content(" four")]);
}

#[test]
fn d17_a_call_is_whole_for_every_cut() {
    let text = "<tool_call>{\"name\":\"f\",\"arguments\":{\"p\":\"a\\\"b\\\\n😀\",\"n\":[1,{\"k\":null}]}}</tool_call>";
    let arguments = "{\"p\":\"a\\\"b\\\\n😀\",\"n\":[1,{\"k\":null}]}";
    for holds in HOLDS {
        let tokenizer = dialect_vocabulary(dialect("chatml"), holds);
        let reply = Reply { tokenizer: &tokenizer, dialect: dialect("chatml"), prompt: "", tools: Some(tools()) };
        let ids = encode(&tokenizer, text);
        for cut in 0..=ids.len() {
            assert_eq!(
                reply.read_ids(&ids, |at| at + 1 == cut, true),
                [call("f", arguments)],
                "{holds:?} cut at {cut}"
            );
            let stopped = reply.read_ids(&ids[..cut], |_| true, true);
            match calls_of(&stopped).as_slice() {
                [] => {
                    assert_eq!(text_of(&stopped), String::from_utf8_lossy(&text.as_bytes()[..text_of(&stopped).len()]))
                }
                [call] => assert_eq!(call.arguments, arguments),
                _ => panic!("two calls of one"),
            }
        }
    }
}

#[test]
fn d19_values_take_their_declared_types() {
    let tokenizer = dialect_vocabulary(dialect("qwen3.5"), Holds::Control);
    let reply = Reply { tokenizer: &tokenizer, dialect: dialect("qwen3.5"), prompt: "", tools: Some(tools()) };
    let text = |n: &str| {
        format!(
            "<tool_call><function=get-item><parameter=n>{n}</parameter><parameter=s>{{a}}\n\"b\"</parameter></function></tool_call>"
        )
    };
    assert_eq!(reply.read(&text("3.0")), [call("get-item", "{\"n\":3,\"s\":\"{a}\\n\\\"b\\\"\"}")]);
    let refused = reply.read(&text("3.5"));
    let [ReplyEvent::ReleasedToolSpan { text: released, why }] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(*released, text("3.5"));
    assert!(why.to_string().contains("`3.5`") && why.to_string().contains("integer"), "{why}");

    // The same in JSON, where only whole numbers are rewritten.
    let hermes = Reply { dialect: dialect("chatml"), ..reply };
    let json = |n: &str| {
        format!("<tool_call>\n{{\"name\": \"get-item\", \"arguments\": {{\"n\": {n}, \"s\": \"x\"}}}}\n</tool_call>")
    };
    assert_eq!(hermes.read(&json("3.0")), [call("get-item", "{\"n\":3,\"s\":\"x\"}")]);
    assert_eq!(hermes.read(&json("3")), [call("get-item", "{\"n\": 3, \"s\": \"x\"}")]);
    assert!(calls_of(&hermes.read(&json("3.5"))).is_empty());
    // A value may hold its own closing tag.
    let nested =
        "<tool_call>\n<function=get-item>\n<parameter=s>\nx</parameter>y\n</parameter>\n</function>\n</tool_call>";
    assert_eq!(hermes.read(nested), [call("get-item", "{\"s\":\"x</parameter>y\"}")]);
}

#[test]
fn what_is_written_is_read_in_every_dialect() {
    for dialect in Dialect::all().filter(|dialect| dialect.tools.is_some()) {
        for holds in HOLDS {
            let tokenizer = dialect_vocabulary(dialect, holds);
            let reply = Reply { tokenizer: &tokenizer, dialect, prompt: "", tools: Some(tools()) };
            for count in 1..=calls().len() {
                // Each call comes first once.
                for first in 0..calls().len() {
                    let mut wanted = calls();
                    wanted.rotate_left(first);
                    wanted.truncate(count);
                    let wanted = with_ids(dialect, wanted);
                    if dialect.name == "harmony" && count > 1 {
                        continue;
                    }
                    let text = dialect.write_calls(&wanted).unwrap();
                    let events = reply.read(&text);
                    let context = format!("{}, {holds:?}: {text}\n{events:?}", dialect.name);
                    assert_eq!(values(&calls_of(&events)), values(&wanted.iter().collect::<Vec<_>>()), "{context}");
                    assert_eq!(text_of(&events), "", "{context}");
                }
            }
        }
    }
}

#[test]
fn a_whole_reply_survives_writing_and_every_cut() {
    for dialect in Dialect::all() {
        let wanted: Vec<_> =
            if dialect.tools.is_some() { with_ids(dialect, calls()[1..2].to_vec()) } else { Vec::new() };
        let thought = if dialect.reasoning.is_some() || dialect.name == "harmony" || dialect.name == "muse" {
            "hm, é\n\nso"
        } else {
            ""
        };
        for holds in HOLDS {
            let tokenizer = dialect_vocabulary(dialect, holds);
            let tools = dialect.tools.is_some().then(tools);
            let reply = Reply { tokenizer: &tokenizer, dialect, prompt: "", tools };
            let text = dialect.write_reply(thought, "Let me see: 雪", &wanted).unwrap();
            let ids = encode(&tokenizer, &text);
            let whole = reply.read(&text);
            let context = format!("{}, {holds:?}: {text}", dialect.name);
            assert_eq!(text_of(&whole), format!("{thought}Let me see: 雪"), "{context}");
            assert_eq!(values(&calls_of(&whole)), values(&wanted.iter().collect::<Vec<_>>()), "{context}");
            for cut in 0..=ids.len() {
                let part = reply.read_ids(&ids[..cut], |_| true, false);
                assert!(begins(&whole, &part), "{context}\ncut at {cut}: {part:?}\nwhole: {whole:?}");
                assert_eq!(reply.read_ids(&ids, |at| at + 1 == cut, true), whole, "{context}\nhanded over at {cut}");
                reply.read_ids(&ids[..cut], |_| true, true);
            }
        }
    }
}

#[test]
fn text_that_a_stop_matcher_holds_back_stays_on_its_side_of_a_marker() {
    for dialect in Dialect::all() {
        let tokenizer = dialect_vocabulary(dialect, Holds::Control);
        let tools = dialect.tools.is_some().then(tools);
        let reply = Reply { tokenizer: &tokenizer, dialect, prompt: "", tools: tools.clone() };
        let wanted = if dialect.tools.is_some() { with_ids(dialect, calls()[..1].to_vec()) } else { Vec::new() };
        let text =
            dialect.write_reply(if dialect.name == "gemma" { "" } else { "plan\n!" }, "answer!", &wanted).unwrap();
        let mut parser = reply.parser();
        let mut decoder = tokenizer.stream(true);
        let mut stops = StopMatcher::new(&["!\n\n\n\nZ".to_owned(), "!<x".to_owned(), "!answerZ".to_owned()]);
        let mut events = Vec::new();
        for id in encode(&tokenizer, &text) {
            events.extend(parser.push(id, &stops.push(&decoder.push(id)).text));
        }
        events.extend(parser.push_text(&stops.finish()));
        events.extend(parser.finish());
        assert_eq!(joined(events), reply.read(&text), "{}: {text}", dialect.name);
    }
}

#[test]
fn malformed_calls_are_released_as_text() {
    let cases = [
        ("chatml", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"p\": }\n</tool_call>"),
        ("chatml", "<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>"),
        ("chatml", "<tool_call>{\"name\": \"a b\", \"arguments\": {}}</tool_call>"),
        ("chatml", "<tool_call>{\"arguments\": {}}</tool_call>"),
        ("chatml", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"),
        ("chatml", "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"arguments\": {\"p\": 1}}</tool_call>"),
        ("chatml", "<tool_call>{\"name\": \"f\", \"argum"),
        ("chatml", "<tool_call></tool_call>"),
        ("qwen3.5", "<tool_call>\n<function=f>\n<parameter=p>\nx\n</function>\n</tool_call>"),
        ("qwen3.5", "<tool_call>\n<function=f>\n<parameter=p>\nx\n</parameter>\n</tool_call>"),
        (
            "qwen3.5",
            "<tool_call>\n<function=f>\n<parameter=p>\nx\n</parameter><parameter=p>y</parameter>\n</function>\n</tool_call>",
        ),
        ("glm", "<tool_call>f\n<arg_key>p</arg_key>\n</tool_call>"),
        ("glm", "<tool_call>f"),
        ("gemma4", "<|tool_call>call:f{p:<|\"|>x}<tool_call|>"),
        ("gemma4", "<|tool_call>call:f{p:oops}<tool_call|>"),
        ("gemma4", "<|tool_call>f{}<tool_call|>"),
        ("mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}"),
        ("mistral-v11", "[TOOL_CALLS]f[ARGS]{\"p\":"),
        ("llama3", "{\"name\": \"f\", \"parameters\": {\"p\": 1}"),
        ("llama3", "<|python_tag|>print(1)"),
        (
            "kimi",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{<|tool_call_end|><|tool_calls_section_end|>",
        ),
        ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
        ("minimax", "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"p\">x\n</minimax:tool_call>"),
        ("muse", " to=f<|message|><atem:function_calls>f</atem:function_calls>"),
        ("harmony", "<|channel|>commentary to=functions.f<|message|>{\"p\":<|call|>"),
        ("harmony", "<|channel|>commentary to=functions.nobody<|message|>{}<|call|>"),
    ];
    for (name, text) in cases {
        for holds in HOLDS {
            let tokenizer = dialect_vocabulary(dialect(name), holds);
            let reply = Reply { tokenizer: &tokenizer, dialect: dialect(name), prompt: "", tools: Some(tools()) };
            let events = reply.read(text);
            let expected = text.trim_start_matches(" to=f<|message|>").trim_end_matches("<|call|>");
            let [ReplyEvent::ReleasedToolSpan { text: released, .. }] = events.as_slice() else {
                panic!("{name}, {holds:?}: {text}: {events:?}");
            };
            assert_eq!(released, expected, "{name}, {holds:?}");
        }
    }
}

#[test]
fn text_around_calls_is_kept_and_a_bad_call_does_not_take_the_good_ones_along() {
    let tokenizer = dialect_vocabulary(dialect("chatml"), Holds::Control);
    let reply = Reply { tokenizer: &tokenizer, dialect: dialect("chatml"), prompt: "", tools: Some(tools()) };
    let now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    assert_eq!(reply.read(&format!("Look:\n{now}\n{now}\n")), [content("Look:"), call("now", "{}"), call("now", "{}")]);
    assert_eq!(reply.read(&format!("{now}\n\nDone\n")), [call("now", "{}"), content("Done\n")]);
    let bad = reply.read(&format!("a\n\n<tool_call>x</tool_call>\nb{now}"));
    assert!(
        matches!(bad.as_slice(), [ReplyEvent::Content(a), ReplyEvent::ReleasedToolSpan { text, .. }, ReplyEvent::Content(b), ReplyEvent::ToolCall(_)]
        if a == "a\n\n" && text == "<tool_call>x</tool_call>" && b == "\nb"),
        "{bad:?}"
    );

    let kimi = dialect("kimi");
    let tokenizer = dialect_vocabulary(kimi, Holds::Control);
    let reply = Reply { tokenizer: &tokenizer, dialect: kimi, prompt: "", tools: Some(tools()) };
    let item = |head: &str, body: &str| {
        format!("<|tool_call_begin|>{head}<|tool_call_argument_begin|>{body}<|tool_call_end|>")
    };
    let section = format!(
        "<|tool_calls_section_begin|>{}{}<|tool_calls_section_end|>",
        item("functions.sum:0", "{\"a\":"),
        item("now", "{}")
    );
    let events = reply.read(&section);
    assert!(
        matches!(events.as_slice(), [ReplyEvent::ReleasedToolSpan { text, .. }, ReplyEvent::ToolCall(call)]
        if *text == item("functions.sum:0", "{\"a\":") && call.name == "now" && call.id.is_none()),
        "{events:?}"
    );
}

#[test]
fn without_tools_on_offer_calls_are_text() {
    let tokenizer = dialect_vocabulary(dialect("chatml"), Holds::Shown);
    let reply = Reply { tokenizer: &tokenizer, dialect: dialect("chatml"), prompt: "", tools: None };
    let text = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    let why = CallError::NoTools;
    assert_eq!(reply.read(text), [ReplyEvent::ReleasedToolSpan { text: text.into(), why }]);
    let llama = Reply { dialect: dialect("llama3"), ..reply };
    assert_eq!(llama.read("{\"name\": \"now\"}"), [content("{\"name\": \"now\"}")]);
}

#[test]
fn other_ways_to_write_a_call_are_read() {
    let cases = [
        ("llama3", "{\"name\": \"f\", \"parameters\": {\"p\": \"x\"}}", "f", "{\"p\": \"x\"}"),
        ("llama3", "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "f", "{}"),
        ("llama3", "<|python_tag|>f.call(p=\"x\")", "f", "{\"p\":\"x\"}"),
        ("mistral", "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}]", "now", "{}"),
        ("mistral-v11", "[TOOL_CALLS]f{\"p\": \"x\"}", "f", "{\"p\": \"x\"}"),
        ("chatml", "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"p\\\": 1}\"}</tool_call>", "f", "{\"p\": 1}"),
        ("chatml", "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"now\"}}</tool_call>", "now", "{}"),
        ("chatml", "<tool_call>{\"name\": \"now\", \"arguments\": {}}", "now", "{}"),
        (
            "deepseek",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"p\": \"x\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "f",
            "{\"p\": \"x\"}",
        ),
        (
            "deepseek-dsml",
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n{\"p\": \"x\"}\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
            "f",
            "{\"p\": \"x\"}",
        ),
        (
            "deepseek-dsml",
            "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
            "now",
            "{}",
        ),
        ("glm", "<tool_call>now</tool_call>", "now", "{}"),
        ("glm", "<tool_call>now\n</tool_call>", "now", "{}"),
        (
            "gemma4",
            "<|tool_call>call:f{p:\"x\", n: [1, <|\"|>y<|\"|>]}<tool_call|>",
            "f",
            "{\"p\":\"x\",\"n\":[1,\"y\"]}",
        ),
    ];
    for (name, text, function, arguments) in cases {
        for holds in HOLDS {
            let tokenizer = dialect_vocabulary(dialect(name), holds);
            let reply = Reply { tokenizer: &tokenizer, dialect: dialect(name), prompt: "", tools: Some(tools()) };
            assert_eq!(reply.read(text), [call(function, arguments)], "{name}, {holds:?}: {text}");
        }
    }
    let tokenizer = dialect_vocabulary(dialect("llama3"), Holds::Control);
    let python = Some(Tools::any(&json!([])));
    let reply = Reply { tokenizer: &tokenizer, dialect: dialect("llama3"), prompt: "", tools: python };
    assert_eq!(
        reply.read("<|python_tag|>import os\nprint(1)"),
        [call("python", "{\"code\":\"import os\\nprint(1)\"}")]
    );
    assert_eq!(reply.read("{\"answer\": 1}"), [content("{\"answer\": 1}")]);
}

#[test]
fn long_arguments_take_linear_time_and_longer_ones_are_text() {
    let time = |dialect: &'static Dialect, holds: Holds, size: usize| {
        let tokenizer = dialect_vocabulary(dialect, holds);
        let long =
            Tools::new(&json!([{"function": {"name": "f", "parameters": {"properties": {"p": {"type": "string"}}}}}]));
        let reply = Reply { tokenizer: &tokenizer, dialect, prompt: "", tools: Some(long) };
        let arguments = json!({"p": "ab {\"<é ".repeat(size / 10)}).to_string();
        let wanted = ToolCall { id: None, name: "f".into(), arguments };
        let text = dialect.write_calls(&with_ids(dialect, vec![wanted.clone()])).unwrap();
        let ids = encode(&tokenizer, &text);
        let start = std::time::Instant::now();
        let events = reply.read_ids(&ids, |_| true, true);
        let taken = start.elapsed();
        assert_eq!(values(&calls_of(&events))[0].2, serde_json::from_str::<Value>(&wanted.arguments).unwrap());
        taken
    };
    for dialect in Dialect::all().filter(|dialect| dialect.tools.is_some()) {
        let holds = if dialect.name == "harmony" { Holds::Nothing } else { Holds::Control };
        let (short, long) = (time(dialect, holds, 32 << 10), time(dialect, holds, 256 << 10));
        // Eight times the text; quadratic time would be 64 times.
        let allowed = short * 32 + std::time::Duration::from_millis(200);
        assert!(long < allowed, "{}: {short:?} for 32 KiB, {long:?} for 256 KiB", dialect.name);
    }
    let tokenizer = dialect_vocabulary(dialect("chatml"), Holds::Control);
    let reply = Reply { tokenizer: &tokenizer, dialect: dialect("chatml"), prompt: "", tools: Some(tools()) };
    let endless = format!("<tool_call>{{\"name\": \"f\", \"arguments\": {{\"p\": \"{}", "x".repeat(1 << 20));
    let events = reply.read(&endless);
    assert!(matches!(events[0], ReplyEvent::ReleasedToolSpan { why: CallError::TooLong { .. }, .. }));
    assert_eq!(text_of(&events), endless);
}

#[test]
fn dialects_are_named_and_refuse_tools_by_name() {
    let error = Dialect::named("hermes").unwrap_err();
    assert!(
        matches!(&error, DialectError::Unknown { known, .. } if known.contains("chatml") && known.contains("harmony"))
    );
    let tokenizer = vocabulary(&[], Holds::Nothing);
    let refused = turbospark_tokenizer::ReplyParser::new(&tokenizer, dialect("plain"), &[], Some(tools())).unwrap_err();
    assert_eq!(refused, DialectError::NoTools { dialect: "plain" });
    assert!(refused.to_string().contains("`plain`"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_mixture_of_markers_and_text_is_cut_anywhere(
        which in 0usize..18,
        holds in 0usize..3,
        parts in prop::collection::vec((0usize..16, "[a-z{}\":, \n<\\[é😀]{0,6}"), 0..24),
        cuts in prop::collection::vec(any::<bool>(), 200),
        stop in 0usize..200,
    ) {
        let dialect = Dialect::all().nth(which).unwrap_or(dialect("plain"));
        let tokens = marker_tokens(dialect.name);
        let tokenizer = dialect_vocabulary(dialect, HOLDS[holds]);
        let text: String = parts.iter().map(|(token, text)| format!("{}{text}", tokens.get(*token).unwrap_or(&""))).collect();
        let any = dialect.tools.is_some().then(|| Tools::any(&json!([])));
        let reply = Reply { tokenizer: &tokenizer, dialect, prompt: "", tools: any };
        let ids = encode(&tokenizer, &text);
        let whole = reply.read(&text);
        prop_assert_eq!(&reply.read_ids(&ids, |at| cuts[at % cuts.len()], true), &whole);
        let stop = stop.min(ids.len());
        let part = reply.read_ids(&ids[..stop], |at| cuts[at % cuts.len()], false);
        prop_assert!(begins(&whole, &part), "{}: {:?}\n{:?}\n{:?}", dialect.name, text, part, whole);
        reply.read_ids(&ids[..stop], |_| true, true);
    }
}
