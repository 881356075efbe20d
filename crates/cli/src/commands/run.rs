//! `run`: chat with a model.

use super::{print_json, standard_input, text_argument};
use crate::arguments::{CaptureFlags, GenerationFlags, OpenFlags, PrefixFlags, SessionFlags, StoreFlags, VerboseFlag};
use crate::chat::{Conversation, Session};
use crate::failure::Failure;
use crate::generate::{Reasoning, Show, generate};
use crate::models::{DEFAULT_MODEL, Models};
use crate::{logprobs, open, output, report};
use clap::Args;
use hub::HubError;
use runtime::{Engine, GenerationConfig, OpenOptions, RuntimeError};
use std::ffi::{OsStr, OsString};

/// Chat with a model, with its template.
///
/// The first word is the model and the others are the prompt: turbospark run smollm2 "Why is the sky blue?".
/// A first word that holds a space is a prompt for the default model, smollm2: turbospark run "Why is the sky
/// blue?". With --model, every word is the prompt. Without a prompt a session begins when standard input is a
/// terminal; otherwise, and with `-`, the prompt is read from standard input. No tools are offered; should the
/// model call one all the same, the call is printed as it was written.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// A catalogued name, a file or folder, hf:owner/repo[@revision][/file], or scripted:FILE [default: smollm2]
    #[arg(value_name = "MODEL")]
    first: Option<OsString>,
    /// The prompt, or - for standard input
    #[arg(value_name = "PROMPT")]
    rest: Vec<OsString>,
    /// The same as MODEL
    #[arg(long, value_name = "MODEL")]
    model: Option<OsString>,
    /// The system message
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    system: Option<String>,
    /// Leave out the model's reasoning, as its dialect marks it; otherwise it is dimmed on a terminal
    #[arg(long)]
    hide_reasoning: bool,
    /// Begin a session also where standard input is not a terminal
    #[arg(long)]
    interactive: bool,
    #[command(flatten)]
    sessions: SessionFlags,
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

/// Where the prompt comes from.
#[derive(Debug, PartialEq, Eq)]
enum Input {
    Session,
    Stdin,
    Prompt(String),
}

/// Whether a word can only be a prompt.
fn is_prose(word: &str) -> bool {
    word.trim().is_empty() || word.trim().contains(char::is_whitespace)
}

impl Run {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let (sessions, prefixes) = (self.sessions.sessions(), self.prefixes.prefixes());
        let options = OpenOptions { sessions, prefixes, ..self.open.options() };
        let options = self.capture.prepare(options)?;
        let models = self.store.models(self.generation.quiet)?;
        let (model, input) = self.request(&models)?;
        let found = models.find(&model).map_err(|failure| self.hint(failure))?;
        let prompt = match input {
            Input::Session => None,
            Input::Stdin => Some(standard_input()?),
            Input::Prompt(text) => Some(text),
        };
        if prompt.as_deref().is_some_and(|text| text.trim().is_empty()) {
            return Err(RuntimeError::EmptyPrompt.into());
        }
        let engine = open::engine(&models.fetch(found)?, &options, self.verbose.verbose)?;
        if engine.tokenizer().chat_template().is_none() {
            return Err(RuntimeError::NoChatTemplate.into());
        }
        let config = self.generation.config(&engine)?;
        if self.verbose.verbose {
            report::sampling(&config);
        }
        let model = model.to_string_lossy().into_owned();
        match prompt {
            Some(prompt) => self.answer(engine, &model, &config, prompt),
            None => {
                let conversation = Conversation::new(self.system.as_deref());
                let name = model.clone();
                let shift = self.sessions.shift();
                let session = Session { engine, model, config, show: self.show(), conversation, shift };
                let mut engine = session.talk(models.store.home())?;
                let written = self.capture.write(&name, engine.producer(), self.generation.quiet);
                open::keep_prefixes(&mut engine, self.verbose.verbose);
                written
            }
        }
    }

    /// Which word is the model and where the prompt comes from.
    fn request(&self, models: &Models) -> Result<(OsString, Input), Failure> {
        let usage = |message: String| Err(Failure::usage("run", message));
        let words: Vec<&OsStr> = self.first.iter().chain(&self.rest).map(OsString::as_os_str).collect();
        let shown = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
        let (model, words): (&OsStr, _) = match (&self.model, words.as_slice()) {
            (Some(_), [first, ..]) if models.names_a_model(first) => {
                return usage(format!("the model is named twice: by --model and by the word {shown:?}"));
            }
            (Some(model), words) => (model, words),
            (None, []) => (DEFAULT_MODEL.as_ref(), &[][..]),
            (None, words @ [first]) if *first == "-" => (DEFAULT_MODEL.as_ref(), words),
            (None, words @ [first, ..]) if !models.names_a_model(first) && is_prose(&shown) => {
                (DEFAULT_MODEL.as_ref(), words)
            }
            (None, [first, rest @ ..]) => (first, rest),
        };
        let input = match words {
            [] if self.interactive || output::stdin_is_terminal() => Input::Session,
            [] => Input::Stdin,
            _ if self.interactive => {
                return usage("--interactive begins a session without a prompt; leave the prompt out".to_owned());
            }
            [word] if *word == "-" => Input::Stdin,
            words => Input::Prompt(text_argument(&words.join(OsStr::new(" ")))?),
        };
        if input == Input::Session && self.generation.json {
            return usage("--json needs a prompt; a session has no single result".to_owned());
        }
        Ok((model.to_owned(), input))
    }

    /// Who types a prompt in one word should hear how.
    fn hint(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Failed(error)
                if self.model.is_none()
                    && matches!(
                        error.downcast_ref(),
                        Some(HubError::UnknownAlias { .. } | HubError::BadReference { .. })
                    ) =>
            {
                Failure::message(format!("{error}. A prompt comes after its model: turbospark run smollm2 \"…\""))
            }
            other => other,
        }
    }

    fn show(&self) -> Show {
        let reasoning = if self.hide_reasoning { Reasoning::Hidden } else { Reasoning::Dimmed };
        Show { stream: !self.generation.json, reasoning, quiet: self.generation.quiet, stats: self.generation.stats }
    }

    fn answer(
        &self,
        mut engine: Engine,
        model: &str,
        config: &GenerationConfig,
        prompt: String,
    ) -> Result<(), Failure> {
        let mut conversation = Conversation::new(self.system.as_deref());
        conversation.ask(prompt);
        let prompt = match self.sessions.shift() {
            Some(mut shift) => {
                engine.shifted_chat_tokens(&mut shift, conversation.messages(), config.max_new_tokens)?.prompt
            }
            None => engine.chat_tokens(conversation.messages())?,
        };
        let mut answer = generate(&mut engine, &prompt, config, self.show())?;
        self.capture.write(model, engine.producer(), self.generation.quiet)?;
        if self.generation.json {
            answer.result.text = std::mem::take(&mut answer.shown);
            print_json(&report::json(model, &engine, config, &answer))?;
        } else {
            logprobs::print(engine.tokenizer(), &answer.result);
        }
        report::incomplete(config, &answer.result);
        if !self.generation.quiet {
            report::statistics(&answer.result);
        }
        if self.generation.stats {
            report::experts(answer.experts.as_ref());
        }
        open::keep_prefixes(&mut engine, self.verbose.verbose);
        if answer.interrupted { Err(Failure::Interrupted) } else { Ok(()) }
    }
}
