//! A request on its way: its tokens, its answer so far, and where its events go.

use super::request::{Event, Outlet, RequestId};
use crate::RuntimeError;
use crate::answer::{Answer, Finished};
use crate::prefix_cache::Begun;
use crate::raw_completion::{Progress, RawDecodeResult, StopReason};
use foundation::{LogitValue, TokenId};
use std::time::{Duration, Instant};

/// A request that is not finished. Nothing in here depends on where, when or beside whom it runs.
pub(super) struct Job {
    pub(super) id: RequestId,
    /// The prompt and what was chosen since.
    pub(super) tokens: Vec<TokenId>,
    prompt: usize,
    /// Most positions it will ever fill.
    most: usize,
    answer: Answer,
    outlet: Outlet,
    started: Instant,
    prefilled: Option<Instant>,
    /// Prompt tokens whose reading was told of.
    told: usize,
    /// Prompt tokens that were known when it first began; `None`: it has not begun.
    reused: Option<usize>,
    /// Where its prompt is likely to be left by later ones.
    pub(super) marks: Vec<usize>,
}

impl Job {
    /// `budget` tokens are to follow the prompt.
    pub(super) fn new(id: RequestId, prompt: Vec<TokenId>, budget: usize, answer: Answer, outlet: Outlet) -> Self {
        Self {
            id,
            prompt: prompt.len(),
            most: prompt.len() + budget - 1,
            tokens: prompt,
            answer,
            outlet,
            started: Instant::now(),
            prefilled: None,
            told: 0,
            reused: None,
            marks: Vec::new(),
        }
    }

    /// It has a sequence. What a request reuses is what it finds when it first begins; later it finds its own.
    pub(super) fn begin(&mut self, begun: &Begun) {
        if self.reused.is_none() {
            self.reused = Some(begun.reused);
            if begun.recomputes() {
                self.outlet.progress(Progress::Recompute { known: begun.known, reused: begun.reused });
            }
        }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Whether it should end, since nobody reads it.
    pub(super) fn refused(&self) -> Option<StopReason> {
        self.outlet.refused()
    }

    /// `fed` tokens are in the cache now.
    pub(super) fn fed(&mut self, fed: usize) {
        let done = fed.min(self.prompt);
        if done > self.told {
            self.told = done;
            self.outlet.progress(Progress::Prefill { done, total: self.prompt });
        }
    }

    /// Takes the logits after all its tokens; a reason means that the answer is complete.
    pub(super) fn choose(&mut self, logits: &[LogitValue]) -> Result<Option<StopReason>, RuntimeError> {
        self.prefilled.get_or_insert_with(Instant::now);
        let outlet = &mut self.outlet;
        self.answer.choose(logits, &mut self.tokens, &mut |progress| outlet.progress(progress))
    }

    /// Tells the end, with `fed` tokens in the cache.
    pub(super) fn finish(self, reason: StopReason, fed: usize) {
        let Self { mut tokens, prompt, answer, mut outlet, started, prefilled, reused, .. } = self;
        let Finished { text, ids, new_tokens, logprobs } = answer.finish(&mut |progress| outlet.progress(progress));
        tokens.truncate(fed);
        outlet.last(Event::Finished(Box::new(RawDecodeResult {
            text,
            ids,
            prompt_tokens: prompt,
            new_tokens,
            logprobs,
            reused_prefix_tokens: reused.unwrap_or(0),
            prefill: prefilled.map_or_else(|| started.elapsed(), |at| at - started),
            decode: prefilled.map_or(Duration::ZERO, |at| at.elapsed()),
            reason,
            kv_position: fed,
            kv_backed_token_ids: tokens,
            session_slot_evicted: false,
            peak_memory_pressure: None,
        })));
    }

    /// Tells that it is lost.
    pub(super) fn fail(self, error: RuntimeError) {
        self.outlet.last(Event::Failed(error));
    }
}
