//! Conversations: one question from the command line, or a session at the terminal.

mod command;
mod conversation;
mod editor;
mod session;

pub(crate) use conversation::Conversation;
pub(crate) use session::Session;
