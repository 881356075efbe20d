//! What is changed in a template's source before the engine sees it, because the engine reads it unlike Jinja2.
//!
//! Line ends become `\n`; escapes in string literals that the engine does not know are written out; the tags of
//! `{% generation %}`, which mark replies for training, become a plain scope; and what the engine would get wrong is
//! refused by its name.

use crate::error::TemplateError;

/// A block that is open, and what it means for `{% break %}` and `{% continue %}`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    /// They act on this one.
    Loop,
    /// They may leave it.
    Open,
    /// The engine would lose its place, and panic, when they leave it.
    Closed,
}

/// The source as the engine has to be given it.
pub(crate) fn prepare(source: &str) -> Result<String, TemplateError> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut scanner = Scanner { source: &source, at: 0, out: String::with_capacity(source.len()), open: Vec::new() };
    while let Some(length) = scanner.rest().find('{') {
        scanner.copy(length);
        match scanner.rest().as_bytes().get(1) {
            Some(b'#') => scanner.copy_past("#}"),
            Some(b'%') => scanner.statement()?,
            Some(b'{') => {
                scanner.copy(2);
                scanner.tokens("}}")?;
            }
            _ => scanner.copy(1),
        }
    }
    scanner.copy(scanner.rest().len());
    Ok(scanner.out)
}

struct Scanner<'a> {
    source: &'a str,
    at: usize,
    out: String,
    open: Vec<(&'a str, Block)>,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn copy(&mut self, length: usize) {
        self.out.push_str(&self.rest()[..length]);
        self.at += length;
    }

    fn copy_past(&mut self, end: &str) {
        let rest = self.rest();
        self.copy(rest.find(end).map_or(rest.len(), |at| at + end.len()));
    }

    /// Leaves out `length` bytes and writes `text` for them.
    fn replace(&mut self, length: usize, text: &str) {
        self.at += length;
        self.out.push_str(text);
    }

    fn refuse<T>(&self, what: &str) -> Result<T, TemplateError> {
        let line = self.source[..self.at].matches('\n').count() + 1;
        Err(TemplateError::Syntax { message: format!("{what} (in line {line})") })
    }

    /// Copies a tag's content and its `end`, which does not count inside strings and brackets.
    fn tokens(&mut self, end: &str) -> Result<(), TemplateError> {
        let mut depth = 0usize;
        while let Some(c) = self.rest().chars().next() {
            if depth == 0 && self.rest().starts_with(end) {
                self.copy(end.len());
                break;
            }
            match c {
                '\'' | '"' => self.string(c)?,
                '(' | '[' | '{' => {
                    depth += 1;
                    self.copy(1);
                }
                ')' | ']' | '}' => {
                    depth = depth.saturating_sub(1);
                    self.copy(1);
                }
                c => self.copy(c.len_utf8()),
            }
        }
        Ok(())
    }

    fn string(&mut self, quote: char) -> Result<(), TemplateError> {
        self.copy(1);
        while let Some(length) = self.rest().find([quote, '\\']) {
            self.copy(length);
            let rest = self.rest();
            if rest.starts_with(quote) {
                self.copy(1);
                return Ok(());
            }
            match rest[1..].chars().next() {
                Some('\n') => self.replace(2, ""),
                Some('a') => self.replace(2, "\u{7}"),
                Some('v') => self.replace(2, "\u{b}"),
                Some('U') => {
                    let code = rest.get(2..10).and_then(|digits| u32::from_str_radix(digits, 16).ok());
                    match code.and_then(char::from_u32) {
                        Some(c) => self.replace(10, c.encode_utf8(&mut [0; 4])),
                        None => {
                            return self.refuse("the escape `\\U` needs the eight hexadecimal digits of a character");
                        }
                    }
                }
                Some('N') if rest[2..].starts_with('{') => {
                    return self.refuse("the escape `\\N{...}` is not supported; write the character itself");
                }
                c => self.copy(1 + c.map_or(0, char::len_utf8)),
            }
        }
        self.copy(self.rest().len());
        Ok(())
    }

    fn statement(&mut self) -> Result<(), TemplateError> {
        let start = self.at;
        self.copy(2);
        let space = |c: char| c == '-' || c == '+' || c.is_whitespace();
        self.copy(self.rest().len() - self.rest().trim_start_matches(space).len());
        let name = &self.rest()[..self.rest().find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(self.rest().len())];
        match name {
            "generation" => self.replace(name.len(), "with"),
            "endgeneration" => self.replace(name.len(), "endwith"),
            _ => self.copy(name.len()),
        }
        let arguments = self.at;
        self.tokens("%}")?;
        let arguments = &self.source[arguments..self.at];
        if name == "raw" {
            self.raw();
            return Ok(());
        }
        let block = match name {
            "for" => Block::Loop,
            "if" => Block::Open,
            "with" | "generation" | "call" | "filter" | "macro" | "autoescape" | "block" => Block::Closed,
            "set" if !matches!(arguments.find(['=', '|', '(']), Some(at) if arguments[at..].starts_with('=')) => {
                Block::Closed
            }
            "break" | "continue" => {
                let inner = self.open.iter().rev().find(|(_, block)| *block != Block::Open);
                if let Some((outer, Block::Closed)) = inner {
                    let what = format!("`{name}` inside of `{outer}` inside of a loop is not supported");
                    self.at = start;
                    return self.refuse(&what);
                }
                return Ok(());
            }
            _ if name.starts_with("end") => {
                self.open.pop();
                return Ok(());
            }
            _ => return Ok(()),
        };
        if name == "macro" && default_uses_parameter(arguments) {
            self.at = start;
            return self.refuse("a macro parameter whose default is another parameter is not supported");
        }
        self.open.push((name, block));
        Ok(())
    }

    /// Copies up to the tag that ends a raw block.
    fn raw(&mut self) {
        let mut from = 0;
        while let Some(at) = self.rest()[from..].find("{%") {
            let tag = self.rest()[from + at + 2..].trim_start_matches(['-', '+']).trim_start();
            if tag.starts_with("endraw") {
                self.copy(from + at);
                return self.copy_past("%}");
            }
            from += at + 2;
        }
        self.copy(self.rest().len());
    }
}

