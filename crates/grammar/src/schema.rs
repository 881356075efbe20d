//! JSON schemas: what is refused, and where.

use crate::error::GrammarError;
use crate::session::Constraint;
use crate::vocabulary::Vocabulary;
use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};

/// Schemas inside schemas.
const MAX_DEPTH: usize = 64;
/// Schemas in all.
const MAX_PARTS: usize = 20_000;
/// Branches of one choice.
const MAX_BRANCHES: usize = 2_000;
/// The largest count of items, properties or characters that a schema may ask for.
const MAX_COUNT: u64 = 10_000;
/// Parts that are compiled alone to find out which one is at fault.
const MAX_TRIALS: usize = 200;

/// How a keyword's value holds further schemas.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keyword {
    /// Says nothing about which values match.
    Annotation,
    /// A value without schemas in it.
    Plain,
    /// A count with a bound of its own.
    Count,
    /// The values that are allowed.
    Values,
    /// One schema.
    One,
    /// One schema or a list.
    OneOrMany,
    /// Alternatives.
    Many,
    /// Schemas by name.
    Named,
}

const KEYWORDS: [(&str, Keyword); 43] = [
    ("$schema", Keyword::Plain),
    ("$id", Keyword::Plain),
    ("id", Keyword::Plain),
    ("$comment", Keyword::Annotation),
    ("title", Keyword::Annotation),
    ("description", Keyword::Annotation),
    ("default", Keyword::Annotation),
    ("examples", Keyword::Annotation),
    ("example", Keyword::Annotation),
    ("deprecated", Keyword::Annotation),
    ("readOnly", Keyword::Annotation),
    ("writeOnly", Keyword::Annotation),
    ("$defs", Keyword::Named),
    ("definitions", Keyword::Named),
    ("$ref", Keyword::Plain),
    ("type", Keyword::Plain),
    ("const", Keyword::Plain),
    ("enum", Keyword::Values),
    ("anyOf", Keyword::Many),
    ("oneOf", Keyword::Many),
    ("allOf", Keyword::Many),
    ("items", Keyword::OneOrMany),
    ("additionalItems", Keyword::One),
    ("prefixItems", Keyword::Many),
    ("minItems", Keyword::Count),
    ("maxItems", Keyword::Count),
    ("properties", Keyword::Named),
    ("patternProperties", Keyword::Named),
    ("additionalProperties", Keyword::One),
    ("required", Keyword::Plain),
    ("minProperties", Keyword::Count),
    ("maxProperties", Keyword::Count),
    ("minLength", Keyword::Count),
    ("maxLength", Keyword::Count),
    ("pattern", Keyword::Plain),
    ("format", Keyword::Plain),
    ("minimum", Keyword::Plain),
    ("maximum", Keyword::Plain),
    ("exclusiveMinimum", Keyword::Plain),
    ("exclusiveMaximum", Keyword::Plain),
    ("multipleOf", Keyword::Plain),
    ("contentMediaType", Keyword::Annotation),
    ("contentEncoding", Keyword::Annotation),
];

/// Compiles a schema.
pub(crate) fn compile(vocabulary: &Vocabulary, text: &str) -> Result<Constraint, GrammarError> {
    let schema: Value =
        serde_json::from_str(text).map_err(|error| GrammarError::NotJson { reason: error.to_string() })?;
    let schema = checked(&schema)?;
    vocabulary.build(grammar(&schema), None).map_err(|reason| locate(vocabulary, &schema, reason))
}

/// The schema without annotations, every keyword of it being one that is enforced.
pub(crate) fn checked(schema: &Value) -> Result<Value, GrammarError> {
    let mut walk = Walk { parts: 0, parts_found: Vec::new() };
    walk.check(schema, "#", 0)
}

