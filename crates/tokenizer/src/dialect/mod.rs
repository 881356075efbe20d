//! Dialects: how a model writes its reasoning and its tool calls, as data.
//!
//! A [`Dialect`] is a description and nothing else. [`ReplyParser`] reads replies by it, [`Dialect::write_calls`]
//! writes by it, and its start and end markers with the argument syntax are what a grammar for tool calls needs. Which
//! dialect a model speaks is found in its vocabulary and chat template ([`Tokenizer::dialect`](crate::Tokenizer)).

mod arguments;
mod calls;
mod detect;
mod inline;
mod marked;
mod messages;
mod parser;
mod table;
mod write;

pub use arguments::{CallError, ToolCall, Tools};
pub use detect::DialectError;
pub use parser::{ReplyEvent, ReplyParser};

/// How one family of models writes reasoning and tool calls.
#[derive(Debug, PartialEq, Eq)]
pub struct Dialect {
    /// What it is called on the command line and in messages.
    pub name: &'static str,
    /// Whether a reply is one text or a row of messages with headers.
    pub framing: Framing,
    /// How reasoning is enclosed inside a text.
    pub reasoning: Option<Reasoning>,
    /// How tools are called; `None` where no call syntax is known.
    pub tools: Option<ToolSyntax>,
    /// Pieces of markers that are tokens of their own.
    pub tokens: &'static [&'static str],
}

/// The overall shape of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One text with spans of reasoning and calls in it.
    Text,
    /// Messages, each with a header that says whom or what it is for.
    Messages(Messages),
}

/// Reasoning as a span at the start of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reasoning {
    /// Opens the span.
    pub open: &'static str,
    /// Follows the opening marker and is no part of the reasoning.
    pub label: &'static str,
    /// Closes the span.
    pub close: &'static str,
}

/// The markers of messages with headers, and the words in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Messages {
    /// Begins a header, which starts with the role.
    pub start: &'static str,
    /// Precedes the channel's name in a header.
    pub channel: Option<&'static str>,
    /// Precedes the type of the content in a header.
    pub constrain: Option<&'static str>,
    /// Ends the header; the content follows.
    pub body: &'static str,
    /// End a message; the first one is written between messages.
    pub ends: &'static [&'static str],
    /// Ends a message that calls a tool.
    pub call_end: &'static str,
    /// Channels, or recipients where there are no channels, whose content is reasoning; the first one is written.
    pub reasoning: &'static [&'static str],
    /// The channel or recipient of content for the reader.
    pub answer: &'static str,
    /// Precedes a tool's name in the recipient; such a message's content is the arguments. `None` where calls are
    /// written in the content by [`ToolSyntax`].
    pub recipient: Option<&'static str>,
}

/// Where calls stand in a text, and how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolSyntax {
    /// Markers around calls; the first pair is written, all are read.
    pub spans: &'static [Span],
    /// Whether one span holds all calls of a reply or each call has its own.
    pub shared: bool,
    /// Written inside the span next to its markers.
    pub padding: &'static str,
    /// Written between calls or their spans.
    pub between: &'static str,
    /// How a call is written; the first syntax is written, all are read.
    pub calls: &'static [CallSyntax],
    /// A reply that begins with a JSON object naming a function is a call without markers.
    pub bare_json: bool,
}

/// A pair of markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Opens the span.
    pub open: &'static str,
    /// Closes it; without one it lasts until the next opening marker or the end of the reply.
    pub close: Option<&'static str>,
}

/// One way to write a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSyntax {
    /// A JSON object, or a list of them, with the function's name and its arguments in the named field.
    Object {
        /// The field that holds the arguments.
        arguments: &'static str,
        /// Several calls form one list.
        list: bool,
    },
    /// The function's name, a separator and the arguments as a JSON object.
    Named(NamedSyntax),
    /// Tags with the names in them and one element for each argument.
    Tags(TagSyntax),
    /// The function's name, then pairs of elements for the arguments' names and values.
    Pairs {
        /// Around an argument's name.
        key: [&'static str; 2],
        /// Around its value.
        value: [&'static str; 2],
    },
    /// `call:name{key:value,…}` with strings between marks of their own.
    Braces {
        /// Precedes the name.
        prefix: &'static str,
        /// Encloses a string, in which nothing is escaped.
        quote: &'static str,
    },
    /// Python: `name.call(argument="value")`, or code for the interpreter.
    Python,
}

/// A name followed by JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedSyntax {
    /// Markers around each call.
    pub item: Option<[&'static str; 2]>,
    /// A word and a separator in front of the name.
    pub kind: Option<[&'static str; 2]>,
    /// Precedes the name and belongs to the call's id.
    pub prefix: &'static str,
    /// The name is followed by a colon and the call's number; the whole is the call's id.
    pub numbered: bool,
    /// Precedes the call's id after the name.
    pub id: Option<&'static str>,
    /// Stands between the name and the arguments.
    pub separator: &'static str,
    /// Stands around the arguments.
    pub fence: [&'static str; 2],
}

/// Tags around names and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagSyntax {
    /// Stand before and after the function's name.
    pub call: [&'static str; 2],
    /// Closes the call.
    pub call_end: &'static str,
    /// Stand before and after an argument's name.
    pub parameter: [&'static str; 2],
    /// Closes an argument.
    pub parameter_end: &'static str,
    /// Values stand on lines of their own.
    pub lines: bool,
    /// An attribute says whether the value is a string or JSON: its text for strings and for JSON.
    pub typed: Option<[&'static str; 2]>,
    /// Written between elements.
    pub between: &'static str,
}

impl Dialect {
    /// Every marker that may be a token of the vocabulary.
    pub(crate) fn literals(&self) -> Vec<&'static str> {
        let mut all = self.tokens.to_vec();
        if let Framing::Messages(messages) = &self.framing {
            all.extend([messages.start, messages.body, messages.call_end]);
            all.extend(messages.channel.iter().chain(&messages.constrain).chain(messages.ends));
        }
        all.extend(self.reasoning.iter().flat_map(|reasoning| [reasoning.open, reasoning.close]));
        if let Some(tools) = &self.tools {
            for span in tools.spans {
                all.push(span.open);
                all.extend(span.close);
            }
            for syntax in tools.calls {
                match syntax {
                    CallSyntax::Object { .. } | CallSyntax::Python => {}
                    CallSyntax::Named(named) => {
                        all.extend(named.item.iter().flatten());
                        all.extend(named.kind.iter().map(|kind| kind[1]));
                        all.extend(named.id);
                        all.push(named.separator);
                    }
                    CallSyntax::Tags(tags) => all.extend([tags.call_end, tags.parameter_end]),
                    CallSyntax::Pairs { key, value } => all.extend(key.iter().chain(value)),
                    CallSyntax::Braces { quote, .. } => all.push(quote),
                }
            }
        }
        all.retain(|literal| !literal.is_empty());
        all.sort_unstable();
        all.dedup();
        all
    }
}
