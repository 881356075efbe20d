//! Several conversations over one engine: one is live, the others are parked with all their state.
//!
//! A prompt goes on from the conversation that has most of it. What a conversation would lose by that is weighed: where a
//! prompt shares less with it than it would destroy, the prompt gets a copy of the shared beginning and the conversation
//! stays as it is. What was not used for longest goes when there are too many conversations, when the parked ones hold too
//! many bytes, or when the live one runs out of cache; and that is told.

mod options;

use crate::ProducerError;
use crate::producer::{LogitProducer, Want, shared};
use crate::real_forward::RealForwardRunner;
use foundation::{LogitValue, TokenId};
pub use options::Sessions;
pub(crate) use options::{AsProducer, block_bytes};
use plan::{Budget, Exec, ExecError, ExpertStats, SequenceId};

/// Conversations of one model, of which one is live at a time.
#[derive(Debug)]
pub struct SessionPool<E> {
    live: RealForwardRunner<E>,
    parked: Vec<Parked>,
    /// Most conversations, the live one included.
    slots: usize,
    /// Most bytes of the parked conversations, with the sizes of what they hold.
    bytes: Option<(u64, Budget)>,
    clock: u64,
    evicted: u64,
}

/// A conversation that waits; never an empty one.
#[derive(Debug)]
struct Parked {
    sequence: SequenceId,
    fed: Vec<TokenId>,
    /// When it was live last.
    used: u64,
}

/// The best conversation for a prompt.
#[derive(Clone, Copy, Debug)]
struct Match {
    /// Its place among the parked; `None`: the live one.
    parked: Option<usize>,
    /// Tokens of the prompt it has, and can go on from.
    keep: usize,
    /// Tokens it would lose by that.
    lose: usize,
}

impl<E: Exec> SessionPool<E> {
    /// Up to `slots` conversations of up to `context` tokens over program 0 of `exec`. With one slot it behaves as a
    /// [`RealForwardRunner`]; 0 counts as 1.
    pub fn new(exec: E, context: usize, slots: usize) -> Self {
        let live = RealForwardRunner::new(exec, context);
        Self { live, parked: Vec::new(), slots: slots.max(1), bytes: None, clock: 0, evicted: 0 }
    }

    /// Lets the parked conversations hold at most so many bytes of what the budget describes; what they share counts once.
    pub fn within(mut self, bytes: u64, budget: Budget) -> Self {
        self.bytes = Some((bytes, budget));
        self
    }

    /// The device's side.
    pub fn exec(&self) -> &E {
        self.live.exec()
    }

    /// Conversations that wait.
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    fn best_match(&mut self, prompt: &[TokenId]) -> Match {
        let most = prompt.len().saturating_sub(1);
        let live = (None, self.live.sequence(), shared(self.live.fed(), prompt), self.live.position());
        let parked = self.parked.iter().enumerate();
        let parked = parked.map(|(at, p)| (Some(at), p.sequence, shared(&p.fed, prompt), p.fed.len()));
        let all: Vec<_> = std::iter::once(live).chain(parked).collect();
        let sequences = self.live.sequences();
        let matches = all.into_iter().map(|(parked, sequence, common, position)| {
            let keep = sequences.restorable(sequence, common.min(most)).unwrap_or(0);
            Match { parked, keep, lose: position - keep }
        });
        // Only a parked conversation that is strictly better is worth a change.
        let better = |best: Match, next: Match| if next.keep > best.keep { next } else { best };
        matches.reduce(better).unwrap_or(Match { parked: None, keep: 0, lose: 0 })
    }

    /// Makes a parked conversation the live one; the live one is parked.
    fn unpark(&mut self, at: usize) {
        let Parked { sequence, fed, .. } = self.parked.swap_remove(at);
        self.go_on_with(sequence, fed);
    }

    /// Makes a sequence the live one and parks the live one, unless it is empty.
    fn go_on_with(&mut self, sequence: SequenceId, fed: Vec<TokenId>) {
        let (sequence, fed) = self.live.exchange(sequence, fed);
        if fed.is_empty() {
            self.close(sequence);
        } else {
            self.clock += 1;
            self.parked.push(Parked { sequence, fed, used: self.clock });
        }
    }

    /// Goes on with a copy of the matched conversation, which stays as it is.
    fn copy(&mut self, from: Match) {
        let (sequence, fed) = match from.parked {
            Some(at) => (self.parked[at].sequence, self.parked[at].fed.clone()),
            None => (self.live.sequence(), self.live.fed().to_vec()),
        };
        match self.live.sequences().fork(sequence) {
            Ok(copy) => self.go_on_with(copy, fed),
            Err(error) => unreachable!("the pool's own sequences are open: {error}"),
        }
    }

    /// Gives conversations up until there are not too many and they do not hold too much.
    fn shrink(&mut self) {
        while self.parked.len() >= self.slots || self.holds_too_much() {
            self.evict();
        }
    }

    fn holds_too_much(&mut self) -> bool {
        let Some((most, budget)) = &self.bytes else { return false };
        let parked: Vec<_> = self.parked.iter().map(|p| p.sequence).collect();
        self.live.sequences().bytes(&parked, budget).is_ok_and(|bytes| bytes > *most)
    }

    /// Gives up the conversation that was not used for longest; false if none is parked.
    fn evict(&mut self) -> bool {
        let oldest = (0..self.parked.len()).min_by_key(|at| self.parked[*at].used);
        let Some(at) = oldest else { return false };
        let sequence = self.parked.swap_remove(at).sequence;
        self.close(sequence);
        self.evicted += 1;
        true
    }

    fn close(&mut self, sequence: SequenceId) {
        if let Err(error) = self.live.sequences().close(sequence) {
            unreachable!("the pool's own sequences are open: {error}");
        }
    }
}

impl<E: Exec> LogitProducer for SessionPool<E> {
    fn vocab(&self) -> usize {
        self.live.vocab()
    }

    fn position(&self) -> usize {
        self.live.position()
    }

    fn context(&self) -> usize {
        self.live.context()
    }

    fn expert_stats(&self) -> Option<ExpertStats> {
        self.live.expert_stats()
    }

    fn fed(&self) -> &[TokenId] {
        self.live.fed()
    }

    fn produce(&mut self, tokens: &[TokenId], want: Want, logits: &mut [LogitValue]) -> Result<(), ProducerError> {
        loop {
            match self.live.produce(tokens, want, logits) {
                Err(ProducerError::Exec(ExecError::StateFull { .. } | ExecError::StateSlotsFull { .. }))
                    if self.evict() => {}
                result => return result,
            }
        }
    }

    fn rewind(&mut self, to: usize) -> usize {
        self.live.rewind(to)
    }

    fn resume(&mut self, prompt: &[TokenId]) -> usize {
        let best = self.best_match(prompt);
        let shallow = best.lose > best.keep;
        match best.parked {
            _ if shallow && self.slots > 1 => self.copy(best),
            Some(at) => self.unpark(at),
            None => {}
        }
        let reused = self.live.rewind(best.keep);
        self.shrink();
        reused
    }

    fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Begins a new conversation; the live one is parked.
    fn reset(&mut self) {
        if self.slots == 1 {
            self.rewind(0);
            return;
        }
        let empty = self.live.sequences().open();
        self.go_on_with(empty, Vec::new());
        self.shrink();
    }
}
