//! Values as Python's `str` and `repr` write them.

use crate::guard::{MARK, QUOTE};
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, State};
use regex::Regex;
use std::fmt::Write;
use std::sync::LazyLock;

/// Deeper values are cut off; no template nests lists as deeply.
const DEPTH: usize = 100;

/// What Python shows as an escape: controls, format characters, unassigned and private ones, and spaces but ' '.
static HIDDEN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[\p{C}\p{Z}--\x20]").expect("the pattern is a constant that compiles"));

/// Python's `str` of a value, where it differs from the engine's.
pub(super) fn differing(state: &State, value: &Value) -> Result<Option<String>, Error> {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => {}
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {}
        _ => return Ok(None),
    }
    let mut out = String::new();
    write_repr(state, value, 0, &mut out)?;
    Ok(Some(out))
}

/// Python's `str` of a value.
pub(super) fn string(state: &State, value: &Value) -> Result<String, Error> {
    Ok(differing(state, value)?.unwrap_or_else(|| value.to_string()))
}

/// Can Python's `repr` show this character as itself?
pub(super) fn is_printable(c: char) -> bool {
    !HIDDEN.is_match(c.encode_utf8(&mut [0; 4]))
}

/// Pays for each value it visits: a list may hold the same list many times over.
fn write_repr(state: &State, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    state.consume_fuel(1)?;
    if depth > DEPTH {
        out.push_str("...");
        return Ok(());
    }
    match value.kind() {
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            state.consume_fuel(text.len() as u64 / 16)?;
            write_string(text, out);
        }
        ValueKind::Number if !value.is_integer() => write_float(f64::try_from(value.clone())?, out),
        kind @ (ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) => {
            let (open, close) = match kind {
                ValueKind::Map => ('{', '}'),
                _ if value.is_tuple() => ('(', ')'),
                _ => ('[', ']'),
            };
            out.push(open);
            for (at, item) in value.try_iter()?.enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write_repr(state, &item, depth + 1, out)?;
                if kind == ValueKind::Map {
                    out.push_str(": ");
                    write_repr(state, &value.get_item(&item)?, depth + 1, out)?;
                }
            }
            if value.is_tuple() && value.len() == Some(1) {
                out.push(',');
            }
            out.push(close);
        }
        _ => _ = write!(out, "{value}"),
    }
    Ok(())
}

fn write_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'\\' && char::from(byte) != quote) {
        out.push_str(text);
        return out.push(quote);
    }
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            // Marks are not text and must stay what they are.
            MARK | QUOTE => out.push(c),
            c if c == quote => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            c if is_printable(c) => out.push(c),
            c => {
                let _ = match u32::from(c) {
                    code @ 0..0x100 => write!(out, "\\x{code:02x}"),
                    code @ 0x100..0x1_0000 => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// Python's `repr` of a float.
pub(crate) fn write_float(number: f64, out: &mut String) {
    if number.is_nan() {
        return out.push_str("nan");
    }
    if number.is_infinite() {
        return out.push_str(if number > 0.0 { "inf" } else { "-inf" });
    }
    // The shortest digits that read back as the same number, as in Python; only the layout differs.
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    if number == 0.0 || (-4..16).contains(&exponent) {
        let start = out.len();
        let _ = write!(out, "{number}");
        if !out[start..].contains('.') {
            out.push_str(".0");
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{digits}e{sign}{:02}", exponent.abs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_python_prints_them() {
        let cases = [
            (1.0, "1.0"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (1e22, "1e+22"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1.5e300, "1.5e+300"),
            (123456789.125, "123456789.125"),
            (-2.5e-7, "-2.5e-07"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
        ];
        for (number, expected) in cases {
            let mut text = String::new();
            write_float(number, &mut text);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn lists_show_their_strings_as_python_writes_them() {
        let cases = [
            ("it's", r#""it's""#),
            ("both '\"", r#"'both \'"'"#),
            ("a\\\n\0\u{7f}\u{a0}\u{200b}\u{10FFFF}é雪😀", r"'a\\\n\x00\x7f\xa0\u200b\U0010ffffé雪😀'"),
        ];
        for (text, expected) in cases {
            let mut out = String::new();
            write_string(text, &mut out);
            assert_eq!(out, expected);
        }
    }
}
