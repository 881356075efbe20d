//! Cases D09 to D11 and D56: templates render as Jinja2 renders them under transformers, and always end.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
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

/// `data/templates.json` holds what Jinja2 itself renders (`data/make_templates.py`) for `data/templates/*.jinja`.
#[test]
fn d10_templates_equal_jinja2() {
    #[derive(serde::Deserialize)]
    struct Fixture {
        conversations: BTreeMap<String, Value>,
        tools: Value,
        data: Value,
        cases: Vec<Case>,
    }
    #[derive(serde::Deserialize)]
    struct Case {
        template: String,
        conversation: String,
        variables: Value,
        /// The rendered text.
        expected: Option<String>,
        /// What the template itself says with `raise_exception`.
        refused: Option<String>,
    }
    let fixture: Fixture = serde_json::from_str(include_str!("data/templates.json")).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/templates");
    let mut sources = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        sources.insert(name, std::fs::read_to_string(path).unwrap());
    }
    assert!(sources.len() >= 40 && fixture.cases.len() > 200, "{} templates", sources.len());
    let mut failures = Vec::new();
    for case in fixture.cases {
        let mut variables = case.variables;
        let with_tools = variables["tools"] == true;
        variables["tools"] = if with_tools { fixture.tools.clone() } else { Value::Null };
        variables["messages"] = fixture.conversations[&case.conversation].clone();
        variables["data"] = fixture.data.clone();
        let rendered = render(&sources[&case.template], variables);
        let equal = match (&rendered, &case.expected, &case.refused) {
            (Ok(ours), Some(theirs), _) => ours == theirs,
            (Err(TemplateError::Refused { message }), None, Some(theirs)) => message == theirs,
            // Python's own error, which has other words.
            (Err(TemplateError::Render { .. }), None, None) => true,
            _ => false,
        };
        if !equal {
            let name = format!("{} of {} (tools: {with_tools})", case.template, case.conversation);
            let theirs = case.expected.or(case.refused);
            failures.push(format!("{name}\n  ours   {rendered:?}\n  theirs {theirs:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What is known to differ from Jinja2 says so by name instead of rendering something else.
#[test]
fn d10_what_is_not_supported_is_refused_by_name() {
    let cases = [
        ("{{ 'x'|wordwrap(3) }}", "wordwrap"),
        ("{{ 'x'|striptags }}", "striptags"),
        ("{{ 'x'|nosuch }}", "nosuch"),
        ("{{ 'x'.casefold() }}", "casefold"),
        ("{{ 'x'.encode('utf-8') }}", "encode"),
        ("{{ messages.append(1) }}", "append"),
        ("{{ messages[0].pop('role') }}", "pop"),
        ("{{ nosuch() }}", "nosuch"),
        ("{{ 1 is nosuch }}", "nosuch"),
        ("{{ '%s' % 'x' }}", "% operator"),
        ("{{ '\\N{SNOWMAN}' }}", "\\N{...}"),
        ("{{ strftime_now('%U') }}", "%U"),
        ("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "too many arguments"),
        ("{% macro f(a, b=a) %}{% endmacro %}", "macro parameter"),
        ("{% for m in messages %}{% with %}{% continue %}{% endwith %}{% endfor %}", "`continue` inside of `with`"),
        ("{% for m in messages %}{% set x %}{% break %}{% endset %}{% endfor %}", "`break` inside of `set`"),
        ("{% trans %}x{% endtrans %}", "trans"),
        ("{% import 'x' as y %}", "non-existing template"),
    ];
    for (source, name) in cases {
        let error = render(source, json!({"messages": [{"role": "user", "content": "x"}]})).unwrap_err();
        assert!(error.to_string().contains(name), "{source}: {error}");
    }
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
        "{{ 'x'.center(1000000000) }}",
        "{{ 'x'.ljust(1000000000) }}{{ 'x'.rjust(1000000000) }}{{ 'x'.zfill(1000000000) }}",
        "{{ '\t'.expandtabs(1000000000) }}",
        "{{ ['x' * 1000] * 1000000 }}",
        "{% set ns = namespace(l=[[]]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[[]]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}",
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
