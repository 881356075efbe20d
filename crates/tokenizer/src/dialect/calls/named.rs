//! Calls as a name and a JSON object.

use super::super::NamedSyntax;
use super::super::arguments::CallError;
use super::super::marked::Body;
use super::{Item, RawArguments, RawCall, after, expected, members, until};

/// Reads one call after the other. Where calls have no markers of their own and the span is not `closed`, arguments that
/// are not there may have been cut off.
pub(super) fn read<'a>(body: Body<'a>, syntax: &NamedSyntax, closed: bool) -> Result<Vec<Item<'a>>, CallError> {
    let Some([open, close]) = syntax.item else {
        if !closed && body.trim().text.ends_with(syntax.separator) && !syntax.separator.is_empty() {
            return Err(CallError::Incomplete);
        }
        return Ok(vec![(0..body.text.len(), Ok(call(body, syntax)?))]);
    };
    let mut items = Vec::new();
    let mut rest = body.trim_start();
    while !rest.text.is_empty() {
        let (inside, following) = until(after(rest, open)?, close)?;
        let start = body.text.len() - rest.text.len();
        items.push((start..body.text.len() - following.text.len(), call(inside, syntax)));
        rest = following.trim_start();
    }
    // A call that follows another form of this syntax is not malformed, it is in that form.
    match items.iter().all(|(_, call)| call.is_err()) {
        true => items.into_iter().next().map_or(Ok(Vec::new()), |(_, call)| call.map(|_| Vec::new())),
        false => Ok(items),
    }
}

fn call<'a>(body: Body<'a>, syntax: &NamedSyntax) -> Result<RawCall<'a>, CallError> {
    let mut body = body.trim();
    if let Some([kind, separator]) = syntax.kind {
        let (found, rest) = until(body, separator)?;
        if found.text.trim() != kind {
            return Err(expected(format!("`{kind}`")));
        }
        body = rest;
    }
    let separated = if syntax.separator.is_empty() { None } else { body.split_once(syntax.separator) };
    let (head, mut arguments) = match separated {
        Some(parts) => parts,
        // Without markers of its own a call can do without the separator.
        None if syntax.item.is_none() => {
            let brace = body.text.find('{').ok_or_else(|| expected("the arguments"))?;
            (body.slice(0, brace), body.from(brace))
        }
        None => return Err(expected(format!("`{}`", syntax.separator.escape_default()))),
    };
    let mut id = None;
    let mut head = head.trim();
    if let Some((name, given)) = syntax.id.and_then(|marker| head.split_once(marker)) {
        id = Some(given.text.trim().to_owned());
        head = name.trim();
    }
    let mut name = head.text;
    let numbered = name.rsplit_once(':').filter(|(_, number)| {
        syntax.numbered && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    if let Some((before, _)) = numbered {
        id = Some(name.to_owned());
        name = before;
    }
    name = name.strip_prefix(syntax.prefix).unwrap_or(name);
    arguments = arguments.trim();
    let [open, close] = syntax.fence;
    if !open.is_empty() {
        let fenced = arguments.text.strip_prefix(open.trim()).and_then(|text| text.strip_suffix(close.trim()));
        let text = fenced.ok_or_else(|| expected(format!("`{}`", open.trim())))?;
        return finish(id, name, text.trim());
    }
    finish(id, name, arguments.text)
}

fn finish<'a>(id: Option<String>, name: &str, arguments: &'a str) -> Result<RawCall<'a>, CallError> {
    let arguments = if arguments.is_empty() { "{}" } else { arguments };
    members(arguments)?;
    Ok(RawCall { id, name: name.to_owned(), arguments: RawArguments::Json(arguments.into()) })
}
