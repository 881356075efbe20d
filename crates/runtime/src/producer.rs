//! The contract between the generation loop and a model.

use crate::ProducerError;
use crate::capture::Captured;
use foundation::{LogitValue, TokenId};
pub use plan::Want;

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
        let most = prompt.len().saturating_sub(1);
        self.rewind(shared(self.fed(), prompt).min(most))
    }

    /// How many other conversations were given up so far to make room.
    fn evicted(&self) -> u64 {
        0
    }

    /// What the places looked at held at the positions in the cache; nothing unless it was asked for at open.
    fn captured(&self) -> &[Captured] {
        &[]
    }

    /// Back to the beginning.
    fn reset(&mut self) {
        self.rewind(0);
    }
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
