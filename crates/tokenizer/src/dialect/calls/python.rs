//! Calls in Python: `name.call(argument="value")`, or code for an interpreter.

use super::super::arguments::{CallError, RawText, Tools};
use super::super::marked::Body;
use super::{Item, RawArguments, RawCall, expected};
use serde_json::value::RawValue;

/// What a tool that runs code may be called.
const INTERPRETERS: [&str; 3] = ["python", "code_interpreter", "ipython"];

/// Reads one call.
pub(super) fn read<'a>(body: Body<'a>, tools: &Tools) -> Result<Vec<Item<'a>>, CallError> {
    let code = body.trim().text;
    if code.is_empty() || code.starts_with(['{', '[']) {
        return Err(expected("Python"));
    }
    let call = match built_in(code) {
        Some(call) => call,
        None => {
            let name = tools.first_of(&INTERPRETERS).ok_or_else(|| expected("a JSON object or `name.call(…)`"))?;
            let fields = vec![("code".to_owned(), RawText::String(code))];
            RawCall { id: None, name: name.to_owned(), arguments: RawArguments::Fields(fields) }
        }
    };
    Ok(vec![(0..body.text.len(), Ok(call))])
}

/// `name.call(key="value", …)`.
fn built_in(code: &str) -> Option<RawCall<'_>> {
    let (name, rest) = code.split_once(".call(")?;
    let mut rest = rest.strip_suffix(')')?.trim();
    let is_name =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name(name) {
        return None;
    }
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let (key, value) = rest.split_once('=')?;
        let mut stream = serde_json::Deserializer::from_str(value).into_iter::<&RawValue>();
        let found = stream.next()?.ok()?.get();
        let key = key.trim();
        fields.push((is_name(key).then(|| key.to_owned())?, RawText::Json(found)));
        rest = value[stream.byte_offset()..].trim_start();
        if !rest.is_empty() {
            rest = rest.strip_prefix(',')?.trim_start();
        }
    }
    Some(RawCall { id: None, name: name.to_owned(), arguments: RawArguments::Fields(fields) })
}
