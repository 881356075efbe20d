//! Reads one text with a span of reasoning at its start and spans of calls in it.

use super::arguments::{CallError, Tools};
use super::calls::{self, Part};
use super::marked::{Body, Marked, Marker, Markers, unfinished};
use super::parser::ReplyEvent;
use super::{Dialect, ToolSyntax};

/// Bytes of one span of calls; longer ones are released as text, so that memory stays bounded.
pub(crate) const MAX_SPAN: usize = 1 << 20;

/// What stays the same during a reply.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) markers: Markers,
    pub(crate) tools: Option<Tools>,
}

/// The reader of one text.
#[derive(Debug)]
pub(crate) struct Inline {
    state: State,
    buffer: Marked,
    /// Nothing was shown since the last reasoning or call: line ends here set nothing off.
    fresh: bool,
    reasoning: Option<ReasoningMarkers>,
    syntax: Option<&'static ToolSyntax>,
    openers: Vec<Marker>,
    closers: Vec<Option<Marker>>,
    /// The text is one that the model did not end.
    cut: bool,
}

#[derive(Clone, Copy, Debug)]
struct ReasoningMarkers {
    open: Marker,
    label: &'static str,
    close: Marker,
}

/// Where a text stands.
#[derive(Debug)]
pub(crate) enum State {
    /// Nothing but white space so far: reasoning may begin.
    Start,
    /// Inside reasoning; the label may still follow.
    Reasoning { label: bool },
    /// In what is for the reader.
    Content,
    /// Inside a span of calls.
    Span(Open),
}

/// An open span.
#[derive(Debug, Default)]
pub(crate) struct Open {
    /// Which pair of markers; none for a call without markers.
    pair: Option<usize>,
    /// The line ends before the marker, and the marker.
    head: Marked,
    line_ends: usize,
    scan: Scan,
}

impl Inline {
    pub(crate) fn new(dialect: &'static Dialect, markers: &Markers, state: State) -> Self {
        let syntax = dialect.tools.as_ref();
        let spans = syntax.map_or(&[][..], |tools| tools.spans);
        Self {
            fresh: !matches!(state, State::Start),
            state,
            buffer: Marked::default(),
            reasoning: dialect.reasoning.map(|reasoning| ReasoningMarkers {
                open: markers.marker(reasoning.open),
                label: reasoning.label,
                close: markers.marker(reasoning.close),
            }),
            syntax,
            openers: spans.iter().map(|span| markers.marker(span.open)).collect(),
            closers: spans.iter().map(|span| span.close.map(|close| markers.marker(close))).collect(),
            cut: false,
        }
    }

    pub(crate) fn push(&mut self, text: &Marked, cx: &Context, out: &mut Vec<ReplyEvent>) {
        self.buffer.append(text);
        while self.advance(false, cx, out) {}
    }

    /// The text ends where it was cut off: a call that needs no closing marker may lack its arguments.
    pub(crate) fn cut_off(&mut self) {
        self.cut = true;
    }

    /// Ends the text; another one may follow.
    pub(crate) fn finish(&mut self, cx: &Context, out: &mut Vec<ReplyEvent>) {
        while self.advance(true, cx, out) {}
        self.state = State::Content;
    }

    /// One step as far as the text decides it; whether another one may be possible.
    fn advance(&mut self, end: bool, cx: &Context, out: &mut Vec<ReplyEvent>) -> bool {
        match &mut self.state {
            State::Start => self.start(end, cx),
            State::Reasoning { .. } => self.reason(end, cx, out),
            State::Content => self.content(end, cx, out),
            State::Span(_) => self.span(end, cx, out),
        }
    }

