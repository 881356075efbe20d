//! Filters of Jinja2 that the engine lacks or has otherwise.

use super::methods::{center, is_space, lines};
use super::{bind, count, text};
use minijinja::value::{Kwargs, Rest, Value};
use minijinja::{Environment, Error, ErrorKind, State};

pub(super) fn install(environment: &mut Environment<'static>) {
    environment.add_filter("string", text::string);
    for name in ["e", "escape", "forceescape"] {
        environment.add_filter(name, escape_html);
    }
    environment.add_filter(
        "trim",
        |state: &State, value: &Value, args: Rest<Value>, named: Kwargs| -> Result<String, Error> {
            let text = text::string(state, value)?;
            let [characters] = bind(&args, &named, ["chars"])?;
            Ok(match characters.as_ref().and_then(Value::as_str) {
                Some(characters) => text.trim_matches(|c| characters.contains(c)).to_owned(),
                None => text.trim_matches(is_space).to_owned(),
            })
        },
    );
    for name in ["default", "d"] {
        environment.add_filter(name, |value: &Value, args: Rest<Value>, named: Kwargs| -> Result<Value, Error> {
            let [default, boolean] = bind(&args, &named, ["default_value", "boolean"])?;
            let missing = value.is_undefined() || (boolean.is_some_and(|flag| flag.is_true()) && !value.is_true());
            Ok(if missing { default.unwrap_or_else(|| "".into()) } else { value.clone() })
        });
    }
    environment.add_filter("center", |state: &State, value: &Value, args: Rest<Value>, named: Kwargs| {
        let [width] = bind(&args, &named, ["width"])?;
        let width = width.map_or(Ok(80), |width| count(&width, "the width"))?;
        center(state, &text::string(state, value)?, width, ' ')
    });
    environment.add_filter("wordcount", |state: &State, value: &Value| -> Result<usize, Error> {
        let text = text::string(state, value)?;
        Ok(text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).count())
    });
    environment.add_filter("truncate", truncate);
    environment.add_filter("indent", indent);
    environment.add_filter("int", int);
    environment.add_filter("float", |value: &Value, args: Rest<Value>, named: Kwargs| -> Result<Value, Error> {
        let [default] = bind(&args, &named, ["default"])?;
        Ok(float(value).map_or_else(|| default.unwrap_or_else(|| 0.0.into()), Value::from))
    });
}

fn escape_html(state: &State, value: &Value) -> Result<String, Error> {
    let text = text::string(state, value)?;
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
    Ok(out)
}

fn truncate(state: &State, value: &Value, args: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let [length, kill_words, end, leeway] = bind(&args, &named, ["length", "killwords", "end", "leeway"])?;
    let text = text::string(state, value)?;
    let length = length.map_or(Ok(255), |length| count(&length, "the length"))?;
    let leeway = leeway.map_or(Ok(5), |leeway| count(&leeway, "the leeway"))?;
    let end = end.as_ref().and_then(Value::as_str).unwrap_or("...");
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let room = length.checked_sub(end.chars().count());
    let room = room.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "truncate: no room for the end"))?;
    let mut kept: String = text.chars().take(room).collect();
    if !kill_words.is_some_and(|kill| kill.is_true()) {
        kept.truncate(kept.rfind(' ').unwrap_or(kept.len()));
    }
    Ok(kept + end)
}

fn indent(state: &State, value: &Value, args: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let [width, first, blank] = bind(&args, &named, ["width", "first", "blank"])?;
    let is_set = |flag: Option<Value>| flag.is_some_and(|flag| flag.is_true());
    let (first, blank) = (is_set(first), is_set(blank));
    let margin = match width {
        None => "    ".to_owned(),
        Some(width) => match width.as_str() {
            Some(text) => text.to_owned(),
            None => {
                let count = count(&width, "the width")?;
                state.consume_fuel(count as u64 / 64)?;
                " ".repeat(count)
            }
        },
    };
    let text = text::string(state, value)? + "\n";
    let mut out = String::with_capacity(text.len());
    for (at, line) in lines(&text, false).into_iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        let wanted = if at == 0 { first } else { blank || !line.is_empty() };
        if wanted {
            state.consume_fuel(margin.len() as u64 / 64)?;
            out.push_str(&margin);
        }
        out.push_str(line);
    }
    Ok(out)
}

/// A whole number from a number or a text, as Python's `int` reads it; 0 or `default` from anything else.
fn int(value: &Value, args: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let [default, base] = bind(&args, &named, ["default", "base"])?;
    let base = base.map_or(Ok(10), |base| count(&base, "the base"))?;
    let read = || -> Option<Value> {
        let Some(text) = value.as_str() else {
            return match f64::try_from(value.clone()) {
                Ok(_) if value.is_integer() => Some(value.clone()),
                Ok(number) if number.abs() < 9.2e18 => Some((number.trunc() as i64).into()),
                _ => value.as_i64().map(Value::from),
            };
        };
        let digits = ungrouped(text.trim_matches(is_space))?;
        let (sign, body) = digits.strip_prefix('-').map_or(("", digits.trim_start_matches('+')), |body| ("-", body));
        let radix = u32::try_from(base).ok().filter(|base| (2..=36).contains(base))?;
        let prefix = match base {
            16 => ["0x", "0X"],
            8 => ["0o", "0O"],
            2 => ["0b", "0B"],
            _ => ["", ""],
        };
        let body = prefix.iter().find_map(|prefix| body.strip_prefix(prefix)).unwrap_or(body);
        i64::from_str_radix(&format!("{sign}{body}"), radix).map(Value::from).ok().or_else(|| {
            float(value).filter(|number| number.abs() < 9.2e18).map(|number| (number.trunc() as i64).into())
        })
    };
    Ok(read().unwrap_or_else(|| default.unwrap_or_else(|| 0.into())))
}

fn float(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some(text) => ungrouped(text.trim_matches(is_space))?.parse().ok(),
        None => f64::try_from(value.clone()).ok(),
    }
}

/// `1_000` without the mark between the digits, which may stand nowhere else.
fn ungrouped(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let misplaced = (0..bytes.len()).any(|at| {
        let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
        bytes[at] == b'_' && !(at > 0 && digit(at - 1) && digit(at + 1))
    });
    (!misplaced).then(|| text.replace('_', ""))
}