/// How replies are written: with one space after separators, as Python writes JSON and as models have read it most.
pub(crate) fn with_layout(schema: &Value) -> Value {
    let mut schema = match schema {
        Value::Object(fields) => fields.clone(),
        Value::Bool(false) => Map::from_iter([("enum".to_owned(), json!([]))]),
        _ => Map::new(),
    };
    let layout = json!({ "item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false });
    schema.insert("x-guidance".to_owned(), layout);
    Value::Object(schema)
}

fn grammar(schema: &Value) -> TopLevelGrammar {
    TopLevelGrammar::from_json_schema(with_layout(schema))
}

fn refuse(path: &str, reason: impl Into<String>) -> GrammarError {
    GrammarError::Schema { path: path.to_owned(), reason: reason.into() }
}

/// One step of a JSON pointer.
fn step(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// A walk over a schema's parts; innermost parts come first.
struct Walk {
    parts: usize,
    parts_found: Vec<(String, Value)>,
}

impl Walk {
    fn check(&mut self, schema: &Value, path: &str, depth: usize) -> Result<Value, GrammarError> {
        self.parts += 1;
        if depth > MAX_DEPTH {
            return Err(refuse(path, format!("schemas are nested deeper than {MAX_DEPTH}")));
        }
        if self.parts > MAX_PARTS {
            return Err(refuse(path, format!("there are more than {MAX_PARTS} schemas in it")));
        }
        let fields = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(fields) => fields,
            other => return Err(refuse(path, format!("a schema is an object, true or false, not {other}"))),
        };
        let mut kept = Map::new();
        for (name, value) in fields {
            let at = step(path, name);
            let Some((_, kind)) = KEYWORDS.iter().find(|(keyword, _)| keyword == name) else {
                return Err(refuse(&at, format!("the keyword `{name}` is not supported; leave it out")));
            };
            if *kind != Keyword::Annotation {
                kept.insert(name.clone(), self.keyword(*kind, value, &at, depth)?);
            }
        }
        let checked = Value::Object(kept);
        self.parts_found.push((path.to_owned(), checked.clone()));
        Ok(checked)
    }

    fn keyword(&mut self, kind: Keyword, value: &Value, at: &str, depth: usize) -> Result<Value, GrammarError> {
        match (kind, value) {
            (Keyword::Annotation | Keyword::Plain, value) => {
                let remote = value.as_str().filter(|target| at.ends_with("/$ref") && !target.starts_with('#'));
                match remote {
                    Some(target) => {
                        Err(refuse(at, format!("`{target}` is outside this schema; only `#…` is followed")))
                    }
                    None => Ok(value.clone()),
                }
            }
            (Keyword::Count, value) => {
                match value.as_u64().or(value.as_f64().filter(|x| x.fract() == 0.0 && *x >= 0.0).map(|x| x as u64)) {
                    Some(count) if count <= MAX_COUNT => Ok(count.into()),
                    Some(count) => Err(refuse(at, format!("{count} is too large; at most {MAX_COUNT} can be counted"))),
                    None => Err(refuse(at, format!("expected a whole number from 0, found {value}"))),
                }
            }
            (Keyword::Values, Value::Array(values)) if values.len() > MAX_BRANCHES => {
                Err(refuse(at, format!("{} values; at most {MAX_BRANCHES}", values.len())))
            }
            (Keyword::Values, Value::Array(_)) => Ok(value.clone()),
            (Keyword::One | Keyword::OneOrMany, Value::Object(_) | Value::Bool(_)) => self.check(value, at, depth + 1),
            (Keyword::Many | Keyword::OneOrMany, Value::Array(branches)) => {
                if branches.len() > MAX_BRANCHES {
                    return Err(refuse(at, format!("{} branches; at most {MAX_BRANCHES}", branches.len())));
                }
                let check = |(index, branch)| self.check(branch, &step(at, &format!("{index}")), depth + 1);
                branches.iter().enumerate().map(check).collect::<Result<Vec<_>, _>>().map(Value::Array)
            }
            (Keyword::Named, Value::Object(fields)) => {
                let mut kept = Map::new();
                for (name, field) in fields {
                    kept.insert(name.clone(), self.check(field, &step(at, name), depth + 1)?);
                }
                Ok(Value::Object(kept))
            }
            (_, other) => Err(refuse(at, format!("{other} is not what belongs here"))),
        }
    }
}

/// Names the innermost part that cannot be compiled even alone.
fn locate(vocabulary: &Vocabulary, schema: &Value, reason: String) -> GrammarError {
    let mut walk = Walk { parts: 0, parts_found: Vec::new() };
    if walk.check(schema, "#", 0).is_err() {
        return refuse("#", reason);
    }
    let definitions = ["$defs", "definitions"].map(|name| (name, schema.get(name).cloned()));
    for (path, part) in walk.parts_found.into_iter().filter(|(path, _)| path != "#").take(MAX_TRIALS) {
        let Value::Object(mut part) = part else { continue };
        // Definitions are parts themselves; a part inside them that refers to others needs them all.
        if part.contains_key("$ref") {
            for (name, value) in &definitions {
                part.extend(value.clone().map(|value| ((*name).to_owned(), value)));
            }
        }
        if let Err(reason) = vocabulary.build(grammar(&Value::Object(part.clone())), None) {
            let keyword = ["pattern", "format", "$ref", "type", "enum"].into_iter().find(|name| {
                let mut rest = part.clone();
                rest.remove(*name).is_some() && vocabulary.build(grammar(&Value::Object(rest)), None).is_ok()
            });
            let path = keyword.map_or(path.clone(), |keyword| step(&path, keyword));
            return refuse(&path, reason);
        }
    }
    let Value::Object(whole) = schema else { return refuse("#", reason) };
    let keyword = ["pattern", "format", "$ref", "type", "enum"].into_iter().find(|name| {
        let mut rest = whole.clone();
        rest.remove(*name).is_some() && vocabulary.build(grammar(&Value::Object(rest)), None).is_ok()
    });
    refuse(&keyword.map_or("#".to_owned(), |keyword| step("#", keyword)), reason)
}
