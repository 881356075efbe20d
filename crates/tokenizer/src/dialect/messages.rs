//! Reads a reply that is a row of messages with headers.

use super::arguments::{CallError, ToolCall};
use super::calls::{RawArguments, RawCall, members};
use super::inline::{Context, Inline, MAX_SPAN, State, emit};
use super::marked::{Body, Marked, Marker, Markers, unfinished};
use super::parser::ReplyEvent;
use super::{Dialect, Messages};

/// The role whose messages a reply consists of.
const ROLE: &str = "assistant";

/// The reader of a row of messages.
#[derive(Debug)]
pub(crate) struct MessageReader {
    messages: &'static Messages,
    state: Place,
    buffer: Marked,
    /// Bytes of the buffer in which no message ends.
    searched: usize,
    inline: Inline,
    body: Marker,
    /// All markers that end a message, that of a new one included.
    ends: Vec<Marker>,
    /// Whether reasoning and content were shown before this message.
    shown: [bool; 2],
    /// The next text begins another message of a kind that was shown before.
    separate: bool,
}

#[derive(Debug)]
enum Place {
    Header,
    Reasoning,
    Content,
    Call { name: String, header: String },
}

impl MessageReader {
    pub(crate) fn new(dialect: &'static Dialect, messages: &'static Messages, markers: &Markers) -> Self {
        let ends = messages.ends.iter().chain([&messages.call_end, &messages.start]);
        Self {
            messages,
            state: Place::Header,
            buffer: Marked::default(),
            inline: Inline::new(dialect, markers, State::Content),
            searched: 0,
            body: markers.marker(messages.body),
            ends: ends.map(|end| markers.marker(end)).collect(),
            shown: [false; 2],
            separate: false,
        }
    }

    pub(crate) fn push(&mut self, text: &Marked, cx: &Context, out: &mut Vec<ReplyEvent>) {
        self.buffer.append(text);
        while self.advance(cx, out) {}
    }

    /// The reply ends where it was cut off: its last call may lack its arguments.
    pub(crate) fn cut_off(&mut self, cx: &Context, out: &mut Vec<ReplyEvent>) {
        self.inline.cut_off();
        if matches!(self.state, Place::Call { .. }) && self.buffer.text().trim().is_empty() {
            self.release(self.buffer.text().len(), CallError::Incomplete, out);
            self.state = Place::Header;
        }
        self.finish(cx, out);
    }

    pub(crate) fn finish(&mut self, cx: &Context, out: &mut Vec<ReplyEvent>) {
        let rest = self.buffer.text().len();
        if matches!(self.state, Place::Header) {
            self.drop_header(rest, cx, out);
        } else {
            self.message(rest, cx, out);
            self.end_message(self.buffer.text().len(), cx, out);
        }
    }

    /// Forgets what a prompt showed.
    pub(crate) fn begin(&mut self) {
        self.shown = [false; 2];
        self.separate = false;
    }

    fn advance(&mut self, cx: &Context, out: &mut Vec<ReplyEvent>) -> bool {
        let body = self.buffer.body(&cx.markers);
        let from = self.searched;
        let ends = self.ends.iter().filter_map(|end| Some((body.find_marker(end, from)?, end.literal)));
        let end = ends.min_by_key(|(at, _)| *at);
        if matches!(self.state, Place::Header) {
            return match (body.find_marker(&self.body, 0), end) {
                (Some(at), end) if end.is_none_or(|(end, _)| at < end) => {
                    let header = self.buffer.take(at);
                    self.buffer.take(self.body.literal.len());
                    self.state = self.place(&header, cx);
                    let kind = usize::from(matches!(self.state, Place::Content));
                    self.separate = self.shown[kind] && !matches!(self.state, Place::Call { .. });
                    true
                }
                (_, Some((at, literal))) => {
                    self.drop_header(at, cx, out);
                    self.buffer.take(literal.len());
                    true
                }
                (_, None) => false,
            };
        }
        if let Some((at, literal)) = end {
            let content = !matches!(self.state, Place::Call { .. });
            self.message(at, cx, out);
            self.end_message(if content { 0 } else { at }, cx, out);
            self.buffer.take(literal.len());
            return true;
        }
        let decided = body.text.len() - unfinished(body.text, &self.ends);
        self.message(decided, cx, out);
        if matches!(self.state, Place::Call { .. }) {
            self.searched = decided;
            if decided > MAX_SPAN {
                self.release(decided, CallError::TooLong { limit: MAX_SPAN }, out);
                self.state = Place::Content;
            }
        }
        false
    }

