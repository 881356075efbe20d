//! `rm`: remove a pulled model.

use crate::arguments::{HomeFlag, ModelArgument};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use hub::{HubError, ModelRef, catalogue_entry};

/// Remove a pulled model, by its name in `turbospark list` or the hf: reference it was pulled by.
#[derive(Args, Debug)]
pub(crate) struct Rm {
    #[command(flatten)]
    model: ModelArgument,
    #[command(flatten)]
    home: HomeFlag,
}

impl Rm {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let store = self.home.store()?;
        let alias = match ModelRef::parse(self.model.name()?)? {
            ModelRef::Alias(alias) => alias,
            ModelRef::Hf(reference) => {
                let absent = || HubError::NotInstalled { alias: reference.to_string(), models: store.models_dir() };
                store.find_hf(&reference).ok_or_else(absent)?.alias
            }
            ModelRef::Path(path) => {
                return Err(Failure::message(format!(
                    "{} is a path; rm removes pulled models by name",
                    path.display()
                )));
            }
        };
        store.remove(&alias).map_err(|error| match error {
            HubError::UnknownAlias { alias, .. } if catalogue_entry(&alias).is_ok() => {
                Failure::message(format!("{alias} is not pulled; there is nothing to remove"))
            }
            other => other.into(),
        })?;
        output::note(&format!("removed {alias}"));
        Ok(())
    }
}
