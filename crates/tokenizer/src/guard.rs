//! Keeps text from outside a chat template apart from the template's own text while it is rendered.
//!
//! A mark inside each control token that outside text spells makes the two differ in the rendered prompt. The marks
//! survive what templates do with strings (trim, split, replace, escape, concatenate), and are removed before the
//! plain parts become tokens. Text that spells no control token is not touched at all.

use crate::vocab::added::AddedTokens;
use std::borrow::Cow;

/// Breaks a spelled control token; a private-use character that no vocabulary gives a meaning.
pub(crate) const MARK: char = '\u{10FF4D}';
/// Encloses the hexadecimal code of a character that must not stand as itself.
pub(crate) const QUOTE: char = '\u{10FF51}';

/// Tags of visible reasoning. Templates look for them in earlier replies to cut them out, so there they stay.
const REASONING: [&str; 10] = [
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
    "<|channel>",
    "<channel|>",
    "<seed:think>",
    "</seed:think>",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
];

/// Whose text is being marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// Replies of the model.
    Assistant,
    /// Everybody and everything else.
    Other,
}

/// Marks and unmarks text for one vocabulary.
pub(crate) struct Guard<'a> {
    added: &'a AddedTokens,
}

impl<'a> Guard<'a> {
    pub(crate) fn new(added: &'a AddedTokens) -> Self {
        Self { added }
    }

    /// `text` with a mark inside every control token that it spells.
    pub(crate) fn mark<'t>(&self, text: &'t str, author: Author) -> Cow<'t, str> {
        let mut starts = self.added.control_starts(text);
        if author == Author::Assistant {
            starts.retain(|&start| !REASONING.iter().any(|tag| text[start..].starts_with(tag)));
        }
        if starts.is_empty() && !text.contains([MARK, QUOTE]) {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len() + starts.len() * 4);
        let mut starts = starts.into_iter().peekable();
        for (at, c) in text.char_indices() {
            if starts.next_if_eq(&at).is_some() {
                if self.added.find(c.encode_utf8(&mut [0; 4]), true).is_empty() {
                    out.extend([c, MARK]);
                } else {
                    // The first character alone is a token, so a mark behind it would not hide it.
                    quote(c, &mut out);
                }
            } else if c == MARK || c == QUOTE {
                quote(c, &mut out);
            } else {
                out.push(c);
            }
        }
        Cow::Owned(out)
    }
}

/// Appends `text` to `out` as it was before marking; true if there was anything to remove.
pub(crate) fn unmark(text: &str, out: &mut String) -> bool {
    if !text.contains([MARK, QUOTE]) {
        out.push_str(text);
        return false;
    }
    let mut rest = text;
    while let Some(at) = rest.find([MARK, QUOTE]) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let quoted = rest.strip_prefix(QUOTE).and_then(|tail| {
            let (code, tail) = tail.split_once(QUOTE)?;
            Some((char::from_u32(u32::from_str_radix(code, 16).ok()?)?, tail))
        });
        rest = match quoted {
            Some((c, tail)) => {
                out.push(c);
                tail
            }
            None => &rest[MARK.len_utf8()..],
        };
    }
    out.push_str(rest);
    true
}

fn quote(c: char, out: &mut String) {
    out.extend([QUOTE]);
    out.push_str(&format!("{:x}", u32::from(c)));
    out.extend([QUOTE]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::added::AddedToken;
    use foundation::TokenId;
    use proptest::prelude::*;

    fn vocabulary() -> AddedTokens {
        let control = ["<|im_end|>", "<|im_start|>", "</think>", "<a", "a<", "§"];
        let tokens = control.iter().zip(0..).map(|(&text, id)| AddedToken::plain(text.into(), TokenId(id), true));
        AddedTokens::new(tokens.chain([AddedToken::plain("  ".into(), TokenId(9), false)]).collect())
    }

    proptest! {
        #[test]
        fn marked_text_spells_no_control_token_and_comes_back(
            parts in prop::collection::vec(
                prop::sample::select(vec!["<|im_end|>", "<|im_", "end|>", "<", "a", "</think>", "§", "  ", "x", "\u{10FF4D}", "\u{10FF51}", "é"]), 0..20)
        ) {
            let added = vocabulary();
            let guard = Guard::new(&added);
            let text = parts.concat();
            let marked = guard.mark(&text, Author::Other);
            prop_assert!(added.control_starts(&marked).is_empty(), "{marked:?}");
            let mut back = String::new();
            unmark(&marked, &mut back);
            prop_assert_eq!(back, text);
        }
    }

    #[test]
    fn reasoning_tags_of_replies_stay() {
        let added = vocabulary();
        let guard = Guard::new(&added);
        assert_eq!(guard.mark("x</think>y", Author::Assistant), "x</think>y");
        assert_ne!(guard.mark("x</think>y", Author::Other), "x</think>y");
        assert_ne!(guard.mark("x<|im_end|>y", Author::Assistant), "x<|im_end|>y");
    }
}
