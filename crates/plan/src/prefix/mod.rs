//! Pasts worth coming back to: a prefix tree over the token ids that were actually fed.
//!
//! A node may hold a [`Snapshot`]: blocks by reference count and a copy of the recurrent state. A look-up opens a
//! sequence at the longest known beginning of a prompt from which the model can go on with the same bits: anywhere before
//! a snapshot where keys and values can be forgotten, otherwise at one. What is not used for longest goes first when the
//! tree takes more bytes than it may, or when sequences run out of blocks or copies.

mod disk;
mod folder;
mod format;
mod key;
mod place;
mod tree;

use crate::budget::Budget;
use crate::device::Exec;
use crate::program::ProgramId;
use crate::sequences::{Feed, Held, SequenceId, Sequences, Want};
use crate::{BlockId, ExecError, StateSlot};
pub use disk::{Fingerprint, PrefixFileError, Restored, Saved};
use foundation::{LogitValue, TokenId};
pub use key::ContextKey;
use std::collections::HashMap;
use tree::Tree;

/// A prompt to be fed through the tree.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    /// What else than the tokens decides the cache's content.
    pub key: &'a ContextKey,
    /// At least one.
    pub tokens: &'a [TokenId],
    /// Where a later prompt is likely to go on or to depart: ends of turns and of tool results, beginnings of the
    /// assistant's texts. Positions outside the prompt count for nothing.
    pub marks: &'a [usize],
    /// The first position whose row does not come from its token alone; nothing from there on is kept or found.
    pub tainted_from: Option<usize>,
}

/// A sequence that stands at a known beginning of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The sequence.
    pub sequence: SequenceId,
    /// Tokens of the prompt that need not be fed again.
    pub reused: usize,
    /// Tokens of the prompt that the tree knows. Where it is more than `reused`, the model cannot go on from there: the
    /// nearest kept state lies before it.
    pub known: usize,
}

/// What the tree has been good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Prompts looked up.
    pub lookups: u64,
    /// Prompts of which something was reused.
    pub hits: u64,
    /// Tokens of all prompts.
    pub tokens: u64,
    /// Tokens that were not fed again.
    pub reused: u64,
    /// Snapshots given up for others, or for running sequences.
    pub evictions: u64,
}

/// Snapshots by the tokens that lead to them, within a number of bytes.
///
/// It belongs to one [`Sequences`]: all calls must name the same.
#[derive(Debug)]
pub struct PrefixTree {
    tree: Tree,
    limit: u64,
    sizes: Sizes,
    /// How often each piece is held by snapshots here.
    blocks: HashMap<(usize, BlockId), usize>,
    slots: HashMap<StateSlot, usize>,
    bytes: u64,
    clock: u64,
    reuse: Reuse,
}

/// How a prompt's known beginning is reached.
struct Way {
    /// The node whose state is taken.
    from: Option<usize>,
    reused: usize,
    known: usize,
}

/// Bytes of each piece.
#[derive(Debug)]
struct Sizes {
    /// A block, for each group.
    blocks: Vec<u64>,
    slot: u64,
}

impl PrefixTree {
    /// An empty tree that may hold on to `limit` bytes of what a budget describes.
    pub fn new(limit: u64, budget: &Budget) -> Self {
        Self::of_sizes(limit, budget.groups.iter().map(|group| group.block()).collect(), budget.slot)
    }

    /// An empty tree over pieces of known sizes in bytes: a block of each group, in the order of [`Exec::windows`], and a
    /// copy of the recurrent state.
    pub fn of_sizes(limit: u64, blocks: Vec<u64>, slot: u64) -> Self {
        Self {
            tree: Tree::default(),
            limit,
            sizes: Sizes { blocks, slot },
            blocks: HashMap::new(),
            slots: HashMap::new(),
            bytes: 0,
            clock: 0,
            reuse: Reuse::default(),
        }
    }

    /// What the tree has been good for so far.
    pub fn reuse(&self) -> Reuse {
        self.reuse
    }

