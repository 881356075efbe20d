//! `turbospark devices`.

use crate::commands::print_json;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use runtime::{devices, mebibytes};
use serde_json::json;

/// List what models can run on here, and why something cannot be used
#[derive(Args, Debug)]
pub(crate) struct Devices {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

impl Devices {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let all = devices();
        if self.json {
            let entry = |d: &runtime::DeviceFacts| json!({ "name": d.name, "what": d.what, "memory": d.memory, "unusable": d.unusable });
            return print_json(&all.iter().map(entry).collect());
        }
        let width = all.iter().map(|d| d.name.len()).max().unwrap_or(0);
        let lines = all.iter().map(|d| {
            let memory = d.memory.map_or(String::new(), |bytes| format!(", {} of memory", mebibytes(bytes)));
            let why = d.unusable.as_ref().map_or(String::new(), |why| format!(": cannot be used: {why}"));
            format!("{:width$}  {}{memory}{why}\n", d.name, d.what)
        });
        output::write(&lines.collect::<String>())
    }
}
