//! `complete`: continue a text as it is.

use super::{print_json, standard_input, text_file};
use crate::arguments::{CaptureFlags, GenerationFlags, OpenFlags, PrefixFlags, StoreFlags, VerboseFlag};
use crate::failure::Failure;
use crate::generate::{Reasoning, Show, generate};
use crate::{logprobs, open, report};
use clap::Args;
use runtime::{GenerationConfig, OpenOptions, RuntimeError};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Continue a text as it is, without a template.
///
/// The prompt is used byte for byte, a final line break of a file included; special tokens written in it are
/// recognised. An absent catalogued or hf: model is pulled first.
#[derive(Args, Debug)]
#[command(override_usage = "turbospark complete [OPTIONS] <MODEL> --prompt <TEXT>\n       \
                            turbospark complete [OPTIONS] <MODEL> --prompt-file <FILE>\n       \
                            turbospark complete [OPTIONS] <MODEL> -")]
pub(crate) struct Complete {
    /// A catalogued name, a file or folder, hf:owner/repo[@revision][/file], or scripted:FILE
    #[arg(value_name = "MODEL")]
    first: Option<OsString>,
    /// Read the prompt from standard input
    #[arg(value_name = "-")]
    second: Option<OsString>,
    /// The same as MODEL
    #[arg(long, value_name = "MODEL")]
    model: Option<OsString>,
    /// The text to continue
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "prompt_file")]
    prompt: Option<String>,
    /// A file with the text to continue
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Refused: raw text has no turns to leave out
    #[arg(long, hide = true)]
    context_shift: bool,
    #[command(flatten)]
    generation: GenerationFlags,
    #[command(flatten)]
    capture: CaptureFlags,
    #[command(flatten)]
    prefixes: PrefixFlags,
    #[command(flatten)]
    open: OpenFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    verbose: VerboseFlag,
}

impl Complete {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let (model, from_stdin) = self.request()?;
        if self.context_shift {
            let why = "--context-shift leaves out the oldest turns of a conversation, and a raw text has none: without its \
                       beginning it would be another text; shorten it, raise --ctx, or use `run`";
            return Err(Failure::usage("complete", why));
        }
        let prompt = match (&self.prompt, &self.prompt_file) {
            _ if from_stdin => standard_input()?,
            (Some(text), _) => text.clone(),
            (None, Some(file)) => text_file(file)?,
            (None, None) => {
                return Err(Failure::usage("complete", "a prompt is needed: --prompt TEXT, --prompt-file FILE, or -"));
            }
        };
        if prompt.is_empty() {
            return Err(RuntimeError::EmptyPrompt.into());
        }
        let options =
            self.capture.prepare(OpenOptions { prefixes: self.prefixes.prefixes(), ..self.open.options() })?;
        let models = self.store.models(self.generation.quiet)?;
        let mut engine = open::engine(&models.locate(model)?, &options, self.verbose.verbose)?;
        let config = self.generation.config(&engine)?;
        let config = GenerationConfig { continues_prompt: true, ..config };
        if self.verbose.verbose {
            report::sampling(&config);
        }
        let prompt = engine.prompt_tokens(&prompt)?;
        let (json, quiet) = (self.generation.json, self.generation.quiet);
        let show = Show { stream: !json, reasoning: Reasoning::Plain, quiet, stats: self.generation.stats };
        let answer = generate(&mut engine, &prompt, &config, show)?;
        let model = model.to_string_lossy();
        self.capture.write(&model, engine.producer(), quiet)?;
        if json {
            print_json(&report::json(&model, &engine, &config, &answer))?;
        } else {
            logprobs::print(engine.tokenizer(), &answer.result);
        }
        report::incomplete(&config, &answer.result);
        if !quiet {
            report::statistics(&answer.result);
        }
        if self.generation.stats {
            report::experts(answer.experts.as_ref());
        }
        open::keep_prefixes(&mut engine, self.verbose.verbose);
        if answer.interrupted { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// The model, and whether `-` asks for standard input.
    fn request(&self) -> Result<(&OsStr, bool), Failure> {
        let usage = |message: String| Err(Failure::usage("complete", message));
        let (model, dash) = match (&self.model, &self.first, &self.second) {
            (Some(model), dash, None) => (model, dash),
            (Some(_), _, Some(_)) => return usage("the model is named twice: by --model and by position".to_owned()),
            (None, Some(model), dash) => (model, dash),
            (None, None, _) => return usage("a MODEL is needed".to_owned()),
        };
        match dash {
            None => Ok((model, false)),
            Some(dash) if dash == "-" && (self.prompt.is_some() || self.prompt_file.is_some()) => {
                usage("`-` cannot be used with --prompt or --prompt-file".to_owned())
            }
            Some(dash) if dash == "-" => Ok((model, true)),
            Some(_) if self.model.is_some() => usage("the model is named twice: by --model and by position".to_owned()),
            Some(other) => {
                usage(format!("{:?} is one word too many; a prompt goes into --prompt", other.to_string_lossy()))
            }
        }
    }
}