    fn start(&mut self, end: bool, cx: &Context) -> bool {
        let body = self.buffer.body(&cx.markers);
        let rest = body.trim_start().text;
        let lead = body.text.len() - rest.len();
        if let Some(reasoning) = self.reasoning {
            if body.is_at(&reasoning.open, lead) {
                self.buffer.take(lead + reasoning.open.literal.len());
                self.state = State::Reasoning { label: true };
                self.fresh = true;
                return true;
            }
            let may_open = rest.is_empty() || (!reasoning.open.is_token() && reasoning.open.literal.starts_with(rest));
            if may_open && !end {
                return false;
            }
        }
        let bare = self.syntax.is_some_and(|syntax| syntax.bare_json) && cx.tools.is_some();
        match if bare { names_function(rest) } else { Some(false) } {
            None if !end => return false,
            Some(true) => {
                let head = self.buffer.take(lead);
                self.state = State::Span(Open { head, line_ends: lead, ..Open::default() });
            }
            _ => self.state = State::Content,
        }
        true
    }

    fn reason(&mut self, end: bool, cx: &Context, out: &mut Vec<ReplyEvent>) -> bool {
        let Some(markers) = self.reasoning else {
            self.state = State::Content;
            return true;
        };
        if let State::Reasoning { label: label @ true } = &mut self.state {
            let text = self.buffer.text();
            if text.len() < markers.label.len() && markers.label.starts_with(text) && !end {
                return false;
            }
            *label = false;
            if text.starts_with(markers.label) {
                self.buffer.take(markers.label.len());
            }
        }
        self.skip_line_ends();
        let body = self.buffer.body(&cx.markers);
        if let Some(at) = body.find_marker(&markers.close, 0) {
            let text = self.buffer.take(at).visible(&cx.markers);
            emit(out, ReplyEvent::Reasoning, text.trim_end_matches('\n'));
            self.buffer.take(markers.close.literal.len());
            self.state = State::Content;
            self.fresh = true;
            return true;
        }
        let length = self.decided(end, &[markers.close], true);
        self.show(length, ReplyEvent::Reasoning, cx, out);
        false
    }

    fn content(&mut self, end: bool, cx: &Context, out: &mut Vec<ReplyEvent>) -> bool {
        self.skip_line_ends();
        let body = self.buffer.body(&cx.markers);
        let opener = self
            .openers
            .iter()
            .enumerate()
            .filter_map(|(pair, marker)| Some((body.find_marker(marker, 0)?, pair)))
            .min();
        if let Some((at, pair)) = opener {
            let shown = body.text[..at].trim_end_matches('\n').len();
            self.show(shown, ReplyEvent::Content, cx, out);
            let line_ends = at - shown;
            let head = self.buffer.take(line_ends + self.openers[pair].literal.len());
            self.state = State::Span(Open { pair: Some(pair), head, line_ends, scan: Scan::default() });
            return true;
        }
        let length = self.decided(end, &self.openers, !self.openers.is_empty());
        self.show(length, ReplyEvent::Content, cx, out);
        false
    }

    fn span(&mut self, end: bool, cx: &Context, out: &mut Vec<ReplyEvent>) -> bool {
        let State::Span(open) = &mut self.state else { return false };
        let body = self.buffer.body(&cx.markers);
        let closer = open.pair.and_then(|pair| self.closers[pair].as_ref());
        // Without a closing marker the next opening marker ends the span.
        let marker = closer.or_else(|| open.pair.map(|pair| &self.openers[pair]));
        let found = marker.and_then(|marker| open.scan.find(body, marker));
        let length = match (found, closer) {
            (Some(_), Some(closer)) => closer.literal.len(),
            _ => 0,
        };
        let closed = found.is_some() || (closer.is_none() && !self.cut);
        let too_long = found.is_none() && body.text.len() > MAX_SPAN;
        let Some(at) = found.or((end || too_long).then_some(body.text.len())) else { return false };
        let open = std::mem::take(open);
        self.state = State::Content;
        let inside = self.buffer.take(at);
        let tail = self.buffer.take(length);
        let parsed = match self.syntax {
            _ if too_long => Err(CallError::TooLong { limit: MAX_SPAN }),
            Some(syntax) => calls::parse(inside.body(&cx.markers), syntax, cx.tools.as_ref(), closed),
            None => Err(CallError::NoTools),
        };
        let whole = |why| {
            let (before, marker) = open.head.text().split_at(open.line_ends);
            (
                before.to_owned(),
                ReplyEvent::ReleasedToolSpan { text: format!("{marker}{}{}", inside.text(), tail.text()), why },
            )
        };
        let released = match parsed {
            Err(why) => whole(why),
            Ok(mut parts) => {
                if parts.iter().all(|part| matches!(part, Part::Text(..))) {
                    match parts.swap_remove(0) {
                        Part::Text(_, why) => whole(why),
                        Part::Call(_) => return true,
                    }
                } else {
                    out.extend(parts.into_iter().map(|part| match part {
                        Part::Call(call) => ReplyEvent::ToolCall(call),
                        Part::Text(range, why) => {
                            ReplyEvent::ReleasedToolSpan { text: inside.text()[range].to_owned(), why }
                        }
                    }));
                    self.fresh = true;
                    return true;
                }
            }
        };
        emit(out, ReplyEvent::Content, &released.0);
        out.push(released.1);
        self.fresh = false;
        true
    }

