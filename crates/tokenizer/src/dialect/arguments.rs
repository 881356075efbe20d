//! Tools on offer, and what makes a call one that can be handed on.

use super::calls::{RawArguments, RawCall, members};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Bytes of a function's name.
const MAX_NAME: usize = 128;

/// A call of a tool, complete and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The id that the model gave the call, in dialects that have ids.
    pub id: Option<String>,
    /// Name of the function, as it was offered.
    pub name: String,
    /// The arguments: a JSON object, as the model wrote it where it wrote JSON.
    pub arguments: String,
}

/// Why a span was no call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The request offered no tools.
    #[error("the request offers no tools")]
    NoTools,
    /// The reply ended inside the call.
    #[error("the call is not complete")]
    Incomplete,
    /// The call is longer than any sensible one.
    #[error("the call is longer than {limit} bytes")]
    TooLong {
        /// The most bytes of a call.
        limit: usize,
    },
    /// The call does not follow its dialect's syntax.
    #[error("the call is malformed: expected {expected}")]
    Syntax {
        /// What should have stood there.
        expected: String,
    },
    /// The call or its arguments are not JSON.
    #[error("the call is not JSON: {reason}")]
    Json {
        /// The parser's reason.
        reason: String,
    },
    /// The function's name has characters that no name has.
    #[error("`{name}` is not the name of a function")]
    Name {
        /// The name found.
        name: String,
    },
    /// The function was not offered.
    #[error("the function `{name}` was not offered; offered: {offered}")]
    Unknown {
        /// The name found.
        name: String,
        /// The names offered, separated by commas.
        offered: String,
    },
    /// An argument is not of its declared type.
    #[error("argument `{argument}` of `{function}` is `{found}`, which is not of type {expected}")]
    Argument {
        /// The function.
        function: String,
        /// Name of the argument.
        argument: String,
        /// The declared type.
        expected: String,
        /// The beginning of what was found.
        found: String,
    },
}

/// The functions that a request offers, with the types of their arguments.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    any: bool,
    parameters: HashMap<String, Map<String, Value>>,
}

impl Tools {
    /// The tools of a request: a list of objects of the chat completions API.
    pub fn new(tools: &Value) -> Self {
        let mut parameters = HashMap::new();
        for tool in tools.as_array().into_iter().flatten() {
            let function = tool.get("function").unwrap_or(tool);
            if let Some(name) = function["name"].as_str() {
                let properties = function["parameters"]["properties"].as_object().cloned();
                parameters.insert(name.to_owned(), properties.unwrap_or_default());
            }
        }
        Self { any: false, parameters }
    }

    /// Takes calls of every function; those offered in `tools` have their argument types.
    pub fn any(tools: &Value) -> Self {
        Self { any: true, ..Self::new(tools) }
    }

    /// The first of `names` that is offered.
    pub(crate) fn first_of(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.parameters.contains_key(*name)).or(self.any.then_some(names[0]))
    }

    /// Checks a call and brings its arguments into their declared types.
    pub(crate) fn admit(&self, call: RawCall<'_>) -> Result<ToolCall, CallError> {
        let name = call.name;
        let of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(of_name) {
            return Err(CallError::Name { name: excerpt(&name) });
        }
        let declared = self.parameters.get(&name);
        if declared.is_none() && !self.any {
            let mut offered: Vec<_> = self.parameters.keys().map(String::as_str).collect();
            offered.sort_unstable();
            return Err(CallError::Unknown { name, offered: offered.join(", ") });
        }
        let schema = |argument: &str| declared.and_then(|declared| declared.get(argument));
        let wrong = |argument: &str, expected: String, found: &str| CallError::Argument {
            function: name.clone(),
            argument: argument.to_owned(),
            expected,
            found: excerpt(found),
        };
        let arguments = match call.arguments {
            RawArguments::Json(text) => {
                let mut fields = members(&text)?;
                let mut changed = false;
                for (argument, value) in &mut fields {
                    if let Some(whole) =
                        whole_number(value, schema(argument)).map_err(|expected| wrong(argument, expected, value))?
                    {
                        *value = whole.into();
                        changed = true;
                    }
                }
                if changed { object(&fields) } else { text.into_owned() }
            }
            RawArguments::Fields(fields) => {
                let mut typed = Vec::with_capacity(fields.len());
                for (argument, value) in fields {
                    let value = value
                        .typed(schema(&argument))
                        .map_err(|(expected, found)| wrong(&argument, expected, found))?;
                    typed.push((argument, value));
                }
                object(&typed)
            }
        };
        Ok(ToolCall { id: call.id, name, arguments })
    }
}

