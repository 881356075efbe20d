//! Which dialect a vocabulary and a chat template point to, and what history they take.

mod support;

use serde_json::{Value, json};
use support::dialects::*;
use turbospark_tokenizer::{ChatRequest, Dialect, TemplateError, Tokenizer, TokenizerError};

#[test]
fn vocabulary_and_template_give_the_dialect_away() {
    let cases: [(&[&str], &str, &str); 20] = [
        (&["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"], "", "chatml"),
        (&["<|im_start|>", "<|im_end|>"], "<tool_call>\n<function=x>\n<parameter=y>", "qwen3.5"),
        (&["<|start_header_id|>", "<|eot_id|>", "<|python_tag|>"], "", "llama3"),
        (&["[INST]", "[TOOL_CALLS]"], "", "mistral"),
        (&["[INST]", "[TOOL_CALLS]", "[ARGS]"], "", "mistral-v11"),
        (&["<|turn>", "<turn|>", "<|tool_call>"], "", "gemma4"),
        (&["<start_of_turn>", "<end_of_turn>"], "", "gemma"),
        (&["<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|call|>", "<|return|>"], "", "harmony"),
        (&["<|start|>", "<|message|>", "<|eom|>", "<|eot|>"], "", "muse"),
        (&["<|User|>", "<|Bot|>"], "", "spark"),
        (&["]~b]", "[e~[", "<minimax:tool_call>"], "", "minimax"),
        (&["<｜end▁of▁sentence｜>", "<｜tool▁sep｜>"], "<｜tool▁sep｜>", "deepseek"),
        (&["<｜end▁of▁sentence｜>", "<｜tool▁sep｜>"], "<｜tool▁sep｜>\\n```json", "deepseek-v3"),
        (&["<｜end▁of▁sentence｜>", "<｜tool▁sep｜>", "｜DSML｜"], "", "deepseek-dsml"),
        (&["<｜end▁of▁sentence｜>"], "", "deepseek-v2"),
        (&["<|user|>", "<tool_call>", "</tool_call>", "<arg_key>", "<arg_value>"], "", "glm"),
        (&["<|im_end|>", "<|tool_calls_section_begin|>"], "", "kimi"),
        (&[], "<tool_call>\n{\"name\": x, \"arguments\": y}", "chatml"),
        (&["<|endoftext|>"], "{{ messages }}", "plain"),
        (&[], "", "plain"),
    ];
    for (tokens, template, expected) in cases {
        let template = template.replace("{%", "").replace("{{", "{ {");
        let tokenizer = vocabulary(tokens, Holds::Control).with_chat_template(&template).unwrap();
        assert_eq!(tokenizer.dialect().name, expected, "{tokens:?} {template:?}");
        assert!(std::ptr::eq(Dialect::named(expected).unwrap(), tokenizer.dialect()));
    }
    // Spelled with ordinary tokens, markers prove nothing.
    assert_eq!(vocabulary(&["<|start|>", "<|message|>", "<|eom|>"], Holds::Nothing).dialect().name, "plain");
}

#[test]
fn a_message_ends_inside_a_turn_where_messages_have_headers() {
    let stops = |tokens: &[&str]| {
        let tokenizer = vocabulary(tokens, Holds::Control);
        let text: Vec<_> = tokenizer.stop_ids().iter().filter_map(|id| tokenizer.piece(*id)).collect();
        text.join(" ")
    };
    assert_eq!(stops(&["<|start|>", "<|message|>", "<|eom|>", "<|eot|>"]), "<eos> <|eot|>");
    assert_eq!(stops(&["<|eom|>", "<|eot|>"]), "<eos> <|eom|> <|eot|>");
}

const CALLS: &str = "{% for m in messages %}[{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}({{ c.function.name }} {{ c.function.arguments | tojson }}){% endfor %}]{% endfor %}";
const TEXT_CALLS: &str = "{% for m in messages %}[{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}({{ c.function.name + ' ' + c.function.arguments }}){% endfor %}]{% endfor %}";

fn render(template: &str, arguments: Value) -> Result<String, TokenizerError> {
    let tokenizer: Tokenizer = vocabulary(&[], Holds::Nothing).with_chat_template(template).unwrap();
    let messages = json!([
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]},
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
    ]);
    tokenizer
        .render_chat(&ChatRequest { messages: serde_json::from_value(messages).unwrap(), ..ChatRequest::default() })
}

#[test]
fn d18_malformed_arguments_in_the_history_are_refused_by_message() {
    assert_eq!(render(CALLS, json!("{}")).unwrap(), "[user:x][assistant:(f {})][tool:ok]");
    assert_eq!(render(CALLS, json!("{\"a\": 1}")).unwrap(), "[user:x][assistant:(f {\"a\": 1})][tool:ok]");
    assert_eq!(render(CALLS, json!("")).unwrap(), "[user:x][assistant:(f {})][tool:ok]");
    for bad in ["{", "[1]", "nonsense", "{\"a\": 1} {"] {
        let error = render(CALLS, json!(bad)).unwrap_err();
        assert!(matches!(&error, TokenizerError::Template(TemplateError::BadArguments { index: 1, .. })), "{error}");
        assert!(error.to_string().starts_with("messages[1]: ") && error.to_string().contains("`f`"), "{error}");
        // A template that writes the text itself gets it.
        assert_eq!(render(TEXT_CALLS, json!(bad)).unwrap(), format!("[user:x][assistant:(f {bad})][tool:ok]"));
    }
}

#[test]
fn d18_calls_of_any_shape_do_no_harm() {
    let tokenizer = vocabulary(&[], Holds::Nothing).with_chat_template("{{ messages | tojson }}").unwrap();
    for call in [
        json!("x"),
        json!(null),
        json!([1]),
        json!({"function": "f"}),
        json!({"function": {}}),
        json!({"arguments": 3}),
    ] {
        let messages = json!([{"role": "assistant", "tool_calls": [call]}]);
        let request = ChatRequest { messages: serde_json::from_value(messages).unwrap(), ..ChatRequest::default() };
        assert!(tokenizer.render_chat(&request).unwrap().contains("tool_calls"));
    }
}
