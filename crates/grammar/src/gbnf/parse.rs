//! Reads the notation of GBNF.

use crate::error::GrammarError;
use std::collections::HashMap;

/// Groups inside groups.
const MAX_DEPTH: usize = 64;
/// The largest number in a repetition.
const MAX_REPEAT: usize = 10_000;

/// A part of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// One character, as a class of regular expressions.
    Class(String),
    Rule(String),
    Sequence(Vec<Item>),
    Choice(Vec<Item>),
    Repeat {
        item: Box<Item>,
        least: usize,
        most: Option<usize>,
    },
}

/// A name and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) body: Item,
}

/// The rules in order; every rule that is referred to is there, and none is there twice.
pub(super) fn parse(text: &str) -> Result<Vec<Rule>, GrammarError> {
    let mut reader = Reader { text, at: 0, used: HashMap::new() };
    let mut rules: Vec<Rule> = Vec::new();
    reader.space(true);
    while !reader.rest().is_empty() {
        let start = reader.at;
        let name = reader.name()?;
        reader.space(true);
        if !reader.eat("::=") {
            return Err(reader.refuse(format!("expected `::=` after the rule's name `{name}`")));
        }
        if rules.iter().any(|rule| rule.name == name) {
            return Err(reader.refuse_at(start, format!("the rule `{name}` is defined twice")));
        }
        reader.space(true);
        let body = reader.choice(0)?;
        rules.push(Rule { name, body });
        if !reader.rest().is_empty() && !reader.text[..reader.at].trim_end_matches([' ', '\t']).ends_with('\n') {
            return Err(reader.refuse("expected the end of the rule".to_owned()));
        }
    }
    let missing = reader.used.iter().filter(|(name, _)| !rules.iter().any(|rule| rule.name == **name));
    if let Some((name, at)) = missing.min_by_key(|(_, at)| **at) {
        return Err(reader.refuse_at(*at, format!("the rule `{name}` is not defined")));
    }
    Ok(rules)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Rules that are referred to, with the first place.
    used: HashMap<String, usize>,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn refuse(&self, reason: String) -> GrammarError {
        self.refuse_at(self.at, reason)
    }

    fn refuse_at(&self, at: usize, reason: String) -> GrammarError {
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        GrammarError::Gbnf { line, column, reason }
    }

    /// Skips blanks and comments, and line breaks too where a rule may go on.
    fn space(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => {}
                '\r' | '\n' if lines => {}
                '#' => {
                    let end = self.rest().find(['\r', '\n']).unwrap_or(self.rest().len());
                    self.at += end;
                    continue;
                }
                _ => return,
            }
            self.at += c.len_utf8();
        }
    }

    fn name(&mut self) -> Result<String, GrammarError> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let end = self.rest().find(|c| !is_name(c)).unwrap_or(self.rest().len());
        if end == 0 {
            return Err(self.refuse("expected a rule's name".to_owned()));
        }
        let name = self.rest()[..end].to_owned();
        self.at += end;
        Ok(name)
    }

    /// Alternatives; inside groups they may stand on several lines.
    fn choice(&mut self, depth: usize) -> Result<Item, GrammarError> {
        if depth > MAX_DEPTH {
            return Err(self.refuse(format!("groups are nested deeper than {MAX_DEPTH}")));
        }
        let mut branches = vec![self.sequence(depth)?];
        while self.eat("|") {
            self.space(true);
            branches.push(self.sequence(depth)?);
        }
        Ok(if branches.len() == 1 { branches.remove(0) } else { Item::Choice(branches) })
    }

    fn sequence(&mut self, depth: usize) -> Result<Item, GrammarError> {
        let mut items = Vec::new();
        loop {
            let item = match self.peek() {
                Some('"') => self.literal()?,
                Some('[') => self.class()?,
                Some('.') => {
                    self.at += 1;
                    Item::Class("[\\x{0}-\\x{10FFFF}]".to_owned())
                }
                Some('(') => {
                    self.at += 1;
                    self.space(true);
                    let item = self.choice(depth + 1)?;
                    if !self.eat(")") {
                        return Err(self.refuse("expected `)`".to_owned()));
                    }
                    item
                }
                Some(c) if c.is_ascii_alphanumeric() || c == '_' => {
                    let at = self.at;
                    let name = self.name()?;
                    self.used.entry(name.clone()).or_insert(at);
                    Item::Rule(name)
                }
                Some('<' | '!') => {
                    return Err(self.refuse("tokens (`<…>`, `!<…>`) are not supported; write text".to_owned()));
                }
                Some(c @ ('*' | '+' | '?' | '{')) => {
                    return Err(self.refuse(format!("`{c}` has nothing in front of it to repeat")));
                }
                Some('|' | ')' | '\r' | '\n') | None => break,
                Some(c) => return Err(self.refuse(format!("`{c}` begins nothing that is known"))),
            };
            let item = self.repeated(item)?;
            items.push(item);
            self.space(depth > 0);
        }
        // A rule ends with its line, unless the next one begins with `|`.
        self.space(true);
        Ok(if items.len() == 1 { items.remove(0) } else { Item::Sequence(items) })
    }

    fn repeated(&mut self, item: Item) -> Result<Item, GrammarError> {
        let repeat = |item: Item, least, most| Item::Repeat { item: Box::new(item), least, most };
        let mut item = item;
        loop {
            item = match self.peek() {
                Some('*') => repeat(item, 0, None),
                Some('+') => repeat(item, 1, None),
                Some('?') => repeat(item, 0, Some(1)),
                Some('{') => {
                    let (start, close) = (self.at, self.rest().find('}'));
                    let Some(close) = close else { return Err(self.refuse("expected `}`".to_owned())) };
                    let inside = self.rest()[1..close].to_owned();
                    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|n| *n <= MAX_REPEAT);
                    let bounds = match inside.split_once(',') {
                        None => number(&inside).map(|n| (n, Some(n))),
                        Some((least, most)) if most.trim().is_empty() => number(least).map(|least| (least, None)),
                        Some((least, most)) if least.trim().is_empty() => number(most).map(|most| (0, Some(most))),
                        Some((least, most)) => number(least).zip(number(most)).map(|(least, most)| (least, Some(most))),
                    };
                    let Some((least, most)) = bounds.filter(|(least, most)| most.is_none_or(|most| *least <= most))
                    else {
                        let reason = format!("`{{{inside}}}` is no repetition; numbers go up to {MAX_REPEAT}");
                        return Err(self.refuse_at(start, reason));
                    };
                    self.at += close;
                    repeat(item, least, most)
                }
                _ => return Ok(item),
            };
            self.at += 1;
        }
    }

    fn literal(&mut self) -> Result<Item, GrammarError> {
        let start = self.at;
        self.at += 1;
        let mut items = Vec::new();
        loop {
            match self.peek() {
                None | Some('\n') => return Err(self.refuse_at(start, "the text has no closing `\"`".to_owned())),
                Some('"') => break self.at += 1,
                Some(_) => {
                    let c = self.character()?;
                    items.push(Item::Class(format!("[{}]", in_class(c))));
                }
            }
        }
        Ok(Item::Sequence(items))
    }

    fn class(&mut self) -> Result<Item, GrammarError> {
        let start = self.at;
        self.at += 1;
        let negated = self.eat("^");
        let mut class = String::from(if negated { "[^" } else { "[" });
        let mut empty = true;
        loop {
            match self.peek() {
                None | Some('\n') => return Err(self.refuse_at(start, "the class has no closing `]`".to_owned())),
                Some(']') => break self.at += 1,
                Some(_) => {
                    let at = self.at;
                    let first = self.character()?;
                    class.push_str(&in_class(first));
                    let is_range = self.rest().starts_with('-') && !self.rest()[1..].starts_with(']');
                    if is_range {
                        self.at += 1;
                        let last = self.character()?;
                        if last < first {
                            return Err(self.refuse_at(at, format!("the range from {first:?} to {last:?} is empty")));
                        }
                        class.push('-');
                        class.push_str(&in_class(last));
                    }
                    empty = false;
                }
            }
        }
        if empty {
            return match negated {
                true => Ok(Item::Class("[\\x{0}-\\x{10FFFF}]".to_owned())),
                false => Err(self.refuse_at(start, "the class has no characters".to_owned())),
            };
        }
        class.push(']');
        Ok(Item::Class(class))
    }

    /// One character, escaped or not.
    fn character(&mut self) -> Result<char, GrammarError> {
        let start = self.at;
        match self.next() {
            None => Err(self.refuse("the grammar ends inside a text".to_owned())),
            Some('\\') => {
                let escape = self.next();
                let digits = match escape {
                    Some('n') => return Ok('\n'),
                    Some('r') => return Ok('\r'),
                    Some('t') => return Ok('\t'),
                    Some(c @ ('\\' | '"' | '[' | ']' | '-' | '^')) => return Ok(c),
                    Some('x') => 2,
                    Some('u') => 4,
                    Some('U') => 8,
                    _ => return Err(self.refuse_at(start, "an escape that is not known".to_owned())),
                };
                let code = self.rest().get(..digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
                let Some(c) = code.and_then(char::from_u32) else {
                    let reason = format!("expected {digits} hexadecimal digits of a character");
                    return Err(self.refuse_at(start, reason));
                };
                self.at += digits;
                Ok(c)
            }
            Some(c) => Ok(c),
        }
    }
}

/// A character as it is written inside a class.
fn in_class(c: char) -> String {
    if c.is_ascii_alphanumeric() { c.to_string() } else { format!("\\x{{{:X}}}", u32::from(c)) }
}