/// Whether a macro's parameter list has `b=a` after `a`, where the engine would look for a variable `a` outside.
fn default_uses_parameter(arguments: &str) -> bool {
    let list = arguments.split_once('(').map_or("", |(_, list)| list);
    let mut seen: Vec<&str> = Vec::new();
    for parameter in list.split(',') {
        let (name, default) = parameter.split_once('=').unwrap_or((parameter, ""));
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let default = default.trim_start();
        if seen.contains(&&default[..default.find(|c| !word(c)).unwrap_or(default.len())]) {
            return true;
        }
        seen.push(name.trim());
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(source: &str) -> String {
        prepare(source).unwrap_err().to_string()
    }

    #[test]
    fn what_the_engine_reads_alike_stays() {
        for source in [
            "",
            "{",
            "{{",
            "{{ 'a",
            "{% if",
            "{# {% generation %}",
            "{{ {'a': {'b': '}}'}}['a'] }} { {% for x in '%}' %}{% break %}{% endfor %}",
            "{%- set x = 'a' -%}{% raw %}{% generation %}{{ '\\U' {%- endraw %}",
            "{{ '\\n\\x41\\'\\q' }}",
            "{% for x in y %}{% if x %}{% continue %}{% endif %}{% with %}{% endwith %}{% break %}{% endfor %}",
            "{% with %}{% for x in y %}{% break %}{% endfor %}{% endwith %}",
            "{% macro f(a, b='a', c=none) %}{% endmacro %}",
        ] {
            assert_eq!(prepare(source).unwrap(), source);
        }
    }

    #[test]
    fn the_rest_is_written_for_the_engine() {
        let cases = [
            ("a\r\nb\rc", "a\nb\nc"),
            ("{%- generation -%}a{%endgeneration%}", "{%- with -%}a{%endwith%}"),
            ("{{ '\\a\\v\\U0001F600\\\nx' }}", "{{ '\u{7}\u{b}😀x' }}"),
            ("{% set x = \"\\U000000e9\" %}", "{% set x = \"é\" %}"),
        ];
        for (source, expected) in cases {
            assert_eq!(prepare(source).unwrap(), expected);
        }
    }

    #[test]
    fn what_the_engine_gets_wrong_is_refused_by_name_and_line() {
        assert!(refusal("\n{{ '\\N{SNOWMAN}' }}").contains("`\\N{...}` is not supported"));
        assert!(refusal("\n{{ '\\N{SNOWMAN}' }}").contains("line 2"));
        assert!(refusal("{{ '\\Uzz' }}").contains("eight hexadecimal digits"));
        for (block, name) in
            [("with a=1", "with"), ("set x", "set"), ("filter upper", "filter"), ("generation", "generation")]
        {
            let source = format!("{{% for x in y %}}{{% {block} %}}{{% if x %}}{{% continue %}}");
            assert!(refusal(&source).contains(&format!("`continue` inside of `{name}`")), "{}", refusal(&source));
        }
        assert!(refusal("{% macro f(a, b=a) %}{% endmacro %}").contains("macro parameter"));
    }

    proptest! {
        #[test]
        fn any_source_is_read(parts in prop::collection::vec(prop::sample::select(vec![
            "{{", "}}", "{%", "%}", "{#", "#}", "'", "\"", "\\", "U", "N{", " for ", "set x", "raw", "endraw", "generation",
            "break", "with", "macro f(a,b=a)", "é", "\r", "\n", "-", "(", "}", "]", "=", "endfor",
        ]), 0..24)) {
            let _ = prepare(&parts.concat());
        }
    }
}