    /// A header without a message. Text that no marker announced is shown all the same.
    fn drop_header(&mut self, length: usize, cx: &Context, out: &mut Vec<ReplyEvent>) {
        let header = self.buffer.take(length);
        let text = header.visible(&cx.markers);
        let word = text.trim();
        let is_header =
            header.has_tokens() || ROLE.starts_with(word) || word.starts_with("to=") || word.starts_with(ROLE);
        if !is_header {
            emit(out, ReplyEvent::Content, &text);
        }
    }

    /// What a message with this header is.
    fn place(&self, header: &Marked, cx: &Context) -> Place {
        let whole = header.body(&cx.markers);
        let (role, channel) = match self.messages.channel.and_then(|channel| whole.split_once(channel)) {
            Some((role, channel)) => (role, Some(channel)),
            None => (whole, None),
        };
        let constrain = self.messages.constrain;
        let (role, channel) = (before(role, constrain), channel.map(|channel| before(channel, constrain)));
        let mut words =
            role.text.split_whitespace().chain(channel.iter().flat_map(|body| body.text.split_whitespace()));
        let recipient = words.find_map(|word| word.strip_prefix("to="));
        let channel = channel.and_then(|body| body.text.split_whitespace().next());
        let reasoning = |word: Option<&str>| word.is_some_and(|word| self.messages.reasoning.contains(&word));
        match (self.messages.recipient, recipient) {
            (Some(prefix), Some(recipient)) => Place::Call {
                name: recipient.strip_prefix(prefix).unwrap_or(recipient).to_owned(),
                header: format!("{}{}", header.text(), self.body.literal),
            },
            (Some(_), None) if reasoning(channel) => Place::Reasoning,
            (None, recipient) if reasoning(recipient) => Place::Reasoning,
            _ => Place::Content,
        }
    }

    /// Takes the next `length` bytes of the message.
    fn message(&mut self, length: usize, cx: &Context, out: &mut Vec<ReplyEvent>) {
        if length == 0 || matches!(self.state, Place::Call { .. } | Place::Header) {
            return;
        }
        let text = self.buffer.take(length);
        let mut events = Vec::new();
        if matches!(self.state, Place::Content) {
            self.inline.push(&text, cx, &mut events);
        } else {
            emit(&mut events, ReplyEvent::Reasoning, &text.visible(&cx.markers));
        }
        self.relay(events, out);
    }

    /// Hands events on, with a blank line between two messages of one kind.
    fn relay(&mut self, events: Vec<ReplyEvent>, out: &mut Vec<ReplyEvent>) {
        for event in events {
            let (kind, make): (usize, fn(String) -> ReplyEvent) = match event {
                ReplyEvent::Reasoning(_) => (0, ReplyEvent::Reasoning),
                ReplyEvent::Content(_) => (1, ReplyEvent::Content),
                _ => {
                    out.push(event);
                    continue;
                }
            };
            if std::mem::take(&mut self.separate) {
                out.push(make("\n\n".into()));
            }
            self.shown[kind] = true;
            out.push(event);
        }
    }

    /// Ends the message; the next `length` bytes are a call's arguments.
    fn end_message(&mut self, length: usize, cx: &Context, out: &mut Vec<ReplyEvent>) {
        match &self.state {
            Place::Content => {
                let mut events = Vec::new();
                self.inline.finish(cx, &mut events);
                self.relay(events, out);
            }
            Place::Call { name, .. } => match admit(name, &self.buffer.text()[..length], cx) {
                Ok(call) => {
                    self.buffer.take(length);
                    out.push(ReplyEvent::ToolCall(call));
                }
                Err(why) => self.release(length, why, out),
            },
            Place::Header | Place::Reasoning => {}
        }
        self.state = Place::Header;
        self.searched = 0;
    }

    /// Hands the call's header and the next `length` bytes out as text.
    fn release(&mut self, length: usize, why: CallError, out: &mut Vec<ReplyEvent>) {
        if let Place::Call { header, .. } = &self.state {
            let text = format!("{header}{}", self.buffer.take(length).text());
            out.push(ReplyEvent::ReleasedToolSpan { text, why });
        }
        self.searched = 0;
    }
}

/// A call whose message holds these arguments.
fn admit(name: &str, text: &str, cx: &Context) -> Result<ToolCall, CallError> {
    let tools = cx.tools.as_ref().ok_or(CallError::NoTools)?;
    let arguments = if text.trim().is_empty() { "{}" } else { text.trim() };
    members(arguments)?;
    tools.admit(RawCall { id: None, name: name.to_owned(), arguments: RawArguments::Json(arguments.into()) })
}

/// What stands before `literal`, or all of it.
fn before<'a>(body: Body<'a>, literal: Option<&'static str>) -> Body<'a> {
    literal.and_then(|literal| body.split_once(literal)).map_or(body, |(before, _)| before)
}
