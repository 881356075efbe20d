//! Methods of Python's strings, lists and dicts that the compatibility crate lacks or has otherwise.

use super::text::is_printable;
use super::{bind, count};
use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use regex::Regex;
use std::sync::LazyLock;

/// Decimal digits, and the digits that Python takes for such without being able to compute with them.
static DIGIT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[\p{Nd}²³¹\u{1369}-\u{1371}\u{19DA}⁰⁴-⁹₀-₉①-⑨⑴-⑼⒈-⒐⓪⓵-⓽⓿❶-❾➀-➈➊-➒\u{10A40}-\u{10A43}\u{10E60}-\u{10E68}\u{11052}-\u{1105A}\u{1F100}-\u{1F10A}]+$")
        .expect("the pattern is a constant that compiles")
});
static DECIMAL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\p{Nd}+$").expect("the pattern is a constant that compiles"));

/// Whitespace as Python's strings know it: Unicode's and the four separators of ASCII.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// A method of a value; those that are the same everywhere are left to the compatibility crate.
pub(super) fn call(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let found = match (value.kind(), value.as_str()) {
        (_, Some(text)) => of_text(state, text, name, args)?,
        (ValueKind::Seq, _) => of_list(value, name, args)?,
        (ValueKind::Map, _) if name == "copy" => from_args(args).map(|()| Some(value.clone()))?,
        _ => None,
    };
    match found {
        Some(result) => Ok(result),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn of_list(list: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match name {
        "copy" => from_args(args).map(|()| Some(list.clone())),
        "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            match list.try_iter()?.position(|item| item == *wanted) {
                Some(at) => Ok(Some(at.into())),
                None => Err(Error::new(ErrorKind::InvalidOperation, "index: the list has no such item")),
            }
        }
        _ => Ok(None),
    }
}

