//! How a command can end badly, and with which exit code.

use crate::arguments;
use clap::error::ErrorKind;
use hub::HubError;
use pack::PackError;
use std::error::Error;
use std::process::ExitCode;

/// Why a command ended without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The call is malformed; exit code 2.
    Usage {
        /// The command.
        command: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// Ctrl-C; exit code 130.
    Interrupted,
    /// Nobody reads the output any more, which is no failure.
    ClosedOutput,
    /// Anything else; exit code 1.
    Failed(anyhow::Error),
}

impl Failure {
    /// A malformed call of `command`.
    pub(crate) fn usage(command: &'static str, message: impl Into<String>) -> Self {
        Self::Usage { command, message: message.into() }
    }

    /// A failure with a message of its own.
    pub(crate) fn message(message: impl Into<String>) -> Self {
        Self::Failed(anyhow::Error::msg(message.into()))
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = anyhow::Error::new(error);
        let pulling = matches!(error.downcast_ref(), Some(HubError::Cancelled));
        let packing = matches!(error.downcast_ref(), Some(PackError::Cancelled { .. }));
        if pulling || packing { Self::Interrupted } else { Self::Failed(error) }
    }
}

/// Prints what went wrong and chooses the exit code.
pub(crate) fn exit_code(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) | Err(Failure::ClosedOutput) => ExitCode::SUCCESS,
        Err(Failure::Interrupted) => ExitCode::from(130),
        Err(Failure::Usage { command, message }) => {
            let mut all = arguments::command();
            all.build();
            let mut none = clap::Command::new("turbospark");
            let command = all.find_subcommand_mut(command).unwrap_or(&mut none);
            command.error(ErrorKind::ValueValidation, message).exit()
        }
        Err(Failure::Failed(error)) => {
            crate::output::note(&format!("error: {}", one_line(&error)));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes in one line; causes that a message already tells are left out.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(|cause| cause.to_string()) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line.replace('\n', " ")
}
