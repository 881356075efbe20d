//! Where the template engine and Python differ: number formats, methods of strings, tests and escapes.

use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};
use std::fmt::Write;

/// Makes `environment` behave as Jinja2 in Python does.
pub(crate) fn install(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out, state, value| match float_text(value) {
        Some(text) => out.write_str(&text).map_err(Error::from),
        None => minijinja::escape_formatter(out, state, value),
    });
    environment.add_filter("string", |value: &Value| float_text(value).unwrap_or_else(|| value.to_string()));
    environment.add_filter("e", escape_html);
    environment.add_filter("escape", escape_html);
    // The engine would call `none` iterable.
    environment
        .add_test("iterable", |value: &Value| value.is_undefined() || (!value.is_none() && value.try_iter().is_ok()));
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

fn float_text(value: &Value) -> Option<String> {
    if value.kind() != ValueKind::Number || value.is_integer() {
        return None;
    }
    let mut text = String::new();
    write_float(f64::try_from(value.clone()).ok()?, &mut text);
    Some(text)
}

fn escape_html(value: &Value) -> String {
    let text = float_text(value).unwrap_or_else(|| value.to_string());
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Methods of Python's strings that the compatibility crate lacks; all others are left to it.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let texts: Option<Vec<&str>> = args.iter().map(Value::as_str).collect();
    if let (Some(text), Some(args)) = (value.as_str(), texts) {
        match (name, args.as_slice()) {
            ("index", [part]) => return find(text.find(part), text),
            ("rindex", [part]) => return find(text.rfind(part), text),
            ("removeprefix", [part]) => return Ok(text.strip_prefix(part).unwrap_or(text).into()),
            ("removesuffix", [part]) => return Ok(text.strip_suffix(part).unwrap_or(text).into()),
            ("partition", [part]) => {
                let parts = text.split_once(part).map_or([text, "", ""], |(before, after)| [before, part, after]);
                return Ok(parts.into_iter().map(Value::from).collect());
            }
            ("rpartition", [part]) => {
                let parts = text.rsplit_once(part).map_or(["", "", text], |(before, after)| [before, part, after]);
                return Ok(parts.into_iter().map(Value::from).collect());
            }
            _ => {}
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

fn find(position: Option<usize>, text: &str) -> Result<Value, Error> {
    match position {
        Some(at) => Ok(text[..at].chars().count().into()),
        None => Err(Error::new(ErrorKind::InvalidOperation, "substring not found")),
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
}
