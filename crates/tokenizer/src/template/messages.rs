//! The variables a template sees: messages, tools and settings, in the shape the template expects.

use super::json::to_value;
use super::{ChatTemplate, CivilTime};
use crate::chat::{ChatRequest, Content, Message};
use crate::error::TemplateError;
use crate::guard::{Author, Guard};
use minijinja::Value;
use serde_json::{Map, Value as Json, json};

/// Whether text from outside the template is marked.
pub(crate) enum Marking<'a> {
    /// Text stays as it is.
    Off,
    /// Control tokens in it are marked.
    On(&'a Guard<'a>),
}

impl Marking<'_> {
    fn text(&self, text: &str, author: Author) -> Value {
        match self {
            Self::Off => Value::from(text),
            Self::On(guard) => Value::from(guard.mark(text, author).as_ref()),
        }
    }

    fn json(&self, json: &Json, author: Author) -> Value {
        to_value(json, &|text| self.text(text, author))
    }
}

/// In which shape a template wants what the API leaves open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// An assistant message that only calls tools has content `none`, not the empty text.
    null_content: bool,
    /// The arguments of a call are JSON text, not an object.
    text_arguments: bool,
    /// Content is a list of parts, not a text.
    parts: bool,
}

impl Shape {
    /// Renders conversations in every shape and looks at which comes out whole.
    pub(crate) fn probe(template: &ChatTemplate) -> Self {
        let call = json!({"type": "function", "id": "call00001", "function": {"name": "probe_name", "arguments": {"probe_key": 1}}});
        let mut assistant = Message { role: "assistant".into(), tool_calls: Some(vec![call]), ..Message::default() };
        let mut request = ChatRequest {
            now: Some(CivilTime::from_unix_seconds(0)),
            bos_token: Some(String::new()),
            eos_token: Some(String::new()),
            ..ChatRequest::default()
        };
        // Whether the result depends on the text; a template may cut it, so what comes of it is not looked at.
        let mut shows = |parts| {
            let shape = Self { parts, ..Self::default() };
            let [one, other] = ["ab", "yz"].map(|text| {
                request.messages = vec![Message::user(text)];
                template.run(&request, shape, &Marking::Off).unwrap_or_default()
            });
            one != other
        };
        let parts = !shows(false) && shows(true);
        let mut render = |null_content, text_arguments| {
            assistant.content = if null_content { Content::Null } else { Content::from("") };
            request.messages = vec![Message::user("x"), assistant.clone()];
            let shape = Self { null_content, text_arguments, parts };
            template.run(&request, shape, &Marking::Off).unwrap_or_default()
        };
        let complete = |text: &str| text.contains("probe_name") && text.contains("probe_key");
        let text_arguments = [false, true]
            .into_iter()
            .find(|&text| complete(&render(false, text)) || complete(&render(true, text)))
            .unwrap_or(false);
        let with_null = render(true, text_arguments);
        Self { null_content: complete(&with_null) && !with_null.contains("None"), text_arguments, parts }
    }
}

/// The template's variables, and the bytes of text in them.
pub(crate) fn context(
    request: &ChatRequest,
    shape: Shape,
    marking: &Marking<'_>,
) -> Result<(Value, usize), TemplateError> {
    let mut size = 0;
    let mut messages = Vec::with_capacity(request.messages.len());
    for (index, message) in request.messages.iter().enumerate() {
        let fields = Json::Object(message_fields(message, index, shape)?);
        size += json_size(&fields);
        let author = if message.role == "assistant" { Author::Assistant } else { Author::Other };
        messages.push(marking.json(&fields, author));
    }
    let tools = request.tools.as_ref().filter(|tools| !tools.as_array().is_some_and(Vec::is_empty));
    size += tools.map_or(0, json_size);
    let mut variables: Vec<(String, Value)> = vec![("documents".into(), Value::from(()))];
    for (name, value) in &request.extra {
        size += json_size(value);
        variables.push((name.clone(), marking.json(value, Author::Other)));
    }
    let special = [
        ("bos_token", &request.bos_token),
        ("eos_token", &request.eos_token),
        ("pad_token", &request.pad_token),
        ("unk_token", &request.unk_token),
    ];
    for (name, text) in special {
        variables.extend(text.as_deref().map(|text| (name.to_owned(), Value::from(text))));
    }
    variables.push(("messages".into(), messages.into()));
    variables.push(("tools".into(), tools.map_or_else(|| Value::from(()), |tools| marking.json(tools, Author::Other))));
    variables.push(("add_generation_prompt".into(), request.add_generation_prompt.into()));
    Ok((Value::from_pairs(variables), size))
}

