//! Calls with one element for each argument.

use super::super::TagSyntax;
use super::super::arguments::{CallError, RawText};
use super::super::marked::Body;
use super::{Item, RawArguments, RawCall, after, expected, members, until};

/// Reads one call after the other.
pub(super) fn read<'a>(body: Body<'a>, syntax: &TagSyntax) -> Result<Vec<Item<'a>>, CallError> {
    let mut items = Vec::new();
    let mut rest = body.trim_start();
    while !rest.text.is_empty() {
        let start = body.text.len() - rest.text.len();
        let (call, following) = call(rest, syntax)?;
        items.push((start..body.text.len() - following.text.len(), Ok(call)));
        rest = following.trim_start();
    }
    Ok(items)
}

fn call<'a>(body: Body<'a>, syntax: &TagSyntax) -> Result<(RawCall<'a>, Body<'a>), CallError> {
    let (name, mut rest) = until(after(body, syntax.call[0])?, syntax.call[1])?;
    let name = name.text.trim().to_owned();
    rest = rest.trim_start();
    if rest.text.starts_with('{') {
        let (json, rest) = until(rest, syntax.call_end)?;
        let json = json.text.trim();
        members(json)?;
        return Ok((RawCall { id: None, name, arguments: RawArguments::Json(json.into()) }, rest));
    }
    let mut fields: Vec<(String, RawText<'a>)> = Vec::new();
    loop {
        if let Some(rest) = rest.strip_prefix(syntax.call_end) {
            return Ok((RawCall { id: None, name, arguments: RawArguments::Fields(fields) }, rest));
        }
        let (key, after_key) = until(after(rest, syntax.parameter[0])?, syntax.parameter[1])?;
        let (kind, opened) = match syntax.typed {
            None => (None, after_key),
            Some([string, json]) => match (after_key.strip_prefix(string), after_key.strip_prefix(json)) {
                (Some(rest), _) => (Some(true), rest),
                (_, Some(rest)) => (Some(false), rest),
                _ => (None, after_key.strip_prefix(">").ok_or_else(|| expected("`>`"))?),
            },
        };
        let (value, following) = value(opened, syntax)?;
        let value = if syntax.lines { without_lines(value.text) } else { value.text };
        let key = key.text.trim().to_owned();
        if fields.iter().any(|(known, _)| *known == key) {
            return Err(expected(format!("one argument `{key}`")));
        }
        fields.push((
            key,
            match kind {
                Some(true) => RawText::String(value),
                Some(false) => RawText::Json(value),
                None => RawText::Untyped(value),
            },
        ));
        rest = following.trim_start();
    }
}

/// The value up to its closing tag: the first one after which the call goes on as it should.
fn value<'a>(body: Body<'a>, syntax: &TagSyntax) -> Result<(Body<'a>, Body<'a>), CallError> {
    let mut from = 0;
    while let Some(at) = body.find(syntax.parameter_end, from) {
        let rest = body.from(at + syntax.parameter_end.len());
        let next = rest.trim_start();
        if next.strip_prefix(syntax.call_end).is_some() || next.strip_prefix(syntax.parameter[0]).is_some() {
            return Ok((body.slice(0, at), rest));
        }
        from = at + syntax.parameter_end.len();
    }
    Err(expected(format!("`{}`", syntax.parameter_end)))
}

/// A value without the line ends that set it off from its tags.
fn without_lines(text: &str) -> &str {
    let text = text.strip_prefix('\n').unwrap_or(text);
    text.strip_suffix('\n').unwrap_or(text)
}

/// Reads a name and pairs of elements.
pub(super) fn read_pairs<'a>(
    body: Body<'a>,
    key: &[&'static str; 2],
    value: &[&'static str; 2],
) -> Result<Vec<Item<'a>>, CallError> {
    let first = body.find(key[0], 0).unwrap_or(body.text.len());
    let name = body.text[..first].trim().to_owned();
    let mut rest = body.from(first);
    let mut fields = Vec::new();
    while !rest.text.trim().is_empty() {
        let (argument, following) = until(after(rest, key[0])?, key[1])?;
        let (text, following) = until(after(following, value[0])?, value[1])?;
        fields.push((argument.text.trim().to_owned(), RawText::Untyped(text.text)));
        rest = following;
    }
    let call = RawCall { id: None, name, arguments: RawArguments::Fields(fields) };
    Ok(vec![(0..body.text.len(), Ok(call))])
}
