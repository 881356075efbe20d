//! The interactive session.

use super::Conversation;
use super::command::{self, Command, HELP, Line};
use super::editor::{Editor, Input};
use crate::failure::{Failure, one_line};
use crate::generate::{Show, generate};
use crate::{output, report};
use runtime::{Engine, GenerationConfig, RuntimeError, StopReason};
use selection::{Shaping, ShapingOptions};
use std::ops::ControlFlow;
use std::path::Path;

/// A conversation at the terminal.
pub(crate) struct Session {
    /// The model.
    pub(crate) engine: Engine,
    /// What it is called.
    pub(crate) model: String,
    /// How it answers.
    pub(crate) config: GenerationConfig,
    /// How answers are shown.
    pub(crate) show: Show,
    /// What has been said.
    pub(crate) conversation: Conversation,
}

impl Session {
    /// Talks until the user leaves, and gives the model back.
    pub(crate) fn talk(mut self, home: &Path) -> Result<Engine, Failure> {
        let mut editor = Editor::new(home)?;
        if !self.show.quiet {
            let context = self.engine.report().context;
            output::aside(&format!("{}, context {context}; /help lists commands, Ctrl-D leaves", self.model));
        }
        loop {
            let line = match editor.read()? {
                Input::Line(line) => line,
                Input::Interrupted => {
                    output::aside("Ctrl-D or /quit leaves");
                    continue;
                }
                Input::End => return Ok(self.engine),
            };
            let outcome = match command::parse(&line) {
                Line::Empty => continue,
                Line::Message(text) => {
                    self.conversation.ask(text);
                    self.answer()
                }
                Line::Command(command) => match self.execute(command) {
                    Ok(ControlFlow::Break(())) => return Ok(self.engine),
                    Ok(ControlFlow::Continue(())) => Ok(()),
                    Err(failure) => Err(failure),
                },
                Line::Mistake(message) => Err(Failure::message(message)),
            };
            match outcome {
                Err(Failure::Failed(error)) => output::note(&format!("error: {}", one_line(&error))),
                other => other?,
            }
        }
    }

    fn execute(&mut self, command: Command) -> Result<ControlFlow<()>, Failure> {
        match command {
            Command::Help => output::note(HELP),
            Command::Save(path) => {
                self.conversation.save(&path, &self.model)?;
                output::aside(&format!("saved to {}", path.display()));
            }
            Command::Load(path) => {
                self.conversation = Conversation::load(&path)?;
                output::aside(&format!("{} messages loaded", self.conversation.messages().len()));
            }
            Command::System(text) => self.conversation.set_system(&text),
            Command::Regenerate => {
                self.conversation.take_back("assistant");
                if !self.conversation.waits_for_answer() {
                    return Err(Failure::message("there is no message to answer again"));
                }
                self.next_seed()?;
                self.answer()?;
            }
            Command::Clear => self.conversation.clear(),
            Command::Quit => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Answers the last message; if that fails, the message is taken back.
    fn answer(&mut self) -> Result<(), Failure> {
        let answered = self.try_answer();
        if answered.is_err() {
            self.conversation.take_back("user");
        }
        answered
    }

    fn try_answer(&mut self) -> Result<(), Failure> {
        let prompt = self.engine.chat_tokens(self.conversation.messages())?;
        let answer = generate(&mut self.engine, &prompt, &self.config, self.show).map_err(explain)?;
        if !self.show.quiet {
            report::statistics(&answer.result);
            let full = answer.result.kv_position + 1 >= self.engine.report().context;
            if full && answer.result.reason == StopReason::MaxTokens {
                output::warn("the context is full; /clear begins a new conversation");
            }
        }
        self.conversation.answer(answer.content, answer.reasoning);
        Ok(())
    }

    /// The same seed would give the same answer again.
    fn next_seed(&mut self) -> Result<(), Failure> {
        let options = *self.config.shaping.options();
        self.config.shaping = Shaping::new(ShapingOptions { seed: options.seed.wrapping_add(1), ..options })?;
        Ok(())
    }
}

/// In a session the remedy for a full context is another one than on the command line.
fn explain(failure: Failure) -> Failure {
    let Failure::Failed(error) = failure else { return failure };
    match error.downcast_ref() {
        Some(RuntimeError::ContextOverflow { .. } | RuntimeError::PromptTooLong { .. }) => {
            Failure::Failed(error.context("the conversation is too long; /clear begins a new one"))
        }
        _ => Failure::Failed(error),
    }
}
