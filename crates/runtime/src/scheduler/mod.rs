//! Continuous batching: many requests over one device, step by step.
//!
//! A step is one run: the next token of every sequence that answers, and a bounded share of the prompts that are still
//! being read. Who runs beside whom, in which chunks, and whether a request was put aside in between changes no bit of
//! its answer: a token's random number follows from its position, and a row's logits from the tokens before it.
//!
//! Requests begin in the order they came, when there is room for prompt and answer in the caches of all layers: what
//! running sequences need for going on counts, what is kept for later prompts does not, since that makes way first.
//! Answers are not paid for in advance: when memory runs out after all, the newest request gives its own back and begins
//! again later, from what is left of its prompt and answer among the kept states. This module knows neither threads nor
//! time: [`Service`] drives it.

mod job;
mod only_one;
mod request;
mod service;

use crate::answer::{Answer, admit};
use crate::config::GenerationConfig;
use crate::prefix_cache::{PrefixCache, PrefixStatus, marks};
use crate::{RuntimeError, StopReason};
use foundation::{LogitValue, TokenId};
use job::Job;
use plan::{Exec, ExecError, Feed, KV_BLOCK, ProgramId, Room, Saved, SequenceId, Sequences, Want};
use request::{Ids, Outlet, failure};
use std::collections::VecDeque;
use std::sync::Arc;
use tokenizer::Tokenizer;

pub(crate) use only_one::refuse_capture;
pub use request::{Delivery, Event, Request, RequestId};
pub use service::{Service, ServiceStatus, Stream};

const TRUNK: ProgramId = ProgramId(0);

/// How a scheduler shares the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// Most positions of one sequence, prompt and answer together.
    pub context: usize,
    /// Most sequences at once; never more than the device has room for rows with logits.
    pub running: usize,
    /// Most prompt tokens of one step, over all sequences: the bound of how long answers wait for prompts.
    pub prefill_share: usize,
    /// Most requests that wait; 0: none, whatever does not run at once is refused.
    pub waiting: usize,
}

/// Many requests over one device.
pub struct Scheduler<E> {
    sequences: Sequences<E>,
    tokenizer: Arc<Tokenizer>,
    options: SchedulerOptions,
    ids: Ids,
    /// In the order they came.
    waiting: VecDeque<Job>,
    /// In the order they came.
    running: Vec<Running>,
    prefixes: PrefixCache,
    logits: Vec<LogitValue>,
}

/// A request with a sequence.
struct Running {
    job: Job,
    sequence: SequenceId,
    /// How many of the job's tokens the sequence has seen.
    fed: usize,
    /// Where the state is kept while the prompt is read, ascending.
    stops: Vec<usize>,
}

impl Running {
    fn left(&self) -> usize {
        self.job.tokens.len() - self.fed
    }

    /// Rows until the end, or until a state is to be kept.
    fn next(&self) -> usize {
        self.stops.first().map_or(self.left(), |stop| stop - self.fed)
    }

    /// The tokens that the sequence has seen.
    fn past(&self) -> &[TokenId] {
        &self.job.tokens[..self.fed]
    }
}

/// What one sequence gets of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    /// Its place among the running.
    at: usize,
    rows: usize,
    want: Want,
}

