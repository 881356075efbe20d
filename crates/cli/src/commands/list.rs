//! `list`: what is here, and what can be pulled.

use crate::arguments::HomeFlag;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use hub::CATALOGUE;
use indicatif::HumanBytes;

/// List pulled models and those that can be pulled.
#[derive(Args, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    home: HomeFlag,
}

impl List {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let installed = self.home.store()?.list();
        let mut rows = vec![["NAME", "SIZE", "LICENCE", "WHERE"].map(str::to_owned)];
        for model in &installed {
            let size = HumanBytes(model.bytes).to_string();
            rows.push([model.alias.clone(), size, model.licence.clone(), model.path.display().to_string()]);
        }
        for entry in CATALOGUE.iter().filter(|e| installed.iter().all(|m| m.alias != e.alias)) {
            let size = HumanBytes(entry.file_bytes).to_string();
            let absent = format!("not pulled: {}", entry.description);
            rows.push([entry.alias.to_owned(), size, entry.licence.to_owned(), absent]);
        }
        let widths: Vec<usize> =
            (0..3).map(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
        let mut text = String::new();
        for [name, size, licence, place] in rows {
            let (a, b, c) = (widths[0], widths[1], widths[2]);
            text += &format!("{name:a$}  {size:>b$}  {licence:c$}  {place}\n");
        }
        output::write(&text)
    }
}
