//! `pull`: fetch a model.

use crate::arguments::{ModelArgument, StoreFlags};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use hub::{ModelRef, catalogue_entry};

/// Fetch a model: a catalogued name, or hf:owner/repo[@revision][/file].
#[derive(Args, Debug)]
pub(crate) struct Pull {
    #[command(flatten)]
    model: ModelArgument,
    #[command(flatten)]
    store: StoreFlags,
}

impl Pull {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let models = self.store.models(false)?;
        let name = self.model.name()?;
        match ModelRef::parse(name)? {
            ModelRef::Path(path) => Err(Failure::message(format!(
                "{} is a path, and there is nothing to fetch; use it as it is",
                path.display()
            ))),
            ModelRef::Hf(reference) => models.pull_hf(&reference).map(drop),
            ModelRef::Alias(alias) => match (catalogue_entry(&alias), models.store.find(&alias)) {
                (Ok(entry), Some(there)) if there.sha256.as_deref() == Some(entry.sha256) => {
                    output::note(&format!("{alias} is already at {}", there.path.display()));
                    Ok(())
                }
                (entry, _) => models.pull_entry(entry?).map(drop),
            },
        }
    }
}
