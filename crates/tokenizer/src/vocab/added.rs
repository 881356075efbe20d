//! Tokens that are found by their literal text before anything else: control tokens, markup, fixed words.

use aho_corasick::{AhoCorasick, Input, MatchKind};
use foundation::TokenId;
use std::collections::BTreeSet;

/// A token found in a text, at bytes `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) id: TokenId,
}

/// A token with literal text.
#[derive(Clone, Debug)]
pub(crate) struct AddedToken {
    pub(crate) text: String,
    pub(crate) id: TokenId,
    /// Only the chat template may write it: it is a control token, or markup such as `<think>`.
    pub(crate) control: bool,
    /// Swallows the whitespace on its left.
    pub(crate) strip_left: bool,
    /// Swallows the whitespace on its right.
    pub(crate) strip_right: bool,
    /// Not part of a longer word.
    pub(crate) whole_word: bool,
}

impl AddedToken {
    /// A token without options.
    pub(crate) fn plain(text: String, id: TokenId, control: bool) -> Self {
        Self { text, id, control, strip_left: false, strip_right: false, whole_word: false }
    }
}

/// True for texts that structure a prompt (`<think>`, `[INST]`), as opposed to words, whitespace and the HTML tags
/// that some vocabularies hold as ordinary pieces.
pub(crate) fn is_markup(text: &str) -> bool {
    const HTML: [&str; 27] = [
        "table",
        "caption",
        "thead",
        "tbody",
        "tfoot",
        "tr",
        "th",
        "td",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "blockquote",
        "strong",
        "em",
        "b",
        "i",
        "u",
        "s",
        "sub",
        "sup",
        "code",
        "p",
        "br",
        "pre",
    ];
    let bracketed = |open, close| text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    match bracketed('<', '>') {
        Some(name) => !name.is_empty() && !HTML.contains(&name.trim_start_matches('/')),
        None => bracketed('[', ']').is_some_and(|name| !name.is_empty() && !name.trim().is_empty()),
    }
}

/// Finds added tokens in text.
pub(crate) struct AddedTokens {
    all: Finder,
    content: Finder,
    control: Finder,
    control_ids: BTreeSet<TokenId>,
}

impl AddedTokens {
    pub(crate) fn new(tokens: Vec<AddedToken>) -> Self {
        let tokens: Vec<AddedToken> = tokens.into_iter().filter(|token| !token.text.is_empty()).collect();
        let part = |control: bool| tokens.iter().filter(|token| token.control == control).cloned().collect();
        let control_ids = tokens.iter().filter(|token| token.control).map(|token| token.id).collect();
        let (content, control) = (Finder::new(part(false)), Finder::new(part(true)));
        Self { content, control, control_ids, all: Finder::new(tokens) }
    }

    /// Whether the token is found only where control tokens are.
    pub(crate) fn is_control(&self, id: TokenId) -> bool {
        self.control_ids.contains(&id)
    }

    /// All added tokens in `text`, or only those that stand for ordinary content.
    pub(crate) fn find(&self, text: &str, control: bool) -> Vec<Cut> {
        if control { self.all.find(text) } else { self.content.find(text) }
    }

    /// Byte positions at which the text of a control token starts, overlapping ones included.
    pub(crate) fn control_starts(&self, text: &str) -> Vec<usize> {
        self.control.starts(text)
    }

    /// The id of the added token with exactly this text.
    pub(crate) fn id_of(&self, text: &str) -> Option<TokenId> {
        self.all.tokens.iter().find(|token| token.text == text).map(|token| token.id)
    }
}

struct Finder {
    tokens: Vec<AddedToken>,
    automaton: Option<AhoCorasick>,
}

impl Finder {
    fn new(tokens: Vec<AddedToken>) -> Self {
        let automaton = (!tokens.is_empty()).then(|| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(tokens.iter().map(|token| &token.text))
                .expect("a vocabulary's tokens fit into an automaton")
        });
        Self { tokens, automaton }
    }

    fn find(&self, text: &str) -> Vec<Cut> {
        let Some(automaton) = &self.automaton else {
            return Vec::new();
        };
        let mut cuts: Vec<Cut> = Vec::new();
        for found in automaton.find_iter(text) {
            let token = &self.tokens[found.pattern().as_usize()];
            let (mut start, mut end) = (found.start(), found.end());
            let floor = cuts.last().map_or(0, |cut| cut.end);
            if start < floor || (token.whole_word && !stands_alone(text, start, end)) {
                continue;
            }
            if token.strip_left {
                start = floor + text[floor..start].trim_end().len();
            }
            if token.strip_right {
                end = text.len() - text[end..].trim_start().len();
            }
            cuts.push(Cut { start, end, id: token.id });
        }
        cuts
    }

    fn starts(&self, text: &str) -> Vec<usize> {
        let Some(automaton) = &self.automaton else {
            return Vec::new();
        };
        let mut starts = Vec::new();
        let mut from = 0;
        while let Some(found) = automaton.find(Input::new(text).span(from..text.len())) {
            starts.push(found.start());
            from = found.start() + text[found.start()..].chars().next().map_or(1, char::len_utf8);
        }
        starts
    }
}

fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    !text[..start].ends_with(is_word) && !text[end..].starts_with(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(list: &[(&str, u32)]) -> AddedTokens {
        AddedTokens::new(
            list.iter().map(|&(text, id)| AddedToken::plain(text.into(), TokenId(id), is_markup(text))).collect(),
        )
    }

    #[test]
    fn the_longest_token_at_the_leftmost_place_wins() {
        let added = tokens(&[("<a>", 1), ("<a><b>", 2), ("  ", 3)]);
        let found =
            |text, control| added.find(text, control).iter().map(|cut| (cut.start, cut.id.0)).collect::<Vec<_>>();
        assert_eq!(found("x<a><b><a>  ", true), [(1, 2), (7, 1), (10, 3)]);
        assert_eq!(found("x<a><b><a>  ", false), [(10, 3)]);
    }

    #[test]
    fn stripping_tokens_swallow_whitespace_and_whole_words_stand_alone() {
        let mut token = AddedToken::plain("<m>".into(), TokenId(1), true);
        (token.strip_left, token.strip_right) = (true, true);
        let mut word = AddedToken::plain("cat".into(), TokenId(2), false);
        word.whole_word = true;
        let added = AddedTokens::new(vec![token, word]);
        let cuts = added.find("a  <m> \n cats cat", true);
        assert_eq!(cuts, [Cut { start: 1, end: 9, id: TokenId(1) }, Cut { start: 14, end: 17, id: TokenId(2) }]);
    }

    #[test]
    fn overlapping_control_tokens_are_all_reported() {
        let added = tokens(&[("<ab>", 1), ("<ab><ab>", 2)]);
        assert_eq!(added.control_starts("é<ab><ab>"), [2, 6]);
    }

    #[test]
    fn markup_is_told_from_html_and_words() {
        for text in ["<think>", "</think>", "<|im_end|>", "[INST]", "<tool_call>"] {
            assert!(is_markup(text), "{text}");
        }
        for text in ["<table>", "</td>", "cat", "  ", "\n\n", "<>", "[]", "[ ]"] {
            assert!(!is_markup(text), "{text}");
        }
    }
}
