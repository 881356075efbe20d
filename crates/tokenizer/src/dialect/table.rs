//! All dialects that are known.

use super::detect::Evidence;
use super::{CallSyntax, Dialect, Framing, Messages, NamedSyntax, Reasoning, Span, TagSyntax, ToolSyntax};

const THINK: Option<Reasoning> = Some(Reasoning { open: "<think>", label: "", close: "</think>" });
const TOOL_CALL: Span = Span { open: "<tool_call>", close: Some("</tool_call>") };
const OBJECT: CallSyntax = CallSyntax::Object { arguments: "arguments", list: false };
const NAMED: NamedSyntax =
    NamedSyntax { item: None, kind: None, prefix: "", numbered: false, id: None, separator: "", fence: ["", ""] };
/// One call a span, markers right around it.
const PLAIN: ToolSyntax =
    ToolSyntax { spans: &[], shared: false, padding: "", between: "", calls: &[], bare_json: false };
const NONE: Dialect = Dialect { name: "plain", framing: Framing::Text, reasoning: None, tools: None, tokens: &[] };

const FUNCTION_TAGS: CallSyntax = CallSyntax::Tags(TagSyntax {
    call: ["<function=", ">"],
    call_end: "</function>",
    parameter: ["<parameter=", ">"],
    parameter_end: "</parameter>",
    lines: true,
    typed: None,
    between: "\n",
});

/// A model of which nothing is known: text, with reasoning if it begins with the usual tag.
pub(crate) static PLAIN_TEXT: Dialect = Dialect { reasoning: THINK, ..NONE };

static CHATML: Dialect = Dialect {
    name: "chatml",
    reasoning: THINK,
    tools: Some(ToolSyntax {
        spans: &[TOOL_CALL],
        padding: "\n",
        between: "\n",
        calls: &[OBJECT, FUNCTION_TAGS],
        ..PLAIN
    }),
    ..NONE
};

static QWEN3_5: Dialect = Dialect {
    name: "qwen3.5",
    reasoning: THINK,
    tools: Some(ToolSyntax {
        spans: &[TOOL_CALL],
        padding: "\n",
        between: "\n",
        calls: &[FUNCTION_TAGS, OBJECT],
        ..PLAIN
    }),
    ..NONE
};

static LLAMA3: Dialect = Dialect {
    name: "llama3",
    reasoning: THINK,
    tools: Some(ToolSyntax {
        spans: &[Span { open: "<|python_tag|>", close: None }],
        shared: true,
        between: "; ",
        calls: &[CallSyntax::Object { arguments: "parameters", list: false }, CallSyntax::Python],
        bare_json: true,
        ..PLAIN
    }),
    ..NONE
};

const MISTRAL_THINK: Option<Reasoning> = Some(Reasoning { open: "[THINK]", label: "", close: "[/THINK]" });
const MISTRAL_SPAN: Span = Span { open: "[TOOL_CALLS]", close: None };
const MISTRAL_LIST: CallSyntax = CallSyntax::Object { arguments: "arguments", list: true };
const MISTRAL_NAMED: CallSyntax =
    CallSyntax::Named(NamedSyntax { id: Some("[CALL_ID]"), separator: "[ARGS]", ..NAMED });

static MISTRAL: Dialect = Dialect {
    name: "mistral",
    reasoning: MISTRAL_THINK,
    tools: Some(ToolSyntax {
        spans: &[MISTRAL_SPAN],
        shared: true,
        between: ", ",
        calls: &[MISTRAL_LIST, MISTRAL_NAMED],
        ..PLAIN
    }),
    ..NONE
};

static MISTRAL_V11: Dialect = Dialect {
    name: "mistral-v11",
    reasoning: MISTRAL_THINK,
    tools: Some(ToolSyntax { spans: &[MISTRAL_SPAN], calls: &[MISTRAL_NAMED, MISTRAL_LIST], ..PLAIN }),
    ..NONE
};

static GEMMA4: Dialect = Dialect {
    name: "gemma4",
    reasoning: Some(Reasoning { open: "<|channel>", label: "thought\n", close: "<channel|>" }),
    tools: Some(ToolSyntax {
        spans: &[Span { open: "<|tool_call>", close: Some("<tool_call|>") }],
        calls: &[CallSyntax::Braces { prefix: "call:", quote: "<|\"|>" }],
        ..PLAIN
    }),
    ..NONE
};