    /// Bytes of the buffer that can be shown now.
    fn decided(&self, end: bool, markers: &[Marker], hold_line_ends: bool) -> usize {
        let text = self.buffer.text();
        if end {
            return text.len();
        }
        let decided = &text[..text.len() - unfinished(text, markers)];
        if hold_line_ends { decided.trim_end_matches('\n').len() } else { decided.len() }
    }

    fn skip_line_ends(&mut self) {
        if self.fresh {
            let text = self.buffer.text();
            let count = text.len() - text.trim_start_matches('\n').len();
            self.buffer.take(count);
        }
    }

    fn show(&mut self, length: usize, kind: fn(String) -> ReplyEvent, cx: &Context, out: &mut Vec<ReplyEvent>) {
        if length > 0 {
            let text = self.buffer.take(length).visible(&cx.markers);
            self.fresh &= text.is_empty();
            emit(out, kind, &text);
        }
    }
}

pub(crate) fn emit(out: &mut Vec<ReplyEvent>, kind: fn(String) -> ReplyEvent, text: &str) {
    if !text.is_empty() {
        out.push(kind(text.to_owned()));
    }
}

/// Whether a reply begins like the JSON of a call; `None` while that is open.
fn names_function(text: &str) -> Option<bool> {
    const KEYS: [&str; 4] = ["name\"", "type\"", "function\"", "parameters\""];
    let Some(rest) = text.strip_prefix('{') else { return Some(false) };
    let rest = rest.trim_start();
    if rest.is_empty() {
        return None;
    }
    let Some(key) = rest.strip_prefix('"') else { return Some(false) };
    if KEYS.iter().any(|known| key.starts_with(known)) {
        return Some(true);
    }
    if KEYS.iter().any(|known| known.starts_with(key)) { None } else { Some(false) }
}

/// The search for the end of a span, which looks at each byte once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    at: usize,
    /// The span holds JSON, in whose strings a marker in plain letters means nothing.
    json: Option<bool>,
    in_string: bool,
    escaped: bool,
}

impl Scan {
    fn find(&mut self, body: Body<'_>, marker: &Marker) -> Option<usize> {
        if marker.is_token() {
            let found = body.find_marker(marker, self.at);
            self.at = found.unwrap_or(body.text.len());
            return found;
        }
        let (bytes, wanted) = (body.text.as_bytes(), marker.literal.as_bytes());
        while let Some(&byte) = bytes.get(self.at) {
            if self.json.is_none() && !byte.is_ascii_whitespace() {
                self.json = Some(matches!(byte, b'{' | b'['));
            }
            if !self.in_string && byte == wanted[0] {
                if body.is_at(marker, self.at) {
                    return Some(self.at);
                }
                if wanted.starts_with(&bytes[self.at..]) {
                    return None;
                }
            }
            if self.json == Some(true) {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' if self.in_string => self.escaped = true,
                    b'"' => self.in_string = !self.in_string,
                    _ => {}
                }
            }
            self.at += 1;
        }
        None
    }
}
