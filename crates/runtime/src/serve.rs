//! Opens a model for many requests at once.

use crate::checkpoint::ModelFiles;
use crate::open::{
    Compiled, OpenOptions, OpenReport, UseExec, check_scripted, scripted_report, scripted_script, with_exec,
};
use crate::prefix_cache::PrefixCache;
use crate::scheduler::{self, Request, Scheduler, SchedulerOptions, Service};
use crate::session_pool::Sessions;
use crate::turn_stream::{TurnOptions, TurnSplitter, TurnStream};
use crate::{RuntimeError, scripted};
use plan::Exec;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokenizer::Tokenizer;

/// A model that answers many requests at once.
#[derive(Debug)]
pub struct Served {
    /// Takes requests.
    pub service: Service,
    /// The model's vocabulary.
    pub tokenizer: Arc<Tokenizer>,
    /// What was decided when the model was opened.
    pub report: OpenReport,
}

impl Served {
    /// Hands a request over; its events arrive with content, reasoning and tool calls told apart.
    ///
    /// # Errors
    /// Tools for a dialect without a call syntax; what else is wrong arrives as the stream's last item.
    pub fn turn(&self, request: Request, options: &TurnOptions) -> Result<TurnStream, RuntimeError> {
        let splitter = TurnSplitter::new(&self.tokenizer, &request.prompt, &request.config, options)?;
        Ok(TurnStream::new(self.service.submit(request), splitter))
    }
}

/// Events a reader may leave unread before the request is ended.
const UNREAD: usize = 4096;

/// Requests that may wait for each one that runs.
const WAITING: usize = 64;

/// Opens a model for [`OpenOptions::sequences`] at once; [`OpenOptions::prefill_chunk`] is the share of prompts in a step.
///
/// # Errors
/// As [`crate::Engine::open`].
pub fn open_service(model: impl AsRef<OsStr>, options: &OpenOptions) -> Result<Served, RuntimeError> {
    let started = Instant::now();
    let model = model.as_ref();
    scheduler::refuse_capture(options)?;
    if options.sessions != Sessions::default() {
        let reason = "a service runs its requests beside each other and parks none; leave session slots out";
        return Err(RuntimeError::Sessions { reason });
    }
    options.prefixes.check(options)?;
    let serve = |tokenizer: &Arc<Tokenizer>| AsService { tokenizer: Arc::clone(tokenizer), options: options.clone() };
    let (service, tokenizer, mut report) = match scripted_script(model) {
        Some(script) => {
            check_scripted(options)?;
            let (exec, context, tokenizer) = scripted::open(script, options.sequences)?;
            let tokenizer = Arc::new(tokenizer);
            // A scripted answer follows from how a sequence was fed, not from what, so no past serves another prompt.
            let prefixes = PrefixCache::default();
            let model = Compiled { exec, recorder: None, prefixes, report: scripted_report(context) };
            let (service, report) = serve(&tokenizer).with(model);
            (service, tokenizer, report)
        }
        None => {
            let files = ModelFiles::open_verified(Path::new(model), options.verify)?;
            let tokenizer = files.tokenizer()?;
            let (service, report) = with_exec(&files, options, serve(&tokenizer))?;
            (service, tokenizer, report)
        }
    };
    let service = service?;
    report.elapsed = started.elapsed();
    Ok(Served { service, tokenizer, report })
}

struct AsService {
    tokenizer: Arc<Tokenizer>,
    options: OpenOptions,
}

impl UseExec for AsService {
    type Output = Result<Service, RuntimeError>;

    fn with<E: Exec + Send + 'static>(self, model: Compiled<E>) -> (Self::Output, OpenReport) {
        let Compiled { exec, prefixes, mut report, .. } = model;
        let (tokenizer, model) = (self.tokenizer.vocab_size(), exec.vocab(plan::ProgramId(0)));
        if tokenizer > model {
            return (Err(RuntimeError::VocabularyMismatch { tokenizer, model }), report);
        }
        let context = report.context;
        let running = self.options.sequences.max(1);
        let prefill_share = self.options.prefill_chunk;
        let options = SchedulerOptions { context, running, prefill_share, waiting: WAITING * running };
        let (scheduler, note) = Scheduler::new(exec, self.tokenizer, options).keeping(prefixes);
        report.notes.extend(note);
        (Ok(Service::start(scheduler, UNREAD)), report)
    }
}
