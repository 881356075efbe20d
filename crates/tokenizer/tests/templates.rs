//! Cases D09 to D11 and D56: templates render as Jinja2 renders them under transformers, and always end.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Instant;
use turbospark_tokenizer::{ChatRequest, ChatTemplate, CivilTime, TemplateError};

fn render(source: &str, variables: Value) -> Result<String, TemplateError> {
    let Value::Object(mut extra) = variables else { panic!("variables are an object") };
    let messages =
        extra.remove("messages").map(|messages| serde_json::from_value(messages).unwrap()).unwrap_or_default();
    let text = |value: Value| value.as_str().map(str::to_owned);
    let request = ChatRequest {
        messages,
        tools: extra.remove("tools").filter(|tools| !tools.is_null()),
        add_generation_prompt: extra.remove("add_generation_prompt") == Some(true.into()),
        bos_token: extra.remove("bos_token").and_then(text),
        eos_token: extra.remove("eos_token").and_then(text),
        now: Some(CivilTime { year: 2026, month: 11, day: 30, hour: 9, minute: 5, second: 7 }),
        extra,
        ..ChatRequest::default()
    };
    ChatTemplate::new(source)?.render(&request)
}

#[test]
fn d09_tojson_equals_pythons() {
    let x = json!({"type": "function", "z": 1, "a": {"q": "<b> & 'é' 雪", "n": null, "t": true, "f": 1.0}});
    let with_x = |source| render(source, json!({"x": x})).unwrap();
    assert_eq!(
        with_x("{{ x|tojson }}"),
        r#"{"type": "function", "z": 1, "a": {"q": "<b> & 'é' 雪", "n": null, "t": true, "f": 1.0}}"#
    );
    assert_eq!(
        with_x("{{ x|tojson(sort_keys=true, separators=(',', ':')) }}"),
        r#"{"a":{"f":1.0,"n":null,"q":"<b> & 'é' 雪","t":true},"type":"function","z":1}"#
    );
    assert_eq!(
        render("{{ x|tojson(indent=2) }}", json!({"x": {"b": [1, 2], "a": {}}})).unwrap(),
        "{\n  \"b\": [\n    1,\n    2\n  ],\n  \"a\": {}\n}"
    );
}

#[test]
fn d10_functions_filters_and_tags() {
    let none = || json!({});
    assert_eq!(render("{% generation %}a{% endgeneration %}", none()).unwrap(), "a");
    assert_eq!(render("{{ strftime_now('%Y-%m-%d') }}", none()).unwrap(), "2026-11-30");
    assert_eq!(render("{{ ('{\"k\": [1]}'|fromjson).k[0] }}", none()).unwrap(), "1");
    let s = json!({"s": "<think>a\n</think>\n\nok\n"});
    assert_eq!(render("{{ s.split('</think>')[-1].lstrip('\\n') }}", s).unwrap(), "ok\n");
}

#[test]
fn d11_blocks_leave_no_stray_whitespace() {
    assert_eq!(
        render("a\n   {% if true %}b{% endif %}  \nc {% if true %}d{% endif %}\ne\n", json!({})).unwrap(),
        "a\nb  \nc de"
    );
    let source = "{%- for m in messages %}\n  {% if m.role == 'user' %}\nU:{{ m.content.strip() }}\n  {% else %}\nA:{{ m.content | trim }}\n  {% endif %}\n{%- endfor %}\n{% if add_generation_prompt %}\n  A:\n{% endif %}\n";
    let messages = json!([{"role": "user", "content": "  hi \n"}, {"role": "assistant", "content": " yo "}]);
    assert_eq!(
        render(source, json!({"messages": messages, "add_generation_prompt": true})).unwrap(),
        "U:hi\nA:yo\n  A:\n"
    );
}

/// `data/templates.json` holds what Jinja2 itself renders (`data/make_templates.py`).
#[test]
fn d10_templates_equal_jinja2() {
    #[derive(serde::Deserialize)]
    struct Fixture {
        templates: BTreeMap<String, String>,
        conversations: BTreeMap<String, Value>,
        tools: Value,
        cases: Vec<Case>,
    }
    #[derive(serde::Deserialize)]
    struct Case {
        template: String,
        conversation: String,
        variables: Value,
        expected: Option<String>,
        error: Option<String>,
    }
    let fixture: Fixture = serde_json::from_str(include_str!("data/templates.json")).unwrap();
    assert!(fixture.templates.len() >= 12 && fixture.cases.len() > 100);
    let mut failures = Vec::new();
    for case in fixture.cases {
        let mut variables = case.variables;
        let with_tools = variables["tools"] == true;
        variables["tools"] = if with_tools { fixture.tools.clone() } else { Value::Null };
        variables["messages"] = fixture.conversations[&case.conversation].clone();
        let rendered = render(&fixture.templates[&case.template], variables);
        let equal = match (&rendered, &case.expected) {
            (Ok(ours), Some(theirs)) => ours == theirs,
            (Err(TemplateError::Refused { message }), None) => Some(message) == case.error.as_ref(),
            _ => false,
        };
        if !equal {
            let name = format!("{} of {} (tools: {with_tools})", case.template, case.conversation);
            failures.push(format!("{name}\n  ours   {rendered:?}\n  theirs {:?} {:?}", case.expected, case.error));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn d56_templates_always_end() {
    let endless = [
        "{% for i in range(90000) %}{% for j in range(90000) %}x{% endfor %}{% endfor %}",
        "{% for i in range(1000000000) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ '-' * 10**10 }}",
        "{{ '-' * 100000000 }}",
        "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{{ ('a' * 100000)|replace('', 'b' * 100000) }}",
        "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
        "{{ 'x'|center(1000000000) }}",
        "{{ 'x'|indent(1000000000) }}",
        "{% for i in range(20) %}{{ 'y' * 2000000 }}{% endfor %}",
        "{% include 'chat_template' %}",
    ];
    for source in endless {
        let start = Instant::now();
        let result = render(source, json!({"messages": [{"role": "user", "content": "x"}]}));
        assert!(result.is_err(), "{source} gave {} bytes", result.unwrap().len());
        assert!(start.elapsed().as_secs_f64() < 5.0, "{source} took {:?}", start.elapsed());
    }
}

#[test]
fn d56_long_conversations_are_not_mistaken_for_endless_ones() {
    let source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content|trim|replace('a', 'b') }}<|im_end|>\n{% endfor %}";
    let messages: Vec<Value> = (0..2000).map(|_| json!({"role": "user", "content": "a".repeat(2000)})).collect();
    assert_eq!(render(source, json!({"messages": messages})).unwrap().len(), 2000 * (2000 + 28));
}