/// An argument's value before its type is known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawText<'a> {
    /// A string, whatever its characters.
    String(&'a str),
    /// JSON.
    Json(&'a str),
    /// Either, as the declared type says.
    Untyped(&'a str),
}

impl<'a> RawText<'a> {
    /// The value as JSON, or the types expected and the text found.
    fn typed(self, schema: Option<&Value>) -> Result<String, (String, &'a str)> {
        match self {
            Self::String(text) => Ok(quoted(text)),
            Self::Json(text) => {
                serde_json::from_str::<&RawValue>(text.trim()).map_err(|_| ("JSON".to_owned(), text))?;
                let whole = whole_number(text.trim(), schema).map_err(|expected| (expected, text))?;
                Ok(whole.unwrap_or_else(|| text.trim().to_owned()))
            }
            Self::Untyped(text) => convert(text, &types(schema)).map_err(|expected| (expected, text)),
        }
    }
}

/// The types that a schema allows; empty if it says nothing of them.
fn types(schema: Option<&Value>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let Some(schema) = schema else { return found };
    match &schema["type"] {
        Value::String(one) => found.push(one.clone()),
        Value::Array(many) => found.extend(many.iter().filter_map(Value::as_str).map(str::to_owned)),
        _ => {}
    }
    if found.is_empty() {
        let alternatives = ["anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten();
        found.extend(alternatives.flat_map(|schema| types(Some(schema))));
    }
    if found.is_empty() {
        let values = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
        found.extend(values.map(|value| type_of(value).to_owned()));
    }
    found
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The JSON of a bare text under the allowed types, or the names of those types.
fn convert(text: &str, types: &[String]) -> Result<String, String> {
    let allowed = |name: &str| types.iter().any(|found| found == name);
    let bare = text.trim();
    if types.is_empty() {
        return Ok(match serde_json::from_str::<&RawValue>(bare) {
            Ok(value) if !value.get().starts_with('"') => value.get().to_owned(),
            _ => quoted(text),
        });
    }
    if allowed("null") && matches!(bare, "null" | "None") {
        return Ok("null".into());
    }
    if allowed("boolean") && matches!(bare, "true" | "false" | "True" | "False") {
        return Ok(bare.to_lowercase());
    }
    let json = serde_json::from_str::<&RawValue>(bare).ok().map(RawValue::get);
    let number = json.filter(|json| json.starts_with(|c: char| c == '-' || c.is_ascii_digit()));
    if let Some(number) = number.filter(|_| allowed("number") && !allowed("integer")) {
        return Ok(number.to_owned());
    }
    if let Some(whole) = number.filter(|_| allowed("integer")).and_then(as_integer) {
        return Ok(whole);
    }
    if let Some(number) = number.filter(|_| allowed("number")) {
        return Ok(number.to_owned());
    }
    for (name, open) in [("object", '{'), ("array", '[')] {
        if let Some(json) = json.filter(|json| allowed(name) && json.starts_with(open)) {
            return Ok(json.to_owned());
        }
    }
    if allowed("string") { Ok(quoted(text)) } else { Err(types.join(" or ")) }
}

/// What a JSON number of a whole-number argument has to become; `None` to leave the value as it is.
fn whole_number(json: &str, schema: Option<&Value>) -> Result<Option<String>, String> {
    let types = types(schema);
    let allowed = |name: &str| types.iter().any(|found| found == name);
    let fractional = json.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && json.contains(['.', 'e', 'E']);
    if !fractional || !allowed("integer") || allowed("number") {
        return Ok(None);
    }
    as_integer(json).map(Some).ok_or_else(|| types.join(" or "))
}

/// A JSON number as a whole number, if it is one: `3`, `3.0` and `3e0` are.
fn as_integer(json: &str) -> Option<String> {
    if !json.contains(['.', 'e', 'E']) {
        return Some(json.to_owned());
    }
    // Beyond 2⁵³ a fraction could have been lost.
    let value: f64 = json.parse().ok()?;
    (value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0).then(|| format!("{}", value as i64))
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn object<V: AsRef<str>>(fields: &[(String, V)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{}:{}", quoted(key), value.as_ref())).collect();
    format!("{{{}}}", fields.join(","))
}

fn excerpt(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bare_text_takes_its_declared_type() {
        let cases = [
            ("3", json!({"type": "integer"}), Some("3")),
            ("3.0", json!({"type": "integer"}), Some("3")),
            ("3.5", json!({"type": "integer"}), None),
            ("-3e2", json!({"type": "integer"}), Some("-300")),
            ("123456789012345678901", json!({"type": "integer"}), Some("123456789012345678901")),
            ("3.5", json!({"type": "number"}), Some("3.5")),
            ("3.50", json!({"type": "number"}), Some("3.50")),
            ("abc", json!({"type": "number"}), None),
            ("3", json!({"type": "string"}), Some("\"3\"")),
            (" a ", json!({"type": "string"}), Some("\" a \"")),
            ("True", json!({"type": "boolean"}), Some("true")),
            ("yes", json!({"type": "boolean"}), None),
            ("null", json!({"type": ["string", "null"]}), Some("null")),
            ("nil", json!({"type": ["string", "null"]}), Some("\"nil\"")),
            ("7", json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}), Some("7")),
            ("[1, 2]", json!({"type": "array"}), Some("[1, 2]")),
            ("[1, 2", json!({"type": "array"}), None),
            ("{\"a\": 1}", json!({"type": "object"}), Some("{\"a\": 1}")),
            ("{\"a\": 1}", json!({"type": "string"}), Some("\"{\\\"a\\\": 1}\"")),
            ("b", json!({"enum": ["a", "b"]}), Some("\"b\"")),
            ("7", json!({}), Some("7")),
            ("\"x\"", json!({}), Some("\"\\\"x\\\"\"")),
            ("x", json!({}), Some("\"x\"")),
        ];
        for (text, schema, expected) in cases {
            let found = RawText::Untyped(text).typed(Some(&schema)).ok();
            assert_eq!(found.as_deref(), expected, "{text} as {schema}");
        }
    }
}
