//! From the inside of a span to calls.

mod braces;
mod named;
mod objects;
mod python;
mod tags;

pub(crate) use objects::members;

use super::arguments::{CallError, RawText, ToolCall, Tools};
use super::marked::Body;
use super::{CallSyntax, ToolSyntax};
use std::borrow::Cow;
use std::ops::Range;

/// A call as it was written.
#[derive(Debug)]
pub(crate) struct RawCall<'a> {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) arguments: RawArguments<'a>,
}

/// Arguments as they were written.
#[derive(Debug)]
pub(crate) enum RawArguments<'a> {
    /// The text of a JSON object.
    Json(Cow<'a, str>),
    /// One value for each argument.
    Fields(Vec<(String, RawText<'a>)>),
}

/// One call of a span, or why it is none, and where it stands.
pub(crate) type Item<'a> = (Range<usize>, Result<RawCall<'a>, CallError>);

/// Part of a span: a call, or text that is none.
#[derive(Debug)]
pub(crate) enum Part {
    Call(ToolCall),
    Text(Range<usize>, CallError),
}

/// The calls in `body`. `closed` says whether the span had its closing marker.
pub(crate) fn parse(
    body: Body<'_>,
    syntax: &ToolSyntax,
    tools: Option<&Tools>,
    closed: bool,
) -> Result<Vec<Part>, CallError> {
    let tools = tools.ok_or(CallError::NoTools)?;
    let mut first_error = None;
    for syntax in syntax.calls {
        match read(body, syntax, tools, closed) {
            Ok(items) => {
                return Ok(items
                    .into_iter()
                    .map(|(range, call)| match call.and_then(|call| tools.admit(call)) {
                        Ok(call) => Part::Call(call),
                        Err(error) => Part::Text(range, error),
                    })
                    .collect());
            }
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.unwrap_or(CallError::Incomplete))
}

/// The items of `body` in one syntax; an error where it is not in this syntax at all.
fn read<'a>(body: Body<'a>, syntax: &CallSyntax, tools: &Tools, closed: bool) -> Result<Vec<Item<'a>>, CallError> {
    let items = match syntax {
        CallSyntax::Object { arguments, .. } => objects::read(body, arguments)?,
        CallSyntax::Named(named) => named::read(body, named, closed)?,
        CallSyntax::Tags(tags) => tags::read(body, tags)?,
        // A name that was cut off still looks like a name.
        CallSyntax::Pairs { .. } if !closed => return Err(CallError::Incomplete),
        CallSyntax::Pairs { key, value } => tags::read_pairs(body, key, value)?,
        CallSyntax::Braces { prefix, quote } => braces::read(body, prefix, quote)?,
        CallSyntax::Python => python::read(body, tools)?,
    };
    if items.is_empty() { Err(expected("a call")) } else { Ok(items) }
}

pub(crate) fn expected(what: impl Into<String>) -> CallError {
    CallError::Syntax { expected: what.into() }
}

/// What follows `literal` after white space.
fn after<'a>(body: Body<'a>, literal: &'static str) -> Result<Body<'a>, CallError> {
    body.trim_start().strip_prefix(literal).ok_or_else(|| expected(format!("`{literal}`")))
}

/// What stands before the next `literal`, and what follows it.
fn until<'a>(body: Body<'a>, literal: &'static str) -> Result<(Body<'a>, Body<'a>), CallError> {
    body.split_once(literal).ok_or_else(|| expected(format!("`{literal}`")))
}
