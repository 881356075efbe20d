//! The contract between the generation loop and a model.

use crate::ProducerError;
use crate::RuntimeError;
use crate::capture::Captured;
use crate::prefix_cache::{Begun, PrefixStatus};
use foundation::{LogitValue, TokenId};
pub use plan::Want;
use plan::{ExpertStats, Saved};

/// One sequence of a model.
///
/// Logits are **raw**: `selection::select` is the only softmax on the way to a token. A producer that returned
/// probabilities would be sampled as softmax(softmax(z)).
pub trait LogitProducer {
    /// Width of a row of logits.
    fn vocab(&self) -> usize;

    /// Tokens fed so far.
    fn position(&self) -> usize;

    /// Tokens a context can hold.
    fn context(&self) -> usize;

    /// The tokens fed so far, all of which are in the cache.
    fn fed(&self) -> &[TokenId];

    /// Feeds tokens and writes the wanted rows, `[rows, vocab]`. On an error nothing was fed.
    fn produce(&mut self, tokens: &[TokenId], want: Want, logits: &mut [LogitValue]) -> Result<(), ProducerError>;

    /// Forgets everything after the largest restorable position not above `to`, and returns it: cache,
    /// recurrent state and position together.
    fn rewind(&mut self, to: usize) -> usize;

    /// Goes to where it can best go on to `prompt` from, and returns how many of its tokens need not be fed again; at
    /// least one is left, so that there are logits.
    fn resume(&mut self, prompt: &[TokenId]) -> usize {
        self.rewind(common(self.fed(), prompt))
    }

    /// How many other conversations were given up so far to make room.
    fn evicted(&self) -> u64 {
        0
    }

    /// What the places looked at held at the positions in the cache; nothing unless it was asked for at open.
    fn captured(&self) -> &[Captured] {
        &[]
    }

    /// Back to the beginning. Pasts kept for later prompts stay kept.
    fn reset(&mut self) {
        self.rewind(0);
    }

    /// As [`LogitProducer::resume`], and names positions where the state is to be kept on the way. `marks` are positions of the prompt from which later ones are likely to depart.
    fn begin(&mut self, prompt: &[TokenId], _marks: &[usize]) -> Begun {
        let known = common(self.fed(), prompt);
        let reused = self.resume(prompt);
        Begun { reused, known: known.max(reused), stops: Vec::new() }
    }

    /// Keeps the present state for later prompts, at one of the stops that [`LogitProducer::begin`] named.
    fn keep(&mut self) {}

    /// What [`LogitProducer::begin`] would reuse of a prompt, and how much of it is known; changes nothing.
    fn look(&self, prompt: &[TokenId]) -> (usize, usize) {
        let known = common(self.fed(), prompt);
        (known, known)
    }

    /// How much is kept for later prompts.
    fn prefix_status(&self) -> PrefixStatus {
        PrefixStatus::default()
    }

    /// Saves what is kept, and the present past, where the options said; `None` if they did not.
    ///
    /// # Errors
    /// If the folder cannot be written.
    fn save_prefixes(&mut self) -> Result<Option<Saved>, RuntimeError> {
        Ok(None)
    }

    /// Gives up what is kept for later prompts.
    fn forget_prefixes(&mut self) {}

    /// How streamed experts have served so far; `None` if none are streamed.
    fn expert_stats(&self) -> Option<ExpertStats> {
        None
    }
}

/// How many tokens of a prompt a past begins with, the prompt's last never among them.
pub(crate) fn common(past: &[TokenId], prompt: &[TokenId]) -> usize {
    shared(past, prompt).min(prompt.len().saturating_sub(1))
}

/// Replays prepared rows of logits: one a produced row.
#[derive(Clone, Debug)]
pub struct ScriptedLogitProducer {
    rows: Vec<Vec<LogitValue>>,
    vocab: usize,
    context: usize,
    fed: Vec<TokenId>,
    /// For each position fed, how many rows had been used before it.
    used_before: Vec<usize>,
    used: usize,
}

impl ScriptedLogitProducer {
    /// A producer of the given rows, each `vocab` wide.
    pub fn new(rows: Vec<Vec<LogitValue>>, vocab: usize, context: usize) -> Self {
        Self { rows, vocab, context, fed: Vec::new(), used_before: Vec::new(), used: 0 }
    }

    /// A producer that favours `ids` in turn: 10 there, 0 elsewhere.
    pub fn of_ids(ids: &[TokenId], vocab: usize, context: usize) -> Self {
        let row = |id: &TokenId| (0..vocab).map(|i| if i == id.index() { 10.0 } else { 0.0 }).collect();
        Self::new(ids.iter().map(row).collect(), vocab, context)
    }
}

impl LogitProducer for ScriptedLogitProducer {
    fn vocab(&self) -> usize {
        self.vocab
    }

    fn position(&self) -> usize {
        self.fed.len()
    }

    fn context(&self) -> usize {
        self.context
    }

    fn fed(&self) -> &[TokenId] {
        &self.fed
    }

    fn produce(&mut self, tokens: &[TokenId], want: Want, logits: &mut [LogitValue]) -> Result<(), ProducerError> {
        check_feed(self, tokens, want, logits)?;
        let wanted = want.rows(tokens.len());
        let rows = self.rows.get(self.used..self.used + wanted);
        let rows = rows.ok_or(ProducerError::ScriptExhausted { prepared: self.rows.len() })?;
        for (out, row) in logits.chunks_exact_mut(self.vocab).zip(rows) {
            out.copy_from_slice(row);
        }
        let first_wanted = tokens.len() - wanted;
        self.used_before.extend((0..tokens.len()).map(|i| self.used + i.saturating_sub(first_wanted)));
        self.used += wanted;
        self.fed.extend_from_slice(tokens);
        Ok(())
    }

    fn rewind(&mut self, to: usize) -> usize {
        if let Some(used) = self.used_before.get(to) {
            self.used = *used;
            self.used_before.truncate(to);
            self.fed.truncate(to);
        }
        self.position()
    }
}

/// How many tokens two sequences have in common from their beginning.
pub(crate) fn shared(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The checks of every producer before it feeds.
pub(crate) fn check_feed(
    producer: &(impl LogitProducer + ?Sized),
    tokens: &[TokenId],
    want: Want,
    logits: &[LogitValue],
) -> Result<(), ProducerError> {
    let expected = want.rows(tokens.len()) * producer.vocab();
    if logits.len() != expected {
        return Err(ProducerError::BufferSize { expected, found: logits.len() });
    }
    let (position, context) = (producer.position(), producer.context());
    if tokens.len() > context - position {
        return Err(ProducerError::ContextFull { tokens: tokens.len(), position, context });
    }
    Ok(())
}