fn of_text(state: &State, text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let test = |answer: bool| from_args(args).map(|()| Some(Value::from(answer)));
    let each = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    let result: Value = match name {
        "isdigit" => return test(DIGIT.is_match(text)),
        "isdecimal" => return test(DECIMAL.is_match(text)),
        "isspace" => return test(each(is_space)),
        "isprintable" => return test(text.chars().all(is_printable)),
        "isidentifier" => {
            return test(each(|c| c.is_alphanumeric() || c == '_') && !text.starts_with(char::is_numeric));
        }
        "istitle" => return test(text.chars().any(char::is_alphabetic) && titled(text) == text),
        "title" => from_args(args).map(|()| titled(text).into())?,
        "swapcase" => from_args(args).map(|()| swapped(text).into())?,
        "strip" | "lstrip" | "rstrip" => {
            let (characters,): (Option<&str>,) = from_args(args)?;
            let strips = |c: char| characters.map_or(is_space(c), |characters| characters.contains(c));
            let text = if name == "rstrip" { text } else { text.trim_start_matches(strips) };
            (if name == "lstrip" { text } else { text.trim_end_matches(strips) }).into()
        }
        "split" | "rsplit" => split(text, name == "rsplit", args)?,
        "splitlines" => {
            let (args, named): (Rest<Value>, Kwargs) = from_args(args)?;
            let [keep] = bind(&args, &named, ["keepends"])?;
            let keep = keep.is_some_and(|keep| keep.is_true());
            lines(text, keep).into_iter().map(Value::from).collect()
        }
        "startswith" | "endswith" if args.len() > 1 => {
            let (part, start, end): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
            let Some((_, within)) = within(text, start, end) else { return Ok(Some(false.into())) };
            return has_end(within, name, part).map(Some);
        }
        "find" | "rfind" | "index" | "rindex" | "count" => search(text, name, args)?,
        "removeprefix" => from_args(args).map(|(part,): (&str,)| text.strip_prefix(part).unwrap_or(text).into())?,
        "removesuffix" => from_args(args).map(|(part,): (&str,)| text.strip_suffix(part).unwrap_or(text).into())?,
        "partition" => {
            let (part,): (&str,) = from_args(args)?;
            triple(text.split_once(part).map_or([text, "", ""], |(before, after)| [before, part, after]))
        }
        "rpartition" => {
            let (part,): (&str,) = from_args(args)?;
            triple(text.rsplit_once(part).map_or(["", "", text], |(before, after)| [before, part, after]))
        }
        "center" | "ljust" | "rjust" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            let fill = fill.unwrap_or(' ');
            match name {
                "center" => center(state, text, width, fill)?,
                "ljust" => format!("{text}{}", padding(state, text, width, fill)?),
                _ => format!("{}{text}", padding(state, text, width, fill)?),
            }
            .into()
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            format!("{sign}{}{digits}", padding(state, text, width, '0')?).into()
        }
        "expandtabs" => {
            let (args, named): (Rest<Value>, Kwargs) = from_args(args)?;
            let [size] = bind(&args, &named, ["tabsize"])?;
            expand_tabs(state, text, size.map_or(Ok(8), |size| count(&size, "the tab size"))?)?.into()
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// `startswith` or `endswith` of one text or any of several.
fn has_end(text: &str, name: &str, part: &Value) -> Result<Value, Error> {
    let fits = |part: &str| if name == "startswith" { text.starts_with(part) } else { text.ends_with(part) };
    Ok(match part.as_str() {
        Some(part) => fits(part),
        None => part.try_iter()?.any(|part| part.as_str().is_some_and(fits)),
    }
    .into())
}

/// The part of `text` between two positions as slices count them, and the characters before it.
fn within(text: &str, start: Option<i64>, end: Option<i64>) -> Option<(usize, &str)> {
    let count = text.chars().count();
    let place = |at: Option<i64>, default: usize| match at {
        None => default,
        Some(at) if at < 0 => count.saturating_sub(at.unsigned_abs() as usize),
        Some(at) => at as usize,
    };
    let (start, end) = (place(start, 0), place(end, count).min(count));
    let byte = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
    (start <= end).then(|| (start, &text[byte(start)..byte(end)]))
}

fn search(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (part, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
    let inside = within(text, start, end);
    if name == "count" {
        return Ok(inside.map_or(0, |(_, inside)| inside.matches(part).count()).into());
    }
    let position = inside.and_then(|(before, inside)| {
        let at = if name.starts_with('r') { inside.rfind(part) } else { inside.find(part) };
        at.map(|at| before + inside[..at].chars().count())
    });
    match position {
        Some(at) => Ok(at.into()),
        None if name.ends_with("find") => Ok((-1).into()),
        None => Err(Error::new(ErrorKind::InvalidOperation, "substring not found")),
    }
}

fn split(text: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (args, named): (Rest<Value>, Kwargs) = from_args(args)?;
    let [separator, limit] = bind(&args, &named, ["sep", "maxsplit"])?;
    let separator = separator.filter(|separator| !separator.is_none());
    let separator = match &separator {
        None => None,
        Some(separator) => Some(
            separator
                .as_str()
                .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "split: the separator is not a text"))?,
        ),
    };
    let limit = limit.and_then(|limit| limit.as_i64()).and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(usize::MAX);
    let mut parts: Vec<&str> = match separator {
        Some("") => return Err(Error::new(ErrorKind::InvalidOperation, "split: the separator is empty")),
        Some(separator) if from_right => text.rsplitn(limit.saturating_add(1), separator).collect(),
        Some(separator) => text.splitn(limit.saturating_add(1), separator).collect(),
        None => words(text, from_right, limit),
    };
    if from_right {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

/// The words of a text from its near end, at most `limit` of them, and the rest as it is.
fn words(text: &str, from_right: bool, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        rest = if from_right { rest.trim_end_matches(is_space) } else { rest.trim_start_matches(is_space) };
        if rest.is_empty() {
            return parts;
        }
        if parts.len() == limit {
            parts.push(rest);
            return parts;
        }
        let (word, left) = if from_right {
            let at = rest.rfind(is_space).map_or(0, |at| at + rest[at..].chars().next().map_or(0, char::len_utf8));
            (&rest[at..], &rest[..at])
        } else {
            rest.split_at(rest.find(is_space).unwrap_or(rest.len()))
        };
        parts.push(word);
        rest = left;
    }
}

/// The lines of a text, cut where Python cuts them.
pub(super) fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let ends = |c| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.find(ends).unwrap_or(rest.len());
        let end = if rest[at..].starts_with("\r\n") { 2 } else { rest[at..].chars().next().map_or(0, char::len_utf8) };
        out.push(&rest[..if keep_ends { at + end } else { at }]);
        rest = &rest[at + end..];
    }
    out
}

/// Each letter behind a letter small, each other one large.
fn titled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_alphabetic();
    }
    out
}

fn swapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
    }
    out
}

fn triple(parts: [&str; 3]) -> Value {
    Value::from(Tuple::from(parts.map(Value::from).to_vec()))
}

/// What makes `text` as wide as asked for; pays for it before it is made.
fn padding(state: &State, text: &str, width: usize, fill: char) -> Result<String, Error> {
    let missing = width.saturating_sub(text.chars().count());
    state.consume_fuel(missing as u64 / 64)?;
    Ok(std::iter::repeat_n(fill, missing).collect())
}

/// `text` in the middle of `width`; an odd space goes where Python puts it.
pub(super) fn center(state: &State, text: &str, width: usize, fill: char) -> Result<String, Error> {
    let padding = padding(state, text, width, fill)?;
    let missing = width.saturating_sub(text.chars().count());
    let left = missing / 2 + (missing & width & 1);
    let mut fill = padding.chars();
    let before: String = fill.by_ref().take(left).collect();
    Ok(format!("{before}{text}{}", fill.as_str()))
}

fn expand_tabs(state: &State, text: &str, size: usize) -> Result<String, Error> {
    let (mut out, mut column) = (String::with_capacity(text.len()), 0);
    for c in text.chars() {
        match c {
            '\t' => {
                let missing = if size == 0 { 0 } else { size - column % size };
                state.consume_fuel(missing as u64 / 64)?;
                out.extend(std::iter::repeat_n(' ', missing));
                column += missing;
            }
            c => {
                out.push(c);
                column = if c == '\n' || c == '\r' { 0 } else { column + 1 };
            }
        }
    }
    Ok(out)
}
