//! What a reply may look like: JSON schemas, regular expressions, grammars and forced tool calls.
//!
//! A [`Vocabulary`] is made once of a tokenizer; it compiles a [`Source`] into a [`Constraint`], and a [`Session`] follows
//! one reply along it: which tokens may come next, which must, and when the reply is over.
//!
//! It fails closed. What cannot be enforced exactly is refused when it is compiled, naming its place; a state in which no
//! token may follow is an error. Control tokens never match content, and the tokens that end a reply are allowed only
//! where the grammar may end. Everything works on bytes, so a token may hold a part of a character.
//!
//! This crate knows neither logits nor models; [`Mask::restrict`] is the only place where it touches a row of them.
#![forbid(unsafe_code)]

mod call;
mod error;
mod gbnf;
mod mask;
mod schema;
mod session;
mod source;
mod vocabulary;

pub use call::{ToolChoice, call_grammar};
pub use error::GrammarError;
pub use mask::Mask;
pub use session::{Constraint, Session};
pub use source::Source;
pub use vocabulary::Vocabulary;
