//! Forced tool calls: a grammar out of a dialect's description and the tools' schemas.
//!
//! The frame of a call is what the dialect itself writes around a call's arguments; only the arguments are free, within
//! their schema. Control tokens of the frame are tokens of the grammar, everything else is text.

use crate::error::GrammarError;
use crate::schema;
use crate::source::Source;
use serde_json::Value;
use std::fmt::Write;
use tokenizer::{CallSyntax, Dialect, Encode, Framing, TagSyntax, Tokenizer, ToolCall};

/// Which tool must be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// One of those offered.
    Required,
    /// This one.
    Named(String),
}

/// Stands for the arguments while the dialect writes a call.
const ARGUMENTS: &str = r#"{"arguments":"\u0001"}"#;

/// A grammar of replies that are one call of one of `tools`, as the model's dialect writes it.
///
/// `tools` is the list of a chat request: objects with `name` and `parameters`, alone or under `function`.
///
/// # Errors
/// A dialect whose calls cannot be put into a grammar, tools that are not what they should be, a choice that is not
/// offered, a schema with a part that cannot be enforced.
pub fn call_grammar(
    tokenizer: &Tokenizer,
    dialect: &Dialect,
    tools: &Value,
    choice: &ToolChoice,
) -> Result<Source, GrammarError> {
    let refuse = |reason: String| GrammarError::Call { reason };
    let mut offered: Vec<Tool<'_>> = Vec::new();
    for (index, tool) in tools.as_array().into_iter().flatten().enumerate() {
        offered.push(Tool::read(tool).ok_or_else(|| refuse(format!("tool {index} has no name")))?);
    }
    let all: Vec<&str> = offered.iter().map(|tool| tool.name).collect();
    let all = all.join(", ");
    if let ToolChoice::Named(name) = choice {
        offered.retain(|tool| tool.name == name);
        if offered.is_empty() {
            return Err(refuse(format!("the function `{name}` is not offered; offered: {all}")));
        }
    }
    if offered.is_empty() {
        return Err(refuse("no tools are offered".to_owned()));
    }
    let mut writer = Writer { tokenizer, dialect, rules: String::new() };
    let mut calls = Vec::new();
    for (index, tool) in offered.iter().enumerate() {
        writer.call(index, tool)?;
        calls.push(format!("call{index}"));
    }
    Ok(Source::Lark(format!("start: {}\n{}", calls.join(" | "), writer.rules)))
}

/// One tool on offer.
struct Tool<'a> {
    name: &'a str,
    parameters: Value,
}

impl<'a> Tool<'a> {
    fn read(tool: &'a Value) -> Option<Self> {
        let function = tool.get("function").unwrap_or(tool);
        let name = function.get("name")?.as_str().filter(|name| !name.is_empty())?;
        let mut parameters = function.get("parameters").cloned().unwrap_or_else(|| serde_json::json!({}));
        let fields = parameters.as_object_mut()?;
        fields.insert("type".to_owned(), "object".into());
        if !fields.contains_key("properties") && !fields.contains_key("additionalProperties") {
            fields.insert("additionalProperties".to_owned(), false.into());
        } else {
            // Arguments that nobody declared are of no use to the function.
            fields.entry("additionalProperties").or_insert(false.into());
        }
        Some(Self { name, parameters })
    }
}

struct Writer<'a> {
    tokenizer: &'a Tokenizer,
    dialect: &'a Dialect,
    rules: String,
}

