//! Splits an answer into reasoning (`<think>…</think>`) and the rest, as it arrives.

/// What a piece of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// For the reader.
    Answer,
    /// The model thinking aloud, tags included.
    Reasoning,
}

/// Where the stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far: reasoning may begin.
    Start,
    Reasoning,
    Answer,
}

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// The splitter. Withholds only what may still become a tag.
#[derive(Debug)]
pub(crate) struct Splitter {
    state: State,
    held: String,
}

impl Splitter {
    /// A splitter for an answer whose prompt ends in this text; a template may have opened the reasoning itself.
    pub(crate) fn after(prompt_end: &str) -> Self {
        let opened = prompt_end.trim_end().ends_with(OPEN);
        Self { state: if opened { State::Reasoning } else { State::Start }, held: String::new() }
    }

    /// The model wrote the opening tag as a control token, which leaves no text.
    pub(crate) fn opened(&mut self) {
        if self.state == State::Start {
            self.state = State::Reasoning;
        }
    }

    /// The model wrote the closing tag as a control token.
    pub(crate) fn closed(&mut self, show: &mut dyn FnMut(Part, &str)) {
        if self.state == State::Reasoning {
            self.release(Part::Reasoning, show);
            self.state = State::Answer;
        }
    }

    /// Takes the next text.
    pub(crate) fn push(&mut self, text: &str, show: &mut dyn FnMut(Part, &str)) {
        self.held.push_str(text);
        if self.state == State::Start {
            let begun = self.held.trim_start();
            if begun.starts_with(OPEN) {
                self.state = State::Reasoning;
            } else if !OPEN.starts_with(begun) {
                self.state = State::Answer;
            }
        }
        if self.state == State::Reasoning {
            if let Some(at) = self.held.find(CLOSE) {
                let rest = self.held.split_off(at + CLOSE.len());
                self.release(Part::Reasoning, show);
                self.held = rest;
                self.state = State::Answer;
            } else {
                let keep = (1..CLOSE.len()).rev().find(|n| self.held.ends_with(&CLOSE[..*n])).unwrap_or(0);
                let tail = self.held.split_off(self.held.len() - keep);
                self.release(Part::Reasoning, show);
                self.held = tail;
            }
        }
        if self.state == State::Answer {
            self.release(Part::Answer, show);
        }
    }

    /// Releases what is withheld.
    pub(crate) fn finish(&mut self, show: &mut dyn FnMut(Part, &str)) {
        let part = if self.state == State::Reasoning { Part::Reasoning } else { Part::Answer };
        self.release(part, show);
    }

    fn release(&mut self, part: Part, show: &mut dyn FnMut(Part, &str)) {
        if !self.held.is_empty() {
            show(part, &self.held);
            self.held.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(prompt: &str, pieces: &[&str]) -> (String, String) {
        let (mut reasoning, mut answer) = (String::new(), String::new());
        let mut show = |part, text: &str| match part {
            Part::Reasoning => reasoning.push_str(text),
            Part::Answer => answer.push_str(text),
        };
        let mut splitter = Splitter::after(prompt);
        pieces.iter().for_each(|piece| splitter.push(piece, &mut show));
        splitter.finish(&mut show);
        (reasoning, answer)
    }

    #[test]
    fn tags_are_found_wherever_the_text_is_cut() {
        let cases: [(&str, &[&str], &str, &str); 7] = [
            ("", &["a<think>b"], "", "a<think>b"),
            ("", &["\n<th", "ink>hm</thi", "nk>\n\nyes"], "\n<think>hm</think>", "\n\nyes"),
            ("", &["<think>hm</think>yes"], "<think>hm</think>", "yes"),
            ("x<think>\n", &["hm</think>", "yes </think>"], "hm</think>", "yes </think>"),
            ("", &["<th"], "", "<th"),
            ("", &["<think>never closed </thi"], "<think>never closed </thi", ""),
            ("", &["größe ", "🙂"], "", "größe 🙂"),
        ];
        for (prompt, pieces, reasoning, answer) in cases {
            assert_eq!(split(prompt, pieces), (reasoning.to_owned(), answer.to_owned()), "{pieces:?}");
        }
    }
}
