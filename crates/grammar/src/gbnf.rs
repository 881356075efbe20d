//! GBNF grammars, rewritten in Lark's notation.
//!
//! A grammar in which no rule refers to itself is one regular expression. In any other, every character is a terminal of
//! its own, so that no terminal is the beginning of another and the longest match is the only one: both ways the language
//! is exactly that of the original.

mod parse;

use crate::error::GrammarError;
use parse::{Item, Rule, parse};
use std::collections::HashMap;
use std::fmt::Write;

/// Parser items of one step: a terminal a character needs many.
pub(crate) const STEP_ITEMS: usize = 4_000_000;
/// Bytes of a regular expression that rules are put together to.
const MAX_EXPRESSION: usize = 1 << 16;

/// The grammar in Lark's notation.
pub(crate) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let rules = parse(text)?;
    let numbers: HashMap<&str, usize> = rules.iter().enumerate().map(|(at, rule)| (rule.name.as_str(), at)).collect();
    let Some(&root) = numbers.get("root") else {
        return Err(GrammarError::Gbnf {
            line: 1,
            column: 1,
            reason: "there is no rule `root` to begin at".to_owned(),
        });
    };
    let grammar = Grammar { rules: &rules, numbers: &numbers };
    let mut open = Vec::new();
    if let Some(expression) = grammar.expression(root, &mut open)
        && expression.len() <= MAX_EXPRESSION
    {
        return Ok(format!("start: TEXT\nTEXT: /{expression}/\n"));
    }
    let mut out = format!("start: r{root}\n");
    for (at, rule) in rules.iter().enumerate() {
        let mut body = String::new();
        grammar.productions(&rule.body, &mut body);
        let _ = writeln!(out, "r{at}: {body}");
    }
    Ok(out)
}

struct Grammar<'a> {
    rules: &'a [Rule],
    numbers: &'a HashMap<&'a str, usize>,
}

impl Grammar<'_> {
    /// Rule `at` as a regular expression; `None` if it refers to itself, or becomes too long.
    fn expression(&self, at: usize, open: &mut Vec<usize>) -> Option<String> {
        if open.contains(&at) {
            return None;
        }
        open.push(at);
        let expression = self.item_expression(&self.rules[at].body, open);
        open.pop();
        expression.filter(|expression| expression.len() <= MAX_EXPRESSION)
    }

    fn item_expression(&self, item: &Item, open: &mut Vec<usize>) -> Option<String> {
        let mut join = |items: &[Item], between: &str| -> Option<String> {
            let parts: Option<Vec<String>> = items.iter().map(|item| self.item_expression(item, open)).collect();
            parts.map(|parts| format!("(?:{})", parts.join(between)))
        };
        Some(match item {
            Item::Class(class) => class.clone(),
            Item::Rule(name) => self.expression(self.numbers[name.as_str()], open)?,
            Item::Sequence(items) => join(items, "")?,
            Item::Choice(items) => join(items, "|")?,
            Item::Repeat { item, least, most } => {
                let item = self.item_expression(item, open)?;
                match most {
                    Some(most) => format!("(?:{item}){{{least},{most}}}"),
                    None => format!("(?:{item}){{{least},}}"),
                }
            }
        })
    }

    /// An item as a production over terminals of one character.
    fn productions(&self, item: &Item, out: &mut String) {
        let mut join = |items: &[Item], between: &str| {
            out.push('(');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { between });
                self.productions(item, out);
            }
            if items.is_empty() {
                out.push_str("\"\"");
            }
            out.push(')');
        };
        match item {
            Item::Class(class) => {
                let _ = write!(out, "/{class}/");
            }
            Item::Rule(name) => {
                let _ = write!(out, "r{}", self.numbers[name.as_str()]);
            }
            Item::Sequence(items) => join(items, " "),
            Item::Choice(items) => join(items, " | "),
            Item::Repeat { item, least, most } => {
                out.push('(');
                self.productions(item, out);
                let _ = match (least, most) {
                    (0, None) => write!(out, ")*"),
                    (1, None) => write!(out, ")+"),
                    (0, Some(1)) => write!(out, ")?"),
                    (least, Some(most)) => write!(out, "){{{least},{most}}}"),
                    (least, None) => write!(out, "){{{least},}}"),
                };
            }
        }
    }
}
