//! Calls as JSON objects: one, a list, or several in a row.

use super::super::arguments::CallError;
use super::super::marked::Body;
use super::{Item, RawArguments, RawCall, expected};
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The fields of a JSON object with their values as written.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    fields.push(entry);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

fn json_error(error: &serde_json::Error) -> CallError {
    if error.is_eof() { CallError::Incomplete } else { CallError::Json { reason: error.to_string() } }
}

/// The fields of the JSON object `text`, with their values' text.
pub(crate) fn members(text: &str) -> Result<Vec<(String, Cow<'_, str>)>, CallError> {
    let fields: Fields<'_> = serde_json::from_str(text).map_err(|error| json_error(&error))?;
    Ok(fields.0.into_iter().map(|(key, value)| (key, value.get().into())).collect())
}

/// Reads objects with white space, commas or semicolons between them, or lists of objects.
pub(super) fn read<'a>(body: Body<'a>, arguments: &'static str) -> Result<Vec<Item<'a>>, CallError> {
    let mut items = Vec::new();
    let mut at = 0;
    loop {
        at += body.text[at..].len() - body.text[at..].trim_start_matches(|c: char| c.is_whitespace() || c == ';').len();
        let rest = &body.text[at..];
        if rest.is_empty() {
            return Ok(items);
        }
        if !rest.starts_with(['{', '[']) {
            return Err(expected("a JSON object"));
        }
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        let Some(value) = stream.next() else { return Ok(items) };
        let value = value.map_err(|error| json_error(&error))?.get();
        let length = stream.byte_offset();
        if value.starts_with('[') {
            let list: Vec<&RawValue> = serde_json::from_str(value).map_err(|error| json_error(&error))?;
            for element in list {
                let start = element.get().as_ptr() as usize - body.text.as_ptr() as usize;
                items.push((start..start + element.get().len(), call(element.get(), arguments)));
            }
        } else {
            items.push((at..at + length, call(value, arguments)));
        }
        at += length;
    }
}

/// A call from its object.
fn call<'a>(text: &'a str, arguments: &str) -> Result<RawCall<'a>, CallError> {
    let Fields(mut fields) = serde_json::from_str(text).map_err(|error| json_error(&error))?;
    if let Some((_, function)) = fields.iter().find(|(key, value)| key == "function" && value.get().starts_with('{')) {
        let Fields(inner) = serde_json::from_str(function.get()).map_err(|error| json_error(&error))?;
        fields.extend(inner);
    }
    let one = |names: &[&str]| -> Result<Option<&'a str>, CallError> {
        let mut found = fields.iter().filter(|(key, _)| names.contains(&key.as_str()));
        let value = found.next().map(|(_, value)| value.get());
        if found.next().is_some() { Err(expected(format!("one field `{}`", names[0]))) } else { Ok(value) }
    };
    let string = |value: &str| serde_json::from_str::<String>(value).ok();
    let name = one(&["name"])?.and_then(string).ok_or_else(|| expected("a string in the field `name`"))?;
    let id = one(&["id", "call_id"])?.and_then(string).filter(|id| !id.is_empty());
    let arguments = match one(&[arguments, if arguments == "arguments" { "parameters" } else { "arguments" }])? {
        None | Some("null") => RawArguments::Json("{}".into()),
        Some(object) if object.starts_with('{') => RawArguments::Json(object.into()),
        Some(other) => {
            // Arguments as text of JSON, as the API writes them.
            let text = string(other).ok_or_else(|| expected("an object in the field of the arguments"))?;
            RawArguments::Json(text.into())
        }
    };
    Ok(RawCall { id, name, arguments })
}
