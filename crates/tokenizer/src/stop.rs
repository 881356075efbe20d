//! Stop strings over streamed text: withholds only what may still become a match.

/// Text released by one step of a [`StopMatcher`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopOutcome {
    /// Text that can no longer be part of a stop string.
    pub text: String,
    /// A stop string is complete: the output ends after `text`.
    pub stopped: bool,
}

/// Finds the first stop string that completes in a stream of text. Of several that complete in the same piece of
/// text, the one that starts first counts.
///
/// One Knuth-Morris-Pratt automaton a stop string, so that a step costs as much as its text is long.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    patterns: Vec<Pattern>,
    held: String,
    stopped: bool,
}

#[derive(Clone, Debug)]
struct Pattern {
    bytes: Box<[u8]>,
    /// Length of the longest proper border of each prefix.
    border: Box<[usize]>,
    matched: usize,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let bytes: Box<[u8]> = text.as_bytes().into();
        let mut border = vec![0; bytes.len()];
        let mut length = 0;
        for i in 1..bytes.len() {
            while length > 0 && bytes[i] != bytes[length] {
                length = border[length - 1];
            }
            length += usize::from(bytes[i] == bytes[length]);
            border[i] = length;
        }
        Self { bytes, border: border.into(), matched: 0 }
    }

    /// Takes one byte; true when the pattern is complete.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.bytes.get(self.matched) != Some(&byte) {
            self.matched = self.border[self.matched - 1];
        }
        self.matched += usize::from(self.bytes[self.matched] == byte);
        self.matched == self.bytes.len()
    }
}

impl StopMatcher {
    /// A matcher for `stops`; empty strings are ignored.
    pub fn new(stops: &[String]) -> Self {
        let patterns = stops.iter().filter(|stop| !stop.is_empty()).map(|stop| Pattern::new(stop)).collect();
        Self { patterns, held: String::new(), stopped: false }
    }

    /// Takes the next piece of text. After a match every further piece is dropped.
    pub fn push(&mut self, delta: &str) -> StopOutcome {
        if self.stopped {
            return StopOutcome { text: String::new(), stopped: true };
        }
        let before = self.held.len();
        self.held.push_str(delta);
        let mut first: Option<usize> = None;
        for (index, byte) in delta.bytes().enumerate() {
            for pattern in &mut self.patterns {
                if pattern.step(byte) {
                    let start = before + index + 1 - pattern.bytes.len();
                    first = Some(first.map_or(start, |other| other.min(start)));
                }
            }
        }
        if let Some(start) = first {
            self.stopped = true;
            self.held.truncate(start);
            return StopOutcome { text: std::mem::take(&mut self.held), stopped: true };
        }
        let withheld = self.patterns.iter().map(|pattern| pattern.matched).max().unwrap_or(0);
        let kept = self.held.split_off(self.held.len() - withheld);
        StopOutcome { text: std::mem::replace(&mut self.held, kept), stopped: false }
    }

    /// The text still withheld when generation ends without a match; empty after a match.
    pub fn finish(&mut self) -> String {
        for pattern in &mut self.patterns {
            pattern.matched = 0;
        }
        std::mem::take(&mut self.held)
    }
}
