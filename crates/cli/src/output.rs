//! Standard output and standard error: flushed writes, closed readers, colours.

use crate::environment;
use crate::failure::Failure;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdin, stdout};

/// Writes to standard output and flushes.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    write_bytes(text.as_bytes())
}

/// Writes bytes to standard output and flushes.
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::ClosedOutput,
        _ => Failure::message(format!("cannot write to standard output: {error}")),
    })
}

/// Writes a line to standard error; a reader that is gone does not matter.
pub(crate) fn note(line: &str) {
    let _ = writeln!(stderr().lock(), "{line}");
}

/// A warning on standard error.
pub(crate) fn warn(text: &str) {
    note(&format!("warning: {text}"));
}

/// Whether standard input, output and error are terminals.
pub(crate) fn stdin_is_terminal() -> bool {
    stdin().is_terminal()
}

/// See [`stdin_is_terminal`].
pub(crate) fn stdout_is_terminal() -> bool {
    stdout().is_terminal()
}

/// See [`stdin_is_terminal`].
pub(crate) fn stderr_is_terminal() -> bool {
    stderr().is_terminal()
}

/// Begins dimmed text.
pub(crate) const DIM: &str = "\x1b[2m";
/// Ends it.
pub(crate) const PLAIN: &str = "\x1b[0m";

/// Whether standard output may carry control codes.
pub(crate) fn stdout_has_colour() -> bool {
    stdout_is_terminal() && environment::colour_allowed()
}

/// A line on standard error, dimmed where that is possible.
pub(crate) fn aside(line: &str) {
    if stderr_is_terminal() && environment::colour_allowed() {
        note(&format!("{DIM}{line}{PLAIN}"));
    } else {
        note(line);
    }
}
