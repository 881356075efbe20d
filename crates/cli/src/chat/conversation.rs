//! The messages of a conversation, and its file.

use crate::failure::Failure;
use runtime::Message;
use serde_json::{Value, json};
use std::path::Path;

/// A conversation with a model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation {
    messages: Vec<Message>,
}

impl Conversation {
    /// An empty conversation under a system message.
    pub(crate) fn new(system: Option<&str>) -> Self {
        let mut conversation = Self::default();
        conversation.set_system(system.unwrap_or_default());
        conversation
    }

    /// The messages in order.
    pub(crate) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Replaces the system message; an empty one removes it.
    pub(crate) fn set_system(&mut self, text: &str) {
        self.messages.retain(|m| m.role != "system");
        if !text.trim().is_empty() {
            self.messages.insert(0, Message::system(text));
        }
    }

    /// Adds what the user says.
    pub(crate) fn ask(&mut self, text: impl Into<String>) {
        self.messages.push(Message::user(text));
    }

    /// Adds what the model says, with the reasoning under the name that chat templates look for.
    pub(crate) fn answer(&mut self, text: impl Into<String>, reasoning: String) {
        let mut message = Message::assistant(text);
        if !reasoning.is_empty() {
            message.extra.insert("reasoning_content".into(), reasoning.into());
        }
        self.messages.push(message);
    }

    /// Takes the last message back if it is of this role.
    pub(crate) fn take_back(&mut self, role: &str) -> Option<Message> {
        self.messages.pop_if(|m| m.role == role)
    }

    /// Whether an answer is due.
    pub(crate) fn waits_for_answer(&self) -> bool {
        self.messages.last().is_some_and(|m| m.role == "user")
    }

    /// Forgets everything but the system message.
    pub(crate) fn clear(&mut self) {
        self.messages.retain(|m| m.role == "system");
    }

    /// Writes the conversation as JSON.
    pub(crate) fn save(&self, path: &Path, model: &str) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(&json!({ "model": model, "messages": self.messages }))?;
        let failed = |error| Failure::message(format!("cannot write {}: {error}", path.display()));
        std::fs::write(path, text + "\n").map_err(failed)
    }

    /// Reads a conversation that was saved.
    pub(crate) fn load(path: &Path) -> Result<Self, Failure> {
        let bad = |error: &dyn std::fmt::Display| Failure::message(format!("cannot load {}: {error}", path.display()));
        let text = std::fs::read(path).map_err(|error| bad(&error))?;
        let mut json: Value = serde_json::from_slice(&text).map_err(|error| bad(&error))?;
        let messages = serde_json::from_value(json["messages"].take());
        Ok(Self { messages: messages.map_err(|error| bad(&format!("expected a list `messages`: {error}")))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_message_stays_first_and_alone() {
        let mut talk = Conversation::new(Some("be brief"));
        talk.ask("hi");
        talk.set_system("be long");
        talk.answer("hello", String::new());
        let roles: Vec<_> = talk.messages().iter().map(|m| m.role.as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant"]);
        assert!(talk.take_back("user").is_none());
        assert!(talk.take_back("assistant").is_some());
        assert!(talk.waits_for_answer());
        talk.clear();
        talk.set_system(" ");
        assert!(talk.messages().is_empty());
    }
}
