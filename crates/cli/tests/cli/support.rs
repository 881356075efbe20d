//! Runs the program in a folder of its own, without the network and without the user's settings.

use assert_cmd::Command;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

/// A folder with a home of its own.
pub(crate) struct Desk {
    folder: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The program, ready for arguments; its standard input is empty and no terminal.
    pub(crate) fn turbospark(&self) -> Command {
        let mut command = Command::cargo_bin("turbospark").expect("the program was built");
        self.settle(|name, value| {
            command.env(name, value);
        });
        command.current_dir(self.path()).env_remove("HF_TOKEN");
        command
    }

    /// The same, to be watched while it runs.
    pub(crate) fn spawnable(&self) -> std::process::Command {
        self.spawnable_as(assert_cmd::cargo::cargo_bin!("turbospark"))
    }

    /// Another program that will run it, in the same surroundings.
    pub(crate) fn spawnable_as(&self, program: impl AsRef<OsStr>) -> std::process::Command {
        let mut command = std::process::Command::new(program);
        self.settle(|name, value| {
            command.env(name, value);
        });
        command.current_dir(self.path());
        command
    }

    fn settle(&self, mut set: impl FnMut(&str, &OsStr)) {
        set("TURBOSPARK_HOME", self.path().join("home").as_os_str());
        set("HF_HUB_CACHE", self.path().join("no-cache").as_os_str());
        // Nothing answers here, should a test ever try to reach the network.
        for proxy in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"] {
            set(proxy, OsStr::new("http://127.0.0.1:9"));
        }
    }

    pub(crate) fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Outcome {
        Outcome::of(self.turbospark().args(arguments).output().expect("it runs"))
    }

    pub(crate) fn pipe<A: AsRef<OsStr>>(&self, arguments: &[A], input: impl Into<Vec<u8>>) -> Outcome {
        Outcome::of(self.turbospark().args(arguments).write_stdin(input).output().expect("it runs"))
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    }

    /// A scripted model: the name to give to the program.
    pub(crate) fn script(&self, json: &str) -> String {
        self.write("script.json", json);
        "scripted:script.json".to_owned()
    }
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The output of a run that must have succeeded.
    pub(crate) fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// Standard output as one JSON value.
    pub(crate) fn json(self) -> serde_json::Value {
        let out = self.success();
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
    }

    /// Asserts a failure with one line on standard error that holds these texts, and nothing on standard output.
    pub(crate) fn fails(self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        for text in texts {
            assert!(self.err.contains(text), "{text:?} is not in {self:?}");
        }
        assert!(self.err.contains("error: "), "{self:?}");
        for trace in ["panicked", "backtrace", "\u{1b}"] {
            assert!(!self.err.contains(trace), "{self:?}");
        }
        if code == 1 {
            let errors: Vec<_> = self.err.lines().skip_while(|line| !line.starts_with("error: ")).collect();
            assert_eq!(errors.len(), 1, "one line: {self:?}");
        }
    }
}
