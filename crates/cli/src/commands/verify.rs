//! `verify`: all bytes of a packed model against their hashes.

use super::pack::tell_cancelled;
use super::print_json;
use crate::arguments::StoreFlags;
use crate::failure::Failure;
use crate::progress::PackProgress;
use crate::{interrupt, output};
use clap::Args;
use indicatif::HumanBytes;
use pack::{Checked, Importance, PackOptions};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Check all bytes of a packed model (.gturbo) against its hashes; name what is damaged, and repair it if asked.
#[derive(Args, Debug)]
pub(crate) struct Verify {
    /// The .gturbo folder
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Make damaged chunks again from this model, the one that was packed
    #[arg(long, value_name = "SRC")]
    repair: Option<OsString>,
    /// The importance of columns it was packed with, for --repair
    #[arg(long, value_name = "FILE", requires = "repair")]
    imatrix: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

impl Verify {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let source = match &self.repair {
            Some(source) => Some(self.store.models(self.json)?.locate(source)?),
            None => None,
        };
        let listening = interrupt::listen();
        let importance = self.imatrix.as_deref().map(Importance::read).transpose()?;
        let options = PackOptions { importance, cancel: listening.flag(), ..PackOptions::default() };
        let mut progress = PackProgress::new("checking");
        let source = source.as_deref().map(Path::new);
        let checked = pack::verify(&self.folder, source, &options, &mut |event| progress.event(event));
        let checked = checked.inspect_err(tell_cancelled)?;
        drop(progress);
        match self.json {
            true => print_json(&json(&checked))?,
            false => checked.damaged.iter().try_for_each(|damage| output::write(&format!("{damage}\n")))?,
        }
        let folder = self.folder.display();
        match (checked.damaged.len(), checked.repaired) {
            (0, _) => output::note(&format!(
                "{folder}: {} in {} files, all as packed",
                HumanBytes(checked.bytes),
                checked.files
            )),
            (n, true) => output::note(&format!("{folder}: {n} damaged parts, all repaired")),
            (n, false) => {
                let remedy = if self.repair.is_none() { "; repair them with --repair SRC" } else { "" };
                return Err(Failure::message(format!("{folder}: {n} damaged parts{remedy}")));
            }
        }
        Ok(())
    }
}

fn json(checked: &Checked) -> Value {
    let damaged = checked.damaged.iter().map(
        |d| json!({ "file": d.file, "start": d.bytes.start, "end": d.bytes.end, "why": d.why, "tensors": d.tensors }),
    );
    json!({
        "files": checked.files,
        "bytes": checked.bytes,
        "damaged": damaged.collect::<Vec<_>>(),
        "repaired": checked.repaired,
    })
}