static HARMONY: Dialect = Dialect {
    name: "harmony",
    framing: Framing::Messages(Messages {
        start: "<|start|>",
        channel: Some("<|channel|>"),
        constrain: Some("<|constrain|>"),
        body: "<|message|>",
        ends: &["<|end|>", "<|return|>", "<|call|>"],
        call_end: "<|call|>",
        reasoning: &["analysis"],
        answer: "final",
        recipient: Some("functions."),
    }),
    // Calls are messages of their own; nothing inside a text opens one.
    tools: Some(PLAIN),
    ..NONE
};

static MUSE: Dialect = Dialect {
    name: "muse",
    framing: Framing::Messages(Messages {
        start: "<|start|>",
        channel: None,
        constrain: None,
        body: "<|message|>",
        ends: &["<|eom|>", "<|eot|>"],
        call_end: "<|eot|>",
        reasoning: &["self"],
        answer: "user",
        recipient: None,
    }),
    tools: Some(ToolSyntax {
        spans: &[Span { open: "<atem:function_calls>", close: Some("</atem:function_calls>") }],
        shared: true,
        padding: "\n",
        between: "\n",
        calls: &[CallSyntax::Tags(TagSyntax {
            call: ["<atem:invoke name=\"", "\">"],
            call_end: "</atem:invoke>",
            parameter: ["<atem:parameter name=\"", "\">"],
            parameter_end: "</atem:parameter>",
            lines: false,
            typed: None,
            between: "\n",
        })],
        ..PLAIN
    }),
    ..NONE
};

static SPARK: Dialect = Dialect { name: "spark", reasoning: THINK, ..NONE };

static MINIMAX: Dialect = Dialect {
    name: "minimax",
    reasoning: THINK,
    tools: Some(ToolSyntax {
        spans: &[Span { open: "<minimax:tool_call>", close: Some("</minimax:tool_call>") }],
        shared: true,
        padding: "\n",
        between: "\n",
        calls: &[CallSyntax::Tags(TagSyntax {
            call: ["<invoke name=\"", "\">"],
            call_end: "</invoke>",
            parameter: ["<parameter name=\"", "\">"],
            parameter_end: "</parameter>",
            lines: false,
            typed: None,
            between: "\n",
        })],
        ..PLAIN
    }),
    ..NONE
};

const DEEPSEEK_ITEM: Option<[&str; 2]> = Some(["<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"]);
const DEEPSEEK_SPANS: &[Span] =
    &[Span { open: "<｜tool▁calls▁begin｜>", close: Some("<｜tool▁calls▁end｜>") }];
const DEEPSEEK_NAMED: CallSyntax =
    CallSyntax::Named(NamedSyntax { item: DEEPSEEK_ITEM, separator: "<｜tool▁sep｜>", ..NAMED });
const DEEPSEEK_FENCED: CallSyntax = CallSyntax::Named(NamedSyntax {
    item: DEEPSEEK_ITEM,
    kind: Some(["function", "<｜tool▁sep｜>"]),
    separator: "\n",
    fence: ["```json\n", "\n```"],
    ..NAMED
});

static DEEPSEEK: Dialect = Dialect {
    name: "deepseek",
    reasoning: THINK,
    tools: Some(ToolSyntax { spans: DEEPSEEK_SPANS, shared: true, calls: &[DEEPSEEK_NAMED, DEEPSEEK_FENCED], ..PLAIN }),
    ..NONE
};

static DEEPSEEK_V3: Dialect = Dialect {
    name: "deepseek-v3",
    reasoning: THINK,
    tools: Some(ToolSyntax {
        spans: DEEPSEEK_SPANS,
        shared: true,
        between: "\n",
        calls: &[DEEPSEEK_FENCED, DEEPSEEK_NAMED],
        ..PLAIN
    }),
    ..NONE
};

