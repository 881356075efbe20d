//! Calls as `call:name{key:value,…}`.

use super::super::arguments::CallError;
use super::super::marked::Body;
use super::{Item, RawArguments, RawCall, after, expected};
use serde_json::Value;
use serde_json::value::RawValue;

/// Nested lists and objects.
const DEPTH: usize = 64;

/// Reads one call.
pub(super) fn read<'a>(body: Body<'a>, prefix: &'static str, quote: &'static str) -> Result<Vec<Item<'a>>, CallError> {
    let rest = after(body, prefix)?;
    let brace = rest.text.find('{').ok_or(CallError::Incomplete)?;
    let name = rest.text[..brace].trim().to_owned();
    let mut reader = Reader { body: rest, at: brace, quote, out: String::new() };
    reader.value(0)?;
    if !rest.text[reader.at..].trim().is_empty() {
        return Err(expected("nothing after the arguments"));
    }
    let call = RawCall { id: None, name, arguments: RawArguments::Json(reader.out.into()) };
    Ok(vec![(0..body.text.len(), Ok(call))])
}

/// Rewrites a value as JSON.
struct Reader<'a> {
    body: Body<'a>,
    at: usize,
    quote: &'static str,
    out: String,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.body.text[self.at..]
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Whether `c` comes next; if so it is taken.
    fn takes(&mut self, c: char) -> bool {
        self.space();
        let found = self.rest().starts_with(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn value(&mut self, depth: usize) -> Result<(), CallError> {
        if depth > DEPTH {
            return Err(expected(format!("at most {DEPTH} levels of lists and objects")));
        }
        self.space();
        if self.takes('{') {
            self.list('{', '}', depth)
        } else if self.takes('[') {
            self.list('[', ']', depth)
        } else if !self.string()? {
            self.bare()
        } else {
            Ok(())
        }
    }

    fn list(&mut self, open: char, close: char, depth: usize) -> Result<(), CallError> {
        self.out.push(open);
        let mut first = true;
        while !self.takes(close) {
            if !first {
                if !self.takes(',') {
                    return Err(self.missing(&format!("`,` or `{close}`")));
                }
                self.out.push(',');
            }
            first = false;
            if open == '{' {
                self.key()?;
            }
            self.value(depth + 1)?;
        }
        self.out.push(close);
        Ok(())
    }

    fn key(&mut self) -> Result<(), CallError> {
        self.space();
        if !self.string()? {
            let end = self.rest().find(':').ok_or_else(|| self.missing("`:`"))?;
            let key = self.rest()[..end].trim_end().to_owned();
            if key.is_empty() || key.contains(['{', '}', '[', ']', ',']) {
                return Err(expected("an argument's name"));
            }
            self.at += end;
            self.push_string(&key);
        }
        if !self.takes(':') {
            return Err(self.missing("`:`"));
        }
        self.out.push(':');
        Ok(())
    }

    /// A string between marks, or between quotation marks as in JSON.
    fn string(&mut self) -> Result<bool, CallError> {
        let here = self.body.from(self.at);
        if let Some(inside) = here.strip_prefix(self.quote) {
            let (text, _) = inside.split_once(self.quote).ok_or(CallError::Incomplete)?;
            self.at += 2 * self.quote.len() + text.text.len();
            self.push_string(text.text);
            return Ok(true);
        }
        if !here.text.starts_with('"') {
            return Ok(false);
        }
        let mut stream = serde_json::Deserializer::from_str(here.text).into_iter::<&RawValue>();
        let text = stream.next().and_then(Result::ok).ok_or_else(|| expected("a string"))?;
        self.out.push_str(text.get());
        self.at += stream.byte_offset();
        Ok(true)
    }

    /// A number, `true`, `false` or `null`.
    fn bare(&mut self) -> Result<(), CallError> {
        let end = self.rest().find([',', '}', ']']).ok_or(CallError::Incomplete)?;
        let text = self.rest()[..end].trim();
        let text = if text == "None" { "null" } else { text };
        if serde_json::from_str::<Value>(text).is_err() {
            return Err(expected("a value"));
        }
        let text = text.to_owned();
        self.out.push_str(&text);
        self.at += end;
        Ok(())
    }

    fn push_string(&mut self, text: &str) {
        self.out.push_str(&Value::from(text).to_string());
    }

    fn missing(&self, what: &str) -> CallError {
        if self.rest().trim().is_empty() { CallError::Incomplete } else { expected(what) }
    }
}
