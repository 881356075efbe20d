//! What an answer must follow: a schema, an expression or a grammar.

use crate::failure::Failure;
use clap::Args;
use grammar::{Constraint, GrammarError, Source, Vocabulary};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizer::Tokenizer;

/// One of them at most.
#[derive(Args, Clone, Debug)]
#[group(multiple = false)]
pub(crate) struct ConstraintFlags {
    /// The answer is JSON that this schema allows; what cannot be enforced is refused by its place
    ///
    /// Properties come in declared order, with ", " and ": " as separators. Reasoning that the prompt opens comes first, free. An
    /// answer that --max-new cuts off is not complete, and a warning says so.
    #[arg(long, value_name = "FILE")]
    json_schema: Option<PathBuf>,
    /// The answer follows this grammar: Lark (begins at `start`) or GBNF (at `root`), by the extension .lark or .gbnf, else by `::=`
    #[arg(long, value_name = "FILE")]
    grammar: Option<PathBuf>,
    /// The whole answer matches this regular expression
    #[arg(long, value_name = "RE", allow_hyphen_values = true)]
    regex: Option<String>,
}

impl ConstraintFlags {
    /// The constraint over the tokens of a vocabulary.
    pub(crate) fn compile(&self, tokenizer: &Arc<Tokenizer>) -> Result<Option<Constraint>, Failure> {
        let read = |file: &Path| {
            std::fs::read_to_string(file)
                .map_err(|error| Failure::message(format!("cannot read {}: {error}", file.display())))
        };
        let (file, source) = match (&self.json_schema, &self.grammar, &self.regex) {
            (Some(file), _, _) => (Some(file), Source::JsonSchema(read(file)?)),
            (_, Some(file), _) => {
                (Some(file), Source::grammar(read(file)?, file).map_err(|error| named(Some(file), error))?)
            }
            (_, _, Some(expression)) => (None, Source::Regex(expression.clone())),
            (None, None, None) => return Ok(None),
        };
        let compiled = Vocabulary::new(Arc::clone(tokenizer)).and_then(|vocabulary| vocabulary.compile(&source));
        compiled.map(Some).map_err(|error| named(file, error))
    }
}

/// The error with the file that it is about.
fn named(file: Option<&PathBuf>, error: GrammarError) -> Failure {
    match file {
        Some(file) => Failure::message(format!("{}: {error}", file.display())),
        None => error.into(),
    }
}