static DEEPSEEK_DSML: Dialect = Dialect {
    name: "deepseek-dsml",
    reasoning: THINK,
    tools: Some(ToolSyntax {
        spans: &[
            Span { open: "<｜DSML｜function_calls>", close: Some("</｜DSML｜function_calls>") },
            Span { open: "<｜DSML｜tool_calls>", close: Some("</｜DSML｜tool_calls>") },
        ],
        shared: true,
        padding: "\n",
        between: "\n",
        calls: &[CallSyntax::Tags(TagSyntax {
            call: ["<｜DSML｜invoke name=\"", "\">"],
            call_end: "</｜DSML｜invoke>",
            parameter: ["<｜DSML｜parameter name=\"", "\""],
            parameter_end: "</｜DSML｜parameter>",
            lines: false,
            typed: Some([" string=\"true\">", " string=\"false\">"]),
            between: "\n",
        })],
        ..PLAIN
    }),
    tokens: &["｜DSML｜"],
    ..NONE
};

/// DeepSeek models that were not trained to call tools.
static DEEPSEEK_V2: Dialect = Dialect { name: "deepseek-v2", reasoning: THINK, ..NONE };

static GLM: Dialect = Dialect {
    name: "glm",
    reasoning: THINK,
    tools: Some(ToolSyntax {
        spans: &[TOOL_CALL],
        between: "\n",
        calls: &[CallSyntax::Pairs { key: ["<arg_key>", "</arg_key>"], value: ["<arg_value>", "</arg_value>"] }],
        ..PLAIN
    }),
    ..NONE
};

static KIMI: Dialect = Dialect {
    name: "kimi",
    reasoning: THINK,
    tools: Some(ToolSyntax {
        spans: &[Span { open: "<|tool_calls_section_begin|>", close: Some("<|tool_calls_section_end|>") }],
        shared: true,
        calls: &[CallSyntax::Named(NamedSyntax {
            item: Some(["<|tool_call_begin|>", "<|tool_call_end|>"]),
            prefix: "functions.",
            numbered: true,
            separator: "<|tool_call_argument_begin|>",
            ..NAMED
        })],
        ..PLAIN
    }),
    ..NONE
};

static GEMMA: Dialect = Dialect { name: "gemma", ..NONE };

const fn tokens(tokens: &'static [&'static str]) -> Evidence {
    Evidence { tokens, template: &[] }
}

/// Every dialect with what gives it away; the first whose evidence is complete is the model's.
pub(crate) static DIALECTS: [(&Dialect, &[Evidence]); 19] = [
    (&MINIMAX, &[tokens(&["]~b]", "[e~["]), Evidence { tokens: &[], template: &["<minimax:tool_call>"] }]),
    (&DEEPSEEK_DSML, &[tokens(&["｜DSML｜"]), Evidence { tokens: &[], template: &["<｜DSML｜invoke"] }]),
    (&DEEPSEEK_V3, &[Evidence { tokens: &["<｜tool▁sep｜>"], template: &["<｜tool▁sep｜>", "```json"] }]),
    (&DEEPSEEK, &[tokens(&["<｜tool▁sep｜>"])]),
    (&DEEPSEEK_V2, &[tokens(&["<｜end▁of▁sentence｜>"])]),
    (&SPARK, &[tokens(&["<|User|>", "<|Bot|>"])]),
    (&GLM, &[tokens(&["<arg_key>", "<arg_value>"]), Evidence { tokens: &[], template: &["<arg_key>", "<arg_value>"] }]),
    (&KIMI, &[tokens(&["<|tool_calls_section_begin|>"])]),
    (&HARMONY, &[tokens(&["<|start|>", "<|channel|>", "<|message|>", "<|call|>"])]),
    (&MUSE, &[tokens(&["<|start|>", "<|message|>", "<|eom|>"])]),
    (&LLAMA3, &[tokens(&["<|start_header_id|>", "<|eot_id|>"])]),
    (&GEMMA4, &[tokens(&["<|turn>", "<turn|>"])]),
    (&QWEN3_5, &[Evidence { tokens: &["<|im_start|>"], template: &["<function=", "<parameter="] }]),
    (&CHATML, &[tokens(&["<|im_start|>", "<|im_end|>"]), tokens(&["<tool_call>", "</tool_call>"])]),
    (&MISTRAL_V11, &[tokens(&["[TOOL_CALLS]", "[ARGS]"])]),
    (&MISTRAL, &[tokens(&["[TOOL_CALLS]"])]),
    (&GEMMA, &[tokens(&["<start_of_turn>", "<end_of_turn>"])]),
    // A model that was given another chat template than its vocabulary was made for.
    (&CHATML, &[Evidence { tokens: &[], template: &["<tool_call>", "\"arguments\""] }]),
    (&PLAIN_TEXT, &[]),
];
