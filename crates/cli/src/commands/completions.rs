//! `completions`: a script for a shell.

use crate::failure::Failure;
use crate::{arguments, output};
use clap::Args;
use clap_complete::Shell;

/// Print a completion script for a shell.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut arguments::command(), "turbospark", &mut script);
        output::write_bytes(&script)
    }
}
