//! Writes replies and calls as a model of a dialect would.

use super::arguments::{CallError, ToolCall};
use super::calls::members;
use super::{CallSyntax, Dialect, Framing, Messages, NamedSyntax, TagSyntax, ToolSyntax};
use serde_json::Value;
use std::borrow::Cow;

type Fields<'a> = Vec<(String, Cow<'a, str>)>;

impl Dialect {
    /// A reply with reasoning, content and calls, each left out where it is empty.
    ///
    /// The reply begins behind the assistant's role in the prompt. Arguments that are no JSON object are an error, and
    /// so are calls in a dialect without a call syntax.
    pub fn write_reply(&self, reasoning: &str, content: &str, calls: &[ToolCall]) -> Result<String, CallError> {
        match &self.framing {
            Framing::Text => {
                let mut out = match &self.reasoning {
                    Some(tags) if !reasoning.is_empty() => {
                        let line = if tags.label.is_empty() { "\n" } else { "" };
                        format!("{}{}{line}{reasoning}\n{}\n\n", tags.open, tags.label, tags.close)
                    }
                    _ => String::new(),
                };
                out.push_str(content);
                if let (Some(tools), false) = (&self.tools, calls.is_empty()) {
                    out.push_str(if content.is_empty() { "" } else { tools.between_content() });
                }
                out.push_str(&self.write_calls(calls)?);
                Ok(out)
            }
            Framing::Messages(messages) => self.write_messages(messages, reasoning, content, calls),
        }
    }

    /// Calls alone, as they stand in a reply.
    pub fn write_calls(&self, calls: &[ToolCall]) -> Result<String, CallError> {
        if calls.is_empty() {
            return Ok(String::new());
        }
        if let Framing::Messages(messages) = &self.framing {
            return self.write_messages(messages, "", "", calls);
        }
        self.tools.as_ref().ok_or(CallError::NoTools)?.write(calls)
    }

    fn write_messages(
        &self,
        messages: &Messages,
        reasoning: &str,
        content: &str,
        calls: &[ToolCall],
    ) -> Result<String, CallError> {
        let mut written: Vec<(String, String)> = Vec::new();
        let address = |word: &str| match messages.channel {
            Some(channel) => format!("{channel}{word}"),
            None => format!(" to={word}"),
        };
        if !reasoning.is_empty() {
            written.push((address(messages.reasoning[0]), reasoning.to_owned()));
        }
        if !content.is_empty() {
            written.push((address(messages.answer), content.to_owned()));
        }
        match (messages.recipient, &self.tools) {
            (Some(prefix), _) => {
                for call in calls {
                    members(&call.arguments)?;
                    let channel = messages.channel.map(|channel| format!("{channel}commentary")).unwrap_or_default();
                    let kind = messages.constrain.map(|constrain| format!(" {constrain}json")).unwrap_or_default();
                    let header = format!(" to={prefix}{}{channel}{kind}", call.name);
                    written.push((header, call.arguments.clone()));
                }
            }
            (None, Some(tools)) if !calls.is_empty() => {
                written.push((format!(" to={}", calls[0].name), tools.write(calls)?));
            }
            _ => {}
        }
        let last_end = if calls.is_empty() { messages.ends[1] } else { messages.call_end };
        let count = written.len();
        let write = |(at, (header, body)): (usize, (String, String))| {
            let start = if at == 0 { String::new() } else { format!("{}assistant", messages.start) };
            let end = if at + 1 == count { last_end } else { messages.ends[0] };
            format!("{start}{header}{}{body}{end}", messages.body)
        };
        Ok(written.into_iter().enumerate().map(write).collect())
    }
}

impl ToolSyntax {
    /// What stands between content and the first call.
    fn between_content(&self) -> &'static str {
        if self.between.starts_with('\n') { self.between } else { "" }
    }

    fn write(&self, calls: &[ToolCall]) -> Result<String, CallError> {
        let (Some(span), Some(syntax)) = (self.spans.first(), self.calls.first()) else {
            return Err(CallError::NoTools);
        };
        let mut bodies = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            bodies.push(write_call(syntax, call, index)?);
        }
        let close = span.close.unwrap_or_default();
        let wrap = |body: &str| format!("{}{}{body}{}{close}", span.open, self.padding, self.padding);
        Ok(match (self.shared, syntax) {
            (true, CallSyntax::Object { list: true, .. }) => wrap(&format!("[{}]", bodies.join(self.between))),
            (true, _) => wrap(&bodies.join(self.between)),
            (false, _) => bodies.iter().map(|body| wrap(body)).collect::<Vec<_>>().join(self.between),
        })
    }
}

