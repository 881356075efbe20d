//! `path`: where a pulled model lies.

use crate::arguments::{HomeFlag, ModelArgument};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use hub::ModelRef;

/// Print the file or folder of a pulled model.
#[derive(Args, Debug)]
pub(crate) struct PathOf {
    #[command(flatten)]
    model: ModelArgument,
    #[command(flatten)]
    home: HomeFlag,
}

impl PathOf {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let path = self.home.store()?.resolve(&ModelRef::parse(self.model.name()?)?)?;
        let mut bytes = path.into_os_string().into_encoded_bytes();
        bytes.push(b'\n');
        output::write_bytes(&bytes)
    }
}