impl Writer<'_> {
    fn call(&mut self, index: usize, tool: &Tool<'_>) -> Result<(), GrammarError> {
        let parameters = schema::checked(&tool.parameters).map_err(|error| in_tool(tool.name, error))?;
        let syntax = self.dialect.tools.as_ref().and_then(|tools| tools.calls.first());
        let verbatim = match (&self.dialect.framing, syntax) {
            (_, Some(CallSyntax::Object { .. } | CallSyntax::Named(_))) => true,
            (Framing::Messages(messages), None) if messages.recipient.is_some() => true,
            (_, Some(CallSyntax::Tags(_))) => false,
            (_, other) => {
                let what = match other {
                    Some(CallSyntax::Pairs { .. }) => "writes arguments as pairs of elements",
                    Some(CallSyntax::Braces { .. }) => "writes arguments in braces of its own",
                    Some(CallSyntax::Python) => "writes calls as Python",
                    _ => "has no tool calls",
                };
                let reason = format!("the dialect {} {what}, for which there is no grammar", self.dialect.name);
                return Err(GrammarError::Call { reason });
            }
        };
        let arguments = if verbatim { ARGUMENTS } else { "{}" };
        let call = ToolCall { id: None, name: tool.name.to_owned(), arguments: arguments.to_owned() };
        let written = self.dialect.write_calls(std::slice::from_ref(&call));
        let written = written.map_err(|error| GrammarError::Call { reason: error.to_string() })?;
        let (before, after) = match (verbatim, syntax) {
            (false, Some(CallSyntax::Tags(tags))) => written
                .rsplit_once(tags.call_end)
                .map(|(before, after)| (before.to_owned(), format!("{}{after}", tags.call_end))),
            _ => written.split_once(ARGUMENTS).map(|(before, after)| (before.to_owned(), after.to_owned())),
        }
        .ok_or_else(|| GrammarError::Call { reason: format!("the dialect {} hides arguments", self.dialect.name) })?;
        let (before, after) = (self.frame(&before)?, self.frame(&after)?);
        let _ = writeln!(self.rules, "call{index}: {before} arguments{index} {after}");
        match (verbatim, syntax) {
            (false, Some(CallSyntax::Tags(tags))) => self.elements(index, tool.name, tags, &parameters),
            _ => {
                self.json(&format!("arguments{index}"), &parameters);
                Ok(())
            }
        }
    }

    fn json(&mut self, rule: &str, schema: &Value) {
        let _ = writeln!(self.rules, "{rule}: %json {}", schema::with_layout(schema));
    }

    /// One element for each argument in declared order; those that are not required may be left out.
    fn elements(&mut self, index: usize, name: &str, tags: &TagSyntax, parameters: &Value) -> Result<(), GrammarError> {
        let empty = serde_json::Map::new();
        let properties = parameters.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required: Vec<&str> = parameters
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut row = String::new();
        let line = if tags.lines { "\n" } else { "" };
        for (at, (argument, schema)) in properties.iter().enumerate() {
            let rule = format!("argument{index}x{at}");
            let is_text = schema.get("type").and_then(Value::as_str) == Some("string");
            let kind = tags.typed.map(|[text, json]| if is_text { text } else { json }).unwrap_or_default();
            let open = self.frame(&format!("{}{argument}{}{kind}{line}", tags.parameter[0], tags.parameter[1]))?;
            let close_text = format!("{line}{}", tags.parameter_end);
            let (close, between) = (self.frame(&close_text)?, self.frame(tags.between)?);
            let value = format!("value{index}x{at}");
            let _ = writeln!(self.rules, "{rule}: {open} {value} {close} {between}");
            match (is_text, schema.get("enum").and_then(Value::as_array)) {
                (true, Some(values)) => {
                    let values: Vec<String> = values.iter().filter(|v| v.is_string()).map(Value::to_string).collect();
                    let _ = writeln!(self.rules, "{value}: {}", values.join(" | "));
                }
                (true, None) => {
                    if let Some(keyword) =
                        ["pattern", "format", "minLength", "maxLength"].into_iter().find(|k| schema.get(k).is_some())
                    {
                        let reason = "texts between tags cannot be bounded; leave it out".to_owned();
                        let path = format!("#/properties/{argument}/{keyword}");
                        return Err(in_tool(name, GrammarError::Schema { path, reason }));
                    }
                    // Text without the first character of what closes it, which no escape could bring back.
                    let stop = regex_class(&close_text);
                    let _ = writeln!(self.rules, "{value}: /[^{stop}]*/");
                }
                (false, _) => self.json(&value, schema),
            }
            let optional = if required.contains(&argument.as_str()) { "" } else { "?" };
            let _ = write!(row, " {rule}{optional}");
        }
        let row = if row.is_empty() { " \"\"".to_owned() } else { row };
        let _ = writeln!(self.rules, "arguments{index}:{row}");
        Ok(())
    }

    /// Text of the frame: control tokens by number, the rest as it is. A token that ends the reply is left to the end.
    fn frame(&self, text: &str) -> Result<String, GrammarError> {
        let ids = self.tokenizer.encode(text, Encode { special: true, bos: false });
        let ids = ids.map_err(|error| GrammarError::Call { reason: error.to_string() })?;
        let mut parts: Vec<String> = Vec::new();
        let mut rest = text;
        for id in ids.into_iter().filter(|id| self.tokenizer.is_control(*id)) {
            let marker = self.tokenizer.piece(id).unwrap_or_default();
            let Some((before, after)) = rest.split_once(&marker) else { continue };
            parts.extend((!before.is_empty()).then(|| Value::from(before).to_string()));
            if !self.tokenizer.stop_ids().contains(&id) {
                parts.push(format!("<[{id}]>"));
            }
            rest = after;
        }
        parts.extend((!rest.is_empty()).then(|| Value::from(rest).to_string()));
        Ok(if parts.is_empty() { "\"\"".to_owned() } else { parts.join(" ") })
    }
}

fn in_tool(name: &str, error: GrammarError) -> GrammarError {
    match error {
        GrammarError::Schema { path, reason } => {
            GrammarError::Schema { path: path.replacen('#', &format!("{name}#"), 1), reason }
        }
        other => other,
    }
}

/// The first visible character of `text`, for a class of a regular expression.
fn regex_class(text: &str) -> String {
    let c = text.chars().find(|c| !c.is_whitespace()).unwrap_or('<');
    format!("\\x{{{:X}}}", u32::from(c))
}