fn write_call(syntax: &CallSyntax, call: &ToolCall, index: usize) -> Result<String, CallError> {
    let fields: Fields<'_> = members(&call.arguments)?;
    let name = call.name.as_str();
    Ok(match syntax {
        CallSyntax::Object { arguments, .. } => {
            let id = call.id.as_ref().map(|id| format!(", \"id\": {}", Value::from(id.as_str()))).unwrap_or_default();
            format!("{{\"name\": {}, \"{arguments}\": {}{id}}}", Value::from(name), call.arguments)
        }
        CallSyntax::Named(named) => write_named(named, call, index),
        CallSyntax::Tags(tags) => write_tags(tags, name, &fields),
        CallSyntax::Pairs { key, value } => {
            let pairs = fields.iter().map(|(argument, json)| {
                format!("\n{}{argument}{}\n{}{}{}", key[0], key[1], value[0], bare(json), value[1])
            });
            format!("{name}{}\n", pairs.collect::<String>())
        }
        CallSyntax::Braces { prefix, quote } => {
            let arguments: Value =
                serde_json::from_str(&call.arguments).map_err(|error| CallError::Json { reason: error.to_string() })?;
            let mut out = format!("{prefix}{name}");
            write_braces(&arguments, quote, &mut out);
            out
        }
        CallSyntax::Python => {
            let arguments = fields.iter().map(|(argument, json)| format!("{argument}={json}"));
            format!("{name}.call({})", arguments.collect::<Vec<_>>().join(", "))
        }
    })
}

/// A string's text, or any other value's JSON.
fn bare(json: &str) -> String {
    serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned())
}

fn write_named(syntax: &NamedSyntax, call: &ToolCall, index: usize) -> String {
    let [open, close] = syntax.item.unwrap_or_default();
    let kind = syntax.kind.map(|kind| kind.concat()).unwrap_or_default();
    let head = match (&call.id, syntax.numbered) {
        (Some(id), true) => id.clone(),
        (None, true) => format!("{}{}:{index}", syntax.prefix, call.name),
        (_, false) => format!("{}{}", syntax.prefix, call.name),
    };
    let id = syntax.id.zip(call.id.as_ref()).map(|(marker, id)| format!("{marker}{id}")).unwrap_or_default();
    let [before, after] = syntax.fence;
    format!("{open}{kind}{head}{id}{}{before}{}{after}{close}", syntax.separator, call.arguments)
}

fn write_tags(syntax: &TagSyntax, name: &str, fields: &Fields<'_>) -> String {
    let line = if syntax.lines { "\n" } else { "" };
    let mut parts = vec![format!("{}{name}{}", syntax.call[0], syntax.call[1])];
    for (argument, json) in fields {
        let kind = syntax.typed.map(|[string, other]| if json.starts_with('"') { string } else { other });
        parts.push(format!(
            "{}{argument}{}{}{line}{}{line}{}",
            syntax.parameter[0],
            syntax.parameter[1],
            kind.unwrap_or_default(),
            bare(json),
            syntax.parameter_end
        ));
    }
    parts.push(syntax.call_end.to_owned());
    parts.join(syntax.between)
}

fn write_braces(value: &Value, quote: &str, out: &mut String) {
    let comma = |at: usize, out: &mut String| out.push_str(if at == 0 { "" } else { "," });
    match value {
        Value::String(text) => *out += &format!("{quote}{text}{quote}"),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                comma(at, out);
                write_braces(item, quote, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$');
            out.push('{');
            for (at, (key, item)) in fields.iter().enumerate() {
                comma(at, out);
                let plain = !key.is_empty() && key.chars().all(is_plain);
                *out += &if plain { key.clone() } else { format!("{quote}{key}{quote}") };
                out.push(':');
                write_braces(item, quote, out);
            }
            out.push('}');
        }
        other => *out += &other.to_string(),
    }
}