    /// Bytes of all blocks and copies held here, each counted once.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Snapshots held.
    pub fn len(&self) -> usize {
        self.tree.held().count()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Opens a sequence at the longest beginning of a prompt that the model can go on from. At least the last token is
    /// left to be fed, so that there are logits.
    pub fn open<E: Exec>(&mut self, sequences: &mut Sequences<E>, prompt: &Prompt<'_>) -> Opened {
        let opened = self.fork(sequences, prompt);
        self.record(&opened, prompt);
        opened
    }

    /// As [`PrefixTree::open`], for a sequence that may be closed again before it is fed: [`PrefixTree::record`] says when it
    /// counts.
    pub fn fork<E: Exec>(&mut self, sequences: &mut Sequences<E>, prompt: &Prompt<'_>) -> Opened {
        let Way { from, known, .. } = self.way(sequences, prompt);
        self.clock += 1;
        let held = from.and_then(|at| self.tree.node_mut(at).held.as_mut());
        let sequence = match held {
            Some(held) => {
                held.used = self.clock;
                sequences.open_at(&held.snapshot)
            }
            None => sequences.open(),
        };
        let reused = sequences.rewind(sequence, known).unwrap_or(0);
        Opened { sequence, reused, known }
    }

    /// Counts a prompt in [`PrefixTree::reuse`].
    pub fn record(&mut self, opened: &Opened, prompt: &Prompt<'_>) {
        self.reuse.lookups += 1;
        self.reuse.hits += u64::from(opened.reused > 0);
        self.reuse.tokens += prompt.tokens.len() as u64;
        self.reuse.reused += opened.reused as u64;
    }

    /// Tokens of a prompt that [`PrefixTree::open`] would reuse, and how many are known; changes nothing.
    pub fn look<E: Exec>(&self, sequences: &Sequences<E>, prompt: &Prompt<'_>) -> (usize, usize) {
        let way = self.way(sequences, prompt);
        (way.reused, way.known)
    }

    fn way<E: Exec>(&self, sequences: &Sequences<E>, prompt: &Prompt<'_>) -> Way {
        let most = prompt.tokens.len().saturating_sub(1).min(prompt.tainted_from.unwrap_or(usize::MAX));
        let found = self.tree.find(prompt.key, &prompt.tokens[..most]);
        let known = found.known;
        // From a longer past by forgetting its end, or from a shorter one as it is.
        let serves = |at: &usize| {
            let held = self.tree.node(*at).held.as_ref();
            held.is_some_and(|held| sequences.restorable_from(&held.snapshot, known) == known)
        };
        match self.tree.below(&found).filter(|_| known > 0).find(serves) {
            Some(at) => Way { from: Some(at), reused: known, known },
            None => Way { from: found.held, reused: found.held.map_or(0, |at| self.tree.node(at).depth), known },
        }
    }

    /// Keeps a sequence's present state under the tokens it has been fed, unless some of their rows are tainted. Gives
    /// up what was not used for longest where that takes too much; false if this state alone does.
    pub fn keep<E: Exec>(
        &mut self,
        sequences: &mut Sequences<E>,
        sequence: SequenceId,
        past: &Prompt<'_>,
    ) -> Result<bool, ExecError> {
        let (position, tokens) = (sequences.position(sequence)?, past.tokens.len());
        if position != tokens {
            return Err(ExecError::WrongPast { position, tokens });
        }
        if position == 0 || past.tainted_from.is_some_and(|from| from < position) {
            return Ok(false);
        }
        let at = self.tree.insert(past.key, past.tokens);
        self.clock += 1;
        let used = self.clock;
        if let Some(held) = &mut self.tree.node_mut(at).held {
            held.used = used;
            return Ok(true);
        }
        let snapshot = sequences.snapshot_alone(sequence)?;
        self.count(&snapshot.held());
        self.tree.node_mut(at).held = Some(tree::Held { snapshot, used });
        while self.bytes > self.limit && self.evict(sequences) {}
        Ok(self.tree.find(past.key, past.tokens).held.is_some_and(|at| self.tree.node(at).depth == tokens))
    }

    /// Gives up the snapshot that was not used for longest; false if there is none.
    pub fn evict<E: Exec>(&mut self, sequences: &mut Sequences<E>) -> bool {
        let oldest = self.tree.held().min_by_key(|(_, held)| held.used).map(|(at, _)| at);
        let Some(snapshot) = oldest.and_then(|at| self.tree.take(at)) else { return false };
        self.discount(&snapshot.held());
        sequences.release(snapshot);
        self.reuse.evictions += 1;
        true
    }

    /// Gives everything up.
    pub fn clear<E: Exec>(&mut self, sequences: &mut Sequences<E>) {
        while self.evict(sequences) {}
    }

    /// [`Sequences::run`], with snapshots making way when blocks or copies of recurrent state run out.
    pub fn run<E: Exec>(
        &mut self,
        sequences: &mut Sequences<E>,
        program: ProgramId,
        feeds: &[Feed<'_>],
        logits: &mut [LogitValue],
    ) -> Result<(), ExecError> {
        loop {
            match sequences.run(program, feeds, logits) {
                Err(ExecError::StateFull { .. } | ExecError::StateSlotsFull { .. }) if self.evict(sequences) => {}
                result => return result,
            }
        }
    }

    /// Feeds a prompt to a new sequence, from what is known of it, as many tokens a run as the device takes, and keeps
    /// states on the way and at its end. `logits` receives the last row's.
    pub fn prefill<E: Exec>(
        &mut self,
        sequences: &mut Sequences<E>,
        program: ProgramId,
        prompt: &Prompt<'_>,
        logits: &mut [LogitValue],
    ) -> Result<Opened, ExecError> {
        if prompt.tokens.is_empty() {
            return Err(ExecError::Empty);
        }
        let opened = self.open(sequences, prompt);
        let filled = self.fill(sequences, program, opened, prompt, logits);
        if let Err(error) = filled {
            sequences.close(opened.sequence)?;
            return Err(error);
        }
        Ok(opened)
    }

    fn fill<E: Exec>(
        &mut self,
        sequences: &mut Sequences<E>,
        program: ProgramId,
        Opened { sequence, reused, .. }: Opened,
        prompt: &Prompt<'_>,
        logits: &mut [LogitValue],
    ) -> Result<(), ExecError> {
        let rows = sequences.exec().limits().rows;
        let end = prompt.tokens.len();
        let mut at = reused;
        for stop in self.stops(sequences, prompt, reused).into_iter().chain([end]) {
            while at < stop {
                let next = stop.min(at + rows);
                let (want, logits) =
                    if next == end { (Want::Last, &mut *logits) } else { (Want::Nothing, &mut [][..]) };
                let feed = Feed { sequence, tokens: &prompt.tokens[at..next], want };
                self.run(sequences, program, &[feed], logits)?;
                at = next;
            }
            self.keep(sequences, sequence, &Prompt { tokens: &prompt.tokens[..stop], ..*prompt })?;
        }
        Ok(())
    }

    /// Where to keep a state while a prompt is fed from `from` on, ascending: at the marks, and at distances from the
    /// end that double. Nowhere if the model can go back to any position by itself.
    pub fn stops<E: Exec>(&self, sequences: &Sequences<E>, prompt: &Prompt<'_>, from: usize) -> Vec<usize> {
        if sequences.forgets_anywhere() {
            return Vec::new();
        }
        match prompt.tainted_from.filter(|clean| *clean < prompt.tokens.len()) {
            None => place::stops(from, prompt.tokens.len(), prompt.marks),
            Some(clean) => {
                let mut stops = place::stops(from, clean, prompt.marks);
                stops.extend((clean > from).then_some(clean));
                stops
            }
        }
    }

    fn count(&mut self, pieces: &Held) {
        for block in &pieces.blocks {
            let held = self.blocks.entry(*block).or_insert(0);
            *held += 1;
            self.bytes += if *held == 1 { self.sizes.blocks[block.0] } else { 0 };
        }
        for slot in &pieces.slots {
            let held = self.slots.entry(*slot).or_insert(0);
            *held += 1;
            self.bytes += if *held == 1 { self.sizes.slot } else { 0 };
        }
    }

    fn discount(&mut self, pieces: &Held) {
        for block in &pieces.blocks {
            if last(&mut self.blocks, block) {
                self.bytes -= self.sizes.blocks[block.0];
            }
        }
        for slot in &pieces.slots {
            if last(&mut self.slots, slot) {
                self.bytes -= self.sizes.slot;
            }
        }
    }
}

/// Takes one holder away; true if it was the last.
fn last<K: std::hash::Hash + Eq>(held: &mut HashMap<K, usize>, piece: &K) -> bool {
    let Some(count) = held.get_mut(piece) else { return false };
    *count -= 1;
    let last = *count == 0;
    if last {
        held.remove(piece);
    }
    last
}
