//! The lines of a session that begin with a slash.

use std::path::PathBuf;

/// What a line of a session means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Nothing.
    Empty,
    /// A message to the model.
    Message(String),
    /// A command to the program.
    Command(Command),
    /// A slash and something unknown, or a command without what it needs.
    Mistake(String),
}

/// A command of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Save(PathBuf),
    Load(PathBuf),
    System(String),
    Regenerate,
    Clear,
    Quit,
}

/// What `/help` prints.
pub(crate) const HELP: &str = "\
/help            this list
/save FILE       write the conversation as JSON
/load FILE       go on with a saved conversation
/system TEXT     set the system message; without TEXT, remove it
/regenerate      answer the last message again
/clear           forget the conversation, keep the system message
/quit            leave (as does Ctrl-D)
A line that ends in \\ goes on in the next one; pasted lines stay together.
A message that begins with a slash is written with two. Ctrl-C stops an answer.";

/// Reads a line.
pub(crate) fn parse(line: &str) -> Line {
    let text = line.trim();
    if text.is_empty() {
        return Line::Empty;
    }
    let Some(command) = text.strip_prefix('/') else { return Line::Message(text.to_owned()) };
    if command.starts_with('/') {
        return Line::Message(command.to_owned());
    }
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim();
    let file = |command: fn(PathBuf) -> Command| match rest {
        "" => Line::Mistake(format!("/{name} needs a FILE")),
        rest => Line::Command(command(rest.into())),
    };
    let alone = |command: Command| match rest {
        "" => Line::Command(command),
        _ => Line::Mistake(format!("/{name} takes nothing after it")),
    };
    match name {
        "help" | "?" => alone(Command::Help),
        "save" => file(Command::Save),
        "load" => file(Command::Load),
        "system" => Line::Command(Command::System(rest.to_owned())),
        "regenerate" => alone(Command::Regenerate),
        "clear" => alone(Command::Clear),
        "quit" | "exit" => alone(Command::Quit),
        _ => Line::Mistake(format!("/{name} is no command; /help lists them, and // begins a message with a slash")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let cases = [
            ("  ", Line::Empty),
            (" hi /there ", Line::Message("hi /there".into())),
            ("//etc is a folder", Line::Message("/etc is a folder".into())),
            ("/save a b.json", Line::Command(Command::Save("a b.json".into()))),
            ("/load", Line::Mistake("/load needs a FILE".into())),
            ("/system be\nbrief", Line::Command(Command::System("be\nbrief".into()))),
            ("/system", Line::Command(Command::System(String::new()))),
            ("/quit now", Line::Mistake("/quit takes nothing after it".into())),
            ("/exit", Line::Command(Command::Quit)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text:?}");
        }
        assert!(matches!(parse("/dance"), Line::Mistake(_)));
    }
}
