//! `tokenize`: the tokens of a text.

use super::{print_json, text_argument};
use crate::arguments::StoreFlags;
use crate::failure::Failure;
use crate::{models, output};
use clap::Args;
use runtime::{ModelFiles, byte_tokenizer};
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use tokenizer::Encode;

/// Print the tokens of a text as `complete` would feed them: special tokens recognised, BOS where it belongs.
///
/// One line a token: its id, a tab, its text in quotes.
#[derive(Args, Debug)]
pub(crate) struct Tokenize {
    /// A catalogued name, a file or folder, hf:owner/repo[@revision][/file], or scripted:FILE
    #[arg(value_name = "MODEL")]
    first: Option<OsString>,
    /// The text
    #[arg(value_name = "TEXT")]
    second: Option<OsString>,
    /// The same as MODEL
    #[arg(long, value_name = "MODEL")]
    model: Option<OsString>,
    /// Print one JSON object with `ids` and `pieces`
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

impl Tokenize {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let (model, text) = match (&self.model, &self.first, &self.second) {
            (Some(model), Some(text), None) | (None, Some(model), Some(text)) => (model, text),
            (Some(_), Some(_), Some(_)) => {
                return Err(Failure::usage("tokenize", "the model is named twice: by --model and by position"));
            }
            _ => return Err(Failure::usage("tokenize", "a MODEL and a TEXT are needed")),
        };
        let text = text_argument(text)?;
        let path = self.store.models(self.json)?.locate(model)?;
        let tokenizer = match models::is_scripted(&path) {
            true => Arc::new(byte_tokenizer()?),
            false => ModelFiles::open(Path::new(&path))?.tokenizer()?,
        };
        let ids = tokenizer.encode(&text, Encode { special: true, bos: true })?;
        let pieces: Vec<String> = ids.iter().map(|id| tokenizer.piece(*id).unwrap_or_default()).collect();
        if self.json {
            return print_json(&json!({ "ids": ids.iter().map(|id| id.0).collect::<Vec<_>>(), "pieces": pieces }));
        }
        let lines: String = ids.iter().zip(&pieces).map(|(id, piece)| format!("{id}\t{piece:?}\n")).collect();
        output::write(&lines)
    }
}
