//! JSON in templates, written as Python's `json.dumps` writes it.

use super::python::{bind, write_float};
use crate::guard::{MARK, QUOTE};
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};
use std::fmt::Write;

/// Adds the filters `tojson` and `fromjson`.
pub(crate) fn install(environment: &mut Environment<'static>) {
    environment.add_filter("tojson", to_json);
    environment.add_filter("fromjson", from_json);
    environment.add_filter("from_json", from_json);
}

/// A JSON value as the template engine sees it; `text` may change its strings.
pub(crate) fn to_value(json: &serde_json::Value, text: &dyn Fn(&str) -> Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(value) => Value::from(*value),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Value::from(value),
            (None, Some(value)) => Value::from(value),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(value) => text(value),
        serde_json::Value::Array(items) => items.iter().map(|item| to_value(item, text)).collect(),
        serde_json::Value::Object(fields) => {
            Value::from_pairs(fields.iter().map(|(key, value)| (text(key), to_value(value, text))))
        }
    }
}

fn from_json(text: &str) -> Result<Value, Error> {
    let json: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("fromjson: {error}")))?;
    Ok(to_value(&json, &|text| Value::from(text)))
}

struct Style {
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    ascii: bool,
    sort_keys: bool,
}

fn to_json(state: &State, value: &Value, arguments: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let [ascii, indent, separators, sort_keys] =
        bind(&arguments, &named, ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = indent.filter(|indent| !indent.is_none());
    let indent = indent.map(|indent| match indent.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(indent.as_usize().unwrap_or(0).min(64)),
    });
    let mut style = Style {
        item_separator: if indent.is_some() { "," } else { ", " }.to_owned(),
        key_separator: ": ".to_owned(),
        indent,
        ascii: ascii.is_some_and(|value| value.is_true()),
        sort_keys: sort_keys.is_some_and(|value| value.is_true()),
    };
    if let Some(separators) = separators.filter(|separators| !separators.is_none()) {
        style.item_separator = separators.get_item_by_index(0)?.to_string();
        style.key_separator = separators.get_item_by_index(1)?.to_string();
    }
    let mut out = String::new();
    style.write(state, value, 0, &mut out)?;
    Ok(out)
}

impl Style {
    /// Pays for each value it visits: a list may hold the same list many times over.
    fn write(&self, state: &State, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        state.consume_fuel(1)?;
        if depth > 128 {
            return Err(Error::new(ErrorKind::InvalidOperation, "the value is nested too deeply for JSON"));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => _ = write!(out, "{value}"),
            ValueKind::Number => self.number(f64::try_from(value.clone())?, out),
            ValueKind::String => {
                let text = value.as_str().unwrap_or_default();
                state.consume_fuel(text.len() as u64 / 64)?;
                self.string(text, out);
            }
            ValueKind::Seq | ValueKind::Iterable => {
                out.push('[');
                let mut empty = true;
                for item in value.try_iter()? {
                    self.separate(&mut empty, depth + 1, out);
                    self.write(state, &item, depth + 1, out)?;
                }
                self.close(empty, depth, ']', out);
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                out.push('{');
                let mut empty = true;
                for key in keys {
                    self.separate(&mut empty, depth + 1, out);
                    self.key(state, &key, depth, out)?;
                    out.push_str(&self.key_separator);
                    self.write(state, &value.get_item(&key)?, depth + 1, out)?;
                }
                self.close(empty, depth, '}', out);
            }
            ValueKind::Undefined => {
                return Err(Error::new(ErrorKind::UndefinedError, "Object of type Undefined is not JSON serializable"));
            }
            kind => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("Object of type {kind} is not JSON serializable"),
                ));
            }
        }
        Ok(())
    }

    fn key(&self, state: &State, key: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if let Some(text) = key.as_str() {
            self.string(text, out);
            return Ok(());
        }
        out.push('"');
        self.write(state, key, depth + 1, out)?;
        out.push('"');
        Ok(())
    }

    fn separate(&self, empty: &mut bool, depth: usize, out: &mut String) {
        if !std::mem::replace(empty, false) {
            out.push_str(&self.item_separator);
        }
        self.new_line(depth, out);
    }

    fn close(&self, empty: bool, depth: usize, bracket: char, out: &mut String) {
        if !empty {
            self.new_line(depth, out);
        }
        out.push(bracket);
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn number(&self, number: f64, out: &mut String) {
        match number {
            _ if number.is_nan() => out.push_str("NaN"),
            f64::INFINITY => out.push_str("Infinity"),
            f64::NEG_INFINITY => out.push_str("-Infinity"),
            _ => write_float(number, out),
        }
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                // Marks are not text and must stay what they are.
                MARK | QUOTE => out.push(c),
                c if u32::from(c) < 0x20 || (self.ascii && u32::from(c) > 0x7E) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}
