//! The line editor of a session: history, continued lines, pasted blocks.

use crate::failure::Failure;
use crate::output;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Helper};
use std::path::{Path, PathBuf};

/// What came from the keyboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A line, or several pasted or continued ones.
    Line(String),
    /// Ctrl-C while editing.
    Interrupted,
    /// Ctrl-D, or the end of the input.
    End,
}

/// The editor and the file of its history.
pub(crate) struct Editor {
    editor: rustyline::Editor<Continues, FileHistory>,
    history: PathBuf,
    keeps_history: bool,
}

/// Most lines kept.
const HISTORY_LINES: usize = 2000;

impl Editor {
    /// An editor whose history is kept under `home`, where that can be written.
    pub(crate) fn new(home: &Path) -> Result<Self, Failure> {
        let config = Config::builder().max_history_size(HISTORY_LINES)?.auto_add_history(false).build();
        let mut editor = rustyline::Editor::with_config(config)?;
        editor.set_helper(Some(Continues));
        let history = home.join("history");
        let keeps_history = output::stdin_is_terminal();
        if keeps_history && history.exists() {
            // A damaged history is no reason not to talk.
            let _ = editor.load_history(&history);
        }
        Ok(Self { editor, history, keeps_history })
    }

    /// Waits for the next line.
    pub(crate) fn read(&mut self) -> Result<Input, Failure> {
        match self.editor.readline("> ") {
            Ok(line) => {
                self.remember(&line);
                Ok(Input::Line(line.replace("\\\n", "\n")))
            }
            Err(ReadlineError::Interrupted) => Ok(Input::Interrupted),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(error) => Err(error.into()),
        }
    }

    fn remember(&mut self, line: &str) {
        if !self.keeps_history || line.trim().is_empty() {
            return;
        }
        let written = self.editor.add_history_entry(line).and_then(|_| {
            if let Some(folder) = self.history.parent() {
                std::fs::create_dir_all(folder)?;
            }
            self.editor.save_history(&self.history)
        });
        if let Err(error) = written {
            output::warn(&format!("the history is not kept: cannot write {}: {error}", self.history.display()));
            self.keeps_history = false;
        }
    }
}

/// Goes on reading after a line that ends in a backslash.
struct Continues;

impl Validator for Continues {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        let goes_on = context.input().ends_with('\\');
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Continues {
    type Candidate = String;
}

impl Hinter for Continues {
    type Hint = String;
}

impl Highlighter for Continues {}

impl Helper for Continues {}