fn message_fields(message: &Message, index: usize, shape: Shape) -> Result<Map<String, Json>, TemplateError> {
    let mut fields = Map::new();
    fields.insert("role".into(), message.role.as_str().into());
    let calls = message.tool_calls.as_ref().filter(|calls| !calls.is_empty());
    let content = match &message.content {
        Content::Null if shape.null_content && calls.is_some() => Json::Null,
        Content::Null => "".into(),
        Content::Text(text) => text.as_str().into(),
        Content::Parts(parts) => {
            let mut joined = String::new();
            for part in parts {
                match (part.kind.as_str(), &part.text) {
                    ("text", text) => joined.push_str(text.as_deref().unwrap_or_default()),
                    (kind, _) => {
                        return Err(TemplateError::UnsupportedPart { index, kind: kind.to_owned() });
                    }
                }
            }
            joined.into()
        }
    };
    let content = if shape.parts && content.is_string() { json!([{"type": "text", "text": content}]) } else { content };
    fields.insert("content".into(), content);
    if let Some(name) = &message.name {
        fields.insert("name".into(), name.as_str().into());
    }
    if let Some(calls) = calls {
        fields.insert(
            "tool_calls".into(),
            calls.iter().map(|call| shaped_call(call, shape, index)).collect::<Result<_, _>>()?,
        );
    }
    if let Some(id) = &message.tool_call_id {
        fields.insert("tool_call_id".into(), id.as_str().into());
    }
    fields.extend(message.extra.clone());
    Ok(fields)
}

/// A tool call with its arguments in the template's shape.
fn shaped_call(call: &Json, shape: Shape, index: usize) -> Result<Json, TemplateError> {
    let mut call = call.clone();
    let nested = call.get("function").is_some_and(Json::is_object);
    let function = if nested { call.get_mut("function") } else { Some(&mut call) };
    let Some(function) = function.and_then(Json::as_object_mut) else { return Ok(call) };
    let name = function.get("name").and_then(Json::as_str).unwrap_or_default().to_owned();
    let Some(target) = function.get_mut("arguments") else { return Ok(call) };
    let bad = |reason: String| TemplateError::BadArguments { index, name: name.clone(), reason };
    let shaped = match &*target {
        Json::String(text) if !shape.text_arguments && text.trim().is_empty() => Some(json!({})),
        Json::String(text) if !shape.text_arguments => {
            let value: Json = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
            Some(value.is_object().then_some(value).ok_or_else(|| bad(format!("found `{text}`")))?)
        }
        Json::Object(_) if shape.text_arguments => Some(Json::String(target.to_string())),
        _ => None,
    };
    if let Some(shaped) = shaped {
        *target = shaped;
    }
    Ok(call)
}

/// Bytes of text in a value, with a little for each number and field.
fn json_size(json: &Json) -> usize {
    match json {
        Json::String(text) => text.len() + 16,
        Json::Array(items) => 16 + items.iter().map(json_size).sum::<usize>(),
        Json::Object(fields) => 16 + fields.iter().map(|(key, value)| key.len() + json_size(value)).sum::<usize>(),
        _ => 16,
    }
}