impl<E: Exec> Scheduler<E> {
    /// A scheduler over program 0 of `exec`.
    pub fn new(exec: E, tokenizer: Arc<Tokenizer>, options: SchedulerOptions) -> Self {
        let limits = *exec.limits();
        let running = options.running.min(limits.wanted).min(limits.rows).max(1);
        let logits = vec![0.0; running * exec.vocab(TRUNK)];
        let sequences = Sequences::new(exec);
        let options = SchedulerOptions { running, prefill_share: options.prefill_share.max(1), ..options };
        Self {
            sequences,
            tokenizer,
            options,
            ids: Ids::default(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            prefixes: PrefixCache::default(),
            logits,
        }
    }

    /// Keeps pasts for later prompts, those that an earlier process saved among them; and says which were not taken.
    pub fn keeping(mut self, prefixes: PrefixCache) -> (Self, Option<String>) {
        self.prefixes = prefixes;
        let note = self.prefixes.restore(&mut self.sequences);
        (self, note)
    }

    /// What is kept of earlier prompts and answers.
    pub fn prefix_status(&self) -> PrefixStatus {
        self.prefixes.status()
    }

    /// Saves what is kept where it is to outlive the process; `None` if nothing was said of that.
    ///
    /// # Errors
    /// If the folder cannot be written; the scheduler works on.
    pub fn save_prefixes(&self) -> Result<Option<Saved>, RuntimeError> {
        self.prefixes.save(&self.sequences)
    }

    /// Gives up what is kept for later prompts.
    pub fn forget_prefixes(&mut self) {
        self.prefixes.clear(&mut self.sequences);
    }

    /// The state of all sequences.
    pub fn sequences(&self) -> &Sequences<E> {
        &self.sequences
    }

    /// Requests with a sequence.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Requests without one.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Takes a request; `sink` gets its events during later steps and must not wait.
    ///
    /// # Errors
    /// What can never work is refused now: a prompt that is empty, too long or not of this vocabulary, an answer that does
    /// not fit, a full queue.
    pub fn submit(
        &mut self,
        request: Request,
        sink: impl FnMut(Event) -> Delivery + Send + 'static,
    ) -> Result<RequestId, RuntimeError> {
        let budget = self.check(&request.prompt, &request.config)?;
        let id = self.ids.next();
        self.enqueue(id, request, budget, Outlet::new(Box::new(sink)));
        Ok(id)
    }

    /// How many tokens may follow the prompt.
    fn check(&self, prompt: &[TokenId], config: &GenerationConfig) -> Result<usize, RuntimeError> {
        only_one::refuse(config)?;
        let budget = admit(prompt.len(), (&self.tokenizer, config), self.options.context)?;
        let vocab = self.sequences.exec().vocab(TRUNK);
        if let Some(token) = prompt.iter().find(|id| id.index() >= vocab) {
            return Err(failure(ExecError::TokenOutsideVocabulary { token: token.0, vocab }));
        }
        self.check_room(prompt.len() + budget - 1).map_err(failure)?;
        if self.waiting.len() >= self.options.waiting + self.options.running.saturating_sub(self.running.len()) {
            return Err(RuntimeError::QueueFull { waiting: self.waiting.len() });
        }
        Ok(budget)
    }

    /// Fails if so many positions of one sequence are more than there is room for.
    fn check_room(&self, positions: usize) -> Result<(), ExecError> {
        let (needs, all) = (self.sequences.needs(positions), self.sequences.capacity());
        let windows = self.sequences.exec().windows();
        for ((window, needed), total) in windows.iter().zip(needs.blocks).zip(all.blocks) {
            if needed > total {
                return Err(ExecError::StateFull { needed, free: total, total, block: KV_BLOCK, window: *window });
            }
        }
        if needs.slots > all.slots { Err(ExecError::StateSlotsFull { total: all.slots }) } else { Ok(()) }
    }

    fn enqueue(&mut self, id: RequestId, request: Request, budget: usize, outlet: Outlet) {
        let answer = Answer::new(&self.tokenizer, &request.config, &request.prompt, budget);
        let mut job = Job::new(id, request.prompt, budget, answer, outlet);
        if self.prefixes.keeps() {
            job.marks = marks(&self.tokenizer, &job.tokens);
        }
        self.waiting.push_back(job);
    }

    /// Ends a request now; one that has ended already is left alone.
    pub fn cancel(&mut self, id: RequestId) {
        if let Some(at) = self.waiting.iter().position(|job| job.id == id)
            && let Some(job) = self.waiting.remove(at)
        {
            job.finish(StopReason::Cancelled, 0);
        } else if let Some(at) = self.running.iter().position(|running| running.job.id == id) {
            let running = self.running.remove(at);
            self.end(running, StopReason::Cancelled);
        }
    }

    /// Ends every request.
    pub fn cancel_all(&mut self) {
        self.waiting.drain(..).for_each(|job| job.finish(StopReason::Cancelled, 0));
        for running in std::mem::take(&mut self.running) {
            self.end(running, StopReason::Cancelled);
        }
    }

    /// One run for all; false if there was nothing to do.
    pub fn step(&mut self) -> bool {
        self.admit();
        let mut logits = std::mem::take(&mut self.logits);
        let worked = loop {
            let shares = self.shares();
            if shares.is_empty() {
                break false;
            }
            match self.run(&shares, &mut logits) {
                Ok(()) => self.advance(&shares, shares.iter().map(|_| Ok(())).collect(), &logits),
                Err(error) if is_full(&error) && self.running.len() > 1 => {
                    self.put_newest_aside();
                    continue;
                }
                Err(error) => {
                    let outcomes = self.run_singly(&shares, error, &mut logits);
                    self.advance(&shares, outcomes, &logits);
                }
            }
            break true;
        };
        self.logits = logits;
        worked
    }

    /// Begins requests in order, each from what is known of it, while there is room for all they may come to need. Those
    /// that run have been promised room for the tokens they have still to be fed, and no more.
    fn admit(&mut self) {
        while self.running.len() < self.options.running
            && let Some(job) = self.waiting.pop_front()
        {
            let opened = self.prefixes.fork(&mut self.sequences, &job.tokens);
            if !self.running.is_empty() && !self.has_room_for(opened.sequence, job.most()) {
                self.close(opened.sequence);
                self.waiting.push_front(job);
                break;
            }
            let begun = self.prefixes.begun(&self.sequences, &opened, &job.tokens, &job.marks);
            let mut running = Running { job, sequence: opened.sequence, fed: begun.reused, stops: Vec::new() };
            running.job.begin(&begun);
            running.stops = begun.stops;
            self.running.push(running);
        }
    }

    /// Whether a sequence can come to so many positions beside those that run.
    fn has_room_for(&self, sequence: SequenceId, positions: usize) -> bool {
        let mut promised = self.lacks(sequence, positions);
        for running in &self.running {
            promised.add(&self.lacks(running.sequence, running.job.tokens.len()));
        }
        promised.fits(&self.sequences.taken(), &self.sequences.capacity())
    }

    fn lacks(&self, sequence: SequenceId, positions: usize) -> Room {
        match self.sequences.lacks(sequence, positions) {
            Ok(room) => room,
            Err(error) => unreachable!("a running request's sequence is open: {error}"),
        }
    }

    /// The rows of a step: one of each sequence that answers, then the prompts in equal parts, what a short one leaves to
    /// the others in order.
    fn shares(&self) -> Vec<Share> {
        let reading: Vec<_> = (0..self.running.len()).filter(|at| self.running[*at].left() > 1).collect();
        let single = self.running.len() - reading.len();
        let room = self.sequences.exec().limits().rows - single;
        let mut left = self.options.prefill_share.min(room);
        let mut rows: Vec<usize> = self.running.iter().map(|r| usize::from(r.left() == 1)).collect();
        let part = (left / reading.len().max(1)).max(1);
        for &at in &reading {
            rows[at] = part.min(self.running[at].next()).min(left);
            left -= rows[at];
        }
        for &at in &reading {
            let more = left.min(self.running[at].next() - rows[at]);
            rows[at] += more;
            left -= more;
        }
        let share = |(at, rows): (usize, usize)| Share {
            at,
            rows,
            want: if rows == self.running[at].left() { Want::Last } else { Want::Nothing },
        };
        rows.into_iter().enumerate().filter(|(_, rows)| *rows > 0).map(share).collect()
    }

    fn run(&mut self, shares: &[Share], logits: &mut [LogitValue]) -> Result<(), ExecError> {
        let feed = |share: &Share| {
            let Running { job, sequence, fed, .. } = &self.running[share.at];
            Feed { sequence: *sequence, tokens: &job.tokens[*fed..fed + share.rows], want: share.want }
        };
        let feeds: Vec<_> = shares.iter().map(feed).collect();
        let wanted: usize = shares.iter().map(|share| share.want.rows(share.rows)).sum();
        let vocab = self.sequences.exec().vocab(TRUNK);
        self.prefixes.run(&mut self.sequences, TRUNK, &feeds, &mut logits[..wanted * vocab])
    }

    /// Finds whose fault a failed run was: every sequence on its own. A failed run changed nothing, so whoever succeeds
    /// now has lost nothing.
    fn run_singly(
        &mut self,
        shares: &[Share],
        error: ExecError,
        logits: &mut [LogitValue],
    ) -> Vec<Result<(), ExecError>> {
        if shares.len() == 1 {
            return vec![Err(error)];
        }
        let vocab = self.sequences.exec().vocab(TRUNK);
        let mut used = 0;
        let run = |share: &Share| {
            let at = used * vocab;
            used += share.want.rows(share.rows);
            self.run(std::slice::from_ref(share), &mut logits[at..])
        };
        shares.iter().map(run).collect()
    }

    /// Takes over what a step has brought.
    fn advance(&mut self, shares: &[Share], outcomes: Vec<Result<(), ExecError>>, logits: &[LogitValue]) {
        let mut rows = logits.chunks_exact(self.sequences.exec().vocab(TRUNK));
        let mut steps = shares.iter().zip(outcomes).peekable();
        for (at, mut running) in std::mem::take(&mut self.running).into_iter().enumerate() {
            let Some((share, outcome)) = steps.next_if(|(share, _)| share.at == at) else {
                self.running.push(running);
                continue;
            };
            let row = if share.want == Want::Last { rows.next() } else { None };
            if let Err(error) = outcome {
                self.fail(running, failure(error));
                continue;
            }
            running.fed += share.rows;
            if running.stops.first() == Some(&running.fed) {
                running.stops.remove(0);
                self.keep(&running);
            }
            running.job.fed(running.fed);
            match row.map_or(Ok(None), |row| running.job.choose(row)) {
                Err(error) => self.fail(running, error),
                Ok(reason) => match reason.or(running.job.refused()) {
                    Some(reason) => self.end(running, reason),
                    None => self.running.push(running),
                },
            }
        }
    }

    /// Frees what the newest request holds, as far as nothing else is free; it comes first among those that wait.
    fn put_newest_aside(&mut self) {
        if let Some(running) = self.running.pop() {
            self.keep(&running);
            self.close(running.sequence);
            self.waiting.push_front(running.job);
        }
    }

    fn end(&mut self, running: Running, reason: StopReason) {
        self.keep(&running);
        self.close(running.sequence);
        running.job.finish(reason, running.fed);
    }

    /// Keeps a sequence's state for later prompts.
    fn keep(&mut self, running: &Running) {
        self.prefixes.keep(&mut self.sequences, running.sequence, running.past());
    }

    fn fail(&mut self, running: Running, error: RuntimeError) {
        self.close(running.sequence);
        running.job.fail(error);
    }

    fn close(&mut self, sequence: SequenceId) {
        if let Err(error) = self.sequences.close(sequence) {
            unreachable!("a running request's sequence is open: {error}");
        }
    }
}

impl<E> std::fmt::Debug for Scheduler<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (running, waiting) = (self.running.len(), self.waiting.len());
        f.debug_struct("Scheduler").field("running", &running).field("waiting", &waiting).finish_non_exhaustive()
    }
}

/// Whether giving back another sequence's state may help.
fn is_full(error: &ExecError) -> bool {
    matches!(error, ExecError::StateFull { .. } | ExecError::StateSlotsFull { .. })
}
