//! The interactive session.

use super::Conversation;
use super::command::{self, Command, HELP, Line};
use super::editor::{Editor, Input};
use crate::failure::{Failure, one_line};
use crate::generate::{Show, generate};
use crate::{logprobs, output, report};
use foundation::TokenId;
use runtime::{ContextShift, Engine, GenerationConfig, RuntimeError, StopReason};
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
    /// What of it is left out; `None`: a conversation that is too long is refused.
    pub(crate) shift: Option<ContextShift>,
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
                self.begin_again();
                output::aside(&format!("{} messages loaded", self.conversation.messages().len()));
            }
            Command::System(text) => self.conversation.set_system(&text),
            Command::Regenerate => {
                self.conversation.take_back("assistant");
                if !self.conversation.waits_for_answer() {
                    return Err(Failure::message("there is no message to answer again"));
                }
                self.next_seed();
                self.answer()?;
            }
            Command::Clear => {
                self.conversation.clear();
                self.begin_again();
            }
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
        let prompt = self.prompt()?;
        let answer = generate(&mut self.engine, &prompt, &self.config, self.show).map_err(explain)?;
        logprobs::print(self.engine.tokenizer(), &answer.result);
        report::incomplete(&self.config, &answer.result);
        if !self.show.quiet {
            report::statistics(&answer.result);
            let full = answer.result.kv_position + 1 >= self.engine.report().context;
            if full && answer.result.reason == StopReason::MaxTokens {
                let remedy = match self.shift {
                    Some(_) => "the next turn leaves older ones out",
                    None => "/clear begins a new conversation",
                };
                output::warn(&format!("the context is full; {remedy}"));
            }
        }
        if self.show.stats {
            report::experts(answer.experts.as_ref());
        }
        self.conversation.answer(answer.content, answer.reasoning);
        Ok(())
    }

    /// The conversation as tokens, without its oldest turns if they may be left out and must be.
    fn prompt(&mut self) -> Result<Vec<TokenId>, Failure> {
        let messages = self.conversation.messages();
        let Some(shift) = &mut self.shift else { return Ok(self.engine.chat_tokens(messages)?) };
        let shifted = self.engine.shifted_chat_tokens(shift, messages, self.config.max_new_tokens)?;
        if shifted.newly_left_out > 0 && !self.show.quiet {
            output::aside(&format!("[the first {} turns are left out to make room]", shift.left_out()));
        }
        Ok(shifted.prompt)
    }

    /// Nothing is left out of another conversation.
    fn begin_again(&mut self) {
        self.shift = self.shift.map(|_| ContextShift::default());
    }

    /// The same seed would give the same answer again.
    fn next_seed(&mut self) {
        let next = self.config.shaping.options().seed.wrapping_add(1);
        self.config.shaping = self.config.shaping.clone().with_seed(next);
    }
}

/// In a session the remedy for a full context is another one than on the command line.
fn explain(failure: Failure) -> Failure {
    let Failure::Failed(error) = failure else { return failure };
    match error.downcast_ref() {
        Some(RuntimeError::ContextOverflow { .. } | RuntimeError::PromptTooLong { .. }) => {
            Failure::Failed(error.context("the conversation is too long; /clear begins a new one, and --context-shift leaves the oldest turns out"))
        }
        _ => Failure::Failed(error),
    }
}
