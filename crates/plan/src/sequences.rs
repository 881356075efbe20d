//! The one owner of sequence state: which blocks of cache belong to whom, and how far each sequence is.
//!
//! A device stores and copies what it is told; it never decides. Prefix reuse, batching and rollback are
//! `fork`, `rewind`, `snapshot` and `restore`.
//!
//! Keys and values can be forgotten from any position on. A recurrent state can only be put back to a copy: some are
//! kept on the way, and a rewind goes to the last of them that is not too late. Holders of blocks and of copies share
//! them; whoever writes takes one of its own first.

use crate::ExecError;
use crate::blocks::{BlockId, Pieces, StateSlot};
use crate::device::{Batch, Exec, Outputs, SequenceArgs, StateCopy};
use crate::program::{KV_BLOCK, ProgramId};
use foundation::{LogitValue, TokenId};

/// A sequence of tokens with its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceId(u32);

/// Which rows of a feed should yield logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// None: the feed only fills the cache.
    Nothing,
    /// The last row's.
    Last,
    /// Every row's.
    All,
}

impl Want {
    /// How many of `rows` rows are wanted.
    pub fn rows(self, rows: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Last => rows.min(1),
            Self::All => rows,
        }
    }
}

/// Tokens to append to one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Feed<'a> {
    /// The sequence.
    pub sequence: SequenceId,
    /// At least one.
    pub tokens: &'a [TokenId],
    /// Which rows' logits to return.
    pub want: Want,
}

/// A sequence's state at one moment; gives its blocks back through [`Sequences::release`].
#[derive(Debug)]
pub struct Snapshot {
    state: State,
}

#[derive(Clone, Debug, Default)]
struct State {
    blocks: Vec<BlockId>,
    position: usize,
    /// The recurrent state at `position`; `None` at the beginning, where it is zero.
    slot: Option<StateSlot>,
    /// Earlier recurrent states, by ascending position.
    kept: Vec<(usize, StateSlot)>,
    /// Whether the last feed had several tokens: its end is a place to come back to.
    after_many: bool,
}

/// Recurrent states kept on the way of one sequence.
const KEPT: usize = 4;

/// Positions after which another one is kept even when tokens come one by one.
const KEEP_EVERY: usize = 64;

/// All sequences of an [`Exec`].
#[derive(Debug)]
pub struct Sequences<E> {
    exec: E,
    blocks: Pieces<BlockId>,
    slots: Pieces<StateSlot>,
    open: Vec<Option<State>>,
}

impl<E: Exec> Sequences<E> {
    /// No sequence yet; all blocks free.
    pub fn new(exec: E) -> Self {
        let blocks = Pieces::new(exec.limits().blocks);
        let slots = Pieces::new(if exec.has_fixed_states() { exec.limits().state_slots } else { 0 });
        Self { exec, blocks, slots, open: Vec::new() }
    }

    /// The device's side.
    pub fn exec(&self) -> &E {
        &self.exec
    }

    /// Blocks that nobody holds.
    pub fn free_blocks(&self) -> usize {
        self.blocks.free()
    }

    /// A new, empty sequence.
    pub fn open(&mut self) -> SequenceId {
        self.insert(State::default())
    }

    /// Ends a sequence and frees what only it held.
    pub fn close(&mut self, sequence: SequenceId) -> Result<(), ExecError> {
        let state = self.slot(sequence)?.take().unwrap_or_default();
        self.drop_state(state);
        Ok(())
    }

    /// A second sequence with the same past, sharing its blocks until either writes to one.
    pub fn fork(&mut self, sequence: SequenceId) -> Result<SequenceId, ExecError> {
        let state = self.share(sequence)?;
        Ok(self.insert(state))
    }

    /// How many tokens a sequence has been fed.
    pub fn position(&self, sequence: SequenceId) -> Result<usize, ExecError> {
        Ok(self.state(sequence)?.position)
    }

    /// Forgets everything from position `to` on; returns the position reached, the largest restorable one
    /// not above `to`.
    pub fn rewind(&mut self, sequence: SequenceId, to: usize) -> Result<usize, ExecError> {
        let mut state = std::mem::take(self.state_mut(sequence)?);
        if to < state.position && self.exec.has_fixed_states() {
            let later = state.kept.iter().position(|(position, _)| *position > to).unwrap_or(state.kept.len());
            let dropped: Vec<_> = state.kept.drain(later..).map(|(_, slot)| slot).chain(state.slot.take()).collect();
            state.position = state.kept.last().map_or(0, |(position, _)| *position);
            state.slot = state.kept.last().map(|(_, slot)| *slot);
            state.slot.into_iter().for_each(|s| self.slots.hold(s));
            dropped.into_iter().for_each(|s| self.slots.release(s));
        }
        let reached = to.min(state.position);
        let dropped = state.blocks.split_off(reached.div_ceil(KV_BLOCK).min(state.blocks.len()));
        dropped.into_iter().for_each(|b| self.blocks.release(b));
        state.position = reached;
        *self.state_mut(sequence)? = state;
        Ok(reached)
    }

    /// Keeps a sequence's present state for later.
    pub fn snapshot(&mut self, sequence: SequenceId) -> Result<Snapshot, ExecError> {
        Ok(Snapshot { state: self.share(sequence)? })
    }

    /// Puts a sequence back into a kept state, which stays kept.
    pub fn restore(&mut self, sequence: SequenceId, snapshot: &Snapshot) -> Result<(), ExecError> {
        self.state(sequence)?;
        self.hold(&snapshot.state);
        let old = std::mem::replace(self.state_mut(sequence)?, snapshot.state.clone());
        self.drop_state(old);
        Ok(())
    }

    /// Gives a kept state's blocks back.
    pub fn release(&mut self, snapshot: Snapshot) {
        self.drop_state(snapshot.state);
    }

    /// Appends tokens to sequences in one run and writes the wanted rows' logits, feed by feed.
    ///
    /// Either every sequence advances or none does.
    pub fn run(&mut self, program: ProgramId, feeds: &[Feed<'_>], logits: &mut [LogitValue]) -> Result<(), ExecError> {
        self.check(feeds)?;
        self.reserve(feeds)?;
        let mut rows = RowsOfBatch::default();
        for (at, feed) in feeds.iter().enumerate() {
            rows.push(at, feed, self.state(feed.sequence)?.position);
        }
        let args: Vec<_> = feeds
            .iter()
            .map(|f| state_of(&self.open, f.sequence).map(|s| SequenceArgs { blocks: &s.blocks, slot: s.slot }))
            .collect::<Result<_, ExecError>>()?;
        let batch = Batch {
            tokens: &rows.tokens,
            positions: &rows.positions,
            sequence: &rows.sequence,
            sequences: &args,
            wanted: &rows.wanted,
        };
        let result = self.exec.run(program, &batch, &mut Outputs { logits });
        for feed in feeds {
            let state = self.state_mut(feed.sequence)?;
            if result.is_ok() {
                state.position += feed.tokens.len();
                state.after_many = feed.tokens.len() > 1;
            } else {
                let to = state.position;
                self.rewind(feed.sequence, to)?;
            }
        }
        result
    }

    fn check(&self, feeds: &[Feed<'_>]) -> Result<(), ExecError> {
        if feeds.is_empty() || feeds.iter().any(|f| f.tokens.is_empty()) {
            return Err(ExecError::Empty);
        }
        for (i, feed) in feeds.iter().enumerate() {
            let sequence = feed.sequence;
            self.state(sequence)?;
            if feeds[..i].iter().any(|f| f.sequence == sequence) {
                return Err(ExecError::NoSuchSequence { sequence });
            }
        }
        Ok(())
    }

    /// Gives every feed blocks of its own to write to; all or none.
    fn reserve(&mut self, feeds: &[Feed<'_>]) -> Result<(), ExecError> {
        let mut needed = 0;
        for feed in feeds {
            let state = self.state(feed.sequence)?;
            let end = (state.position + feed.tokens.len()).div_ceil(KV_BLOCK);
            needed += end - state.blocks.len() + usize::from(self.must_copy(state));
        }
        let free = self.blocks.free();
        if needed > free {
            return Err(ExecError::StateFull { needed, free, total: self.blocks.total(), block: KV_BLOCK });
        }
        let mut copies = self.reserve_slots(feeds)?;
        for feed in feeds {
            let mut state = std::mem::take(self.state_mut(feed.sequence)?);
            if self.must_copy(&state)
                && let (Some(last), Some(to)) = (state.blocks.last_mut(), self.blocks.take())
            {
                copies.push(StateCopy::Block { from: *last, to });
                self.blocks.release(std::mem::replace(last, to));
            }
            let end = (state.position + feed.tokens.len()).div_ceil(KV_BLOCK);
            while state.blocks.len() < end {
                match self.blocks.take() {
                    Some(block) => state.blocks.push(block),
                    None => unreachable!("the blocks were counted above"),
                }
            }
            *self.state_mut(feed.sequence)? = state;
        }
        if copies.is_empty() { Ok(()) } else { self.exec.copy_states(&copies) }
    }

    /// Gives every feed a recurrent state of its own to write to, and keeps the present one where that is due; all or
    /// none.
    fn reserve_slots(&mut self, feeds: &[Feed<'_>]) -> Result<Vec<StateCopy>, ExecError> {
        let mut copies = Vec::new();
        if !self.exec.has_fixed_states() {
            return Ok(copies);
        }
        for feed in feeds {
            let state = self.state(feed.sequence)?;
            let last = state.kept.last().map_or(0, |(position, _)| *position);
            let due = feed.tokens.len() > 1 || state.after_many || state.position >= last + KEEP_EVERY;
            if let Some(slot) = state.slot.filter(|_| due && state.position > last) {
                let kept = (state.position, slot);
                self.slots.hold(slot);
                self.state_mut(feed.sequence)?.kept.push(kept);
                if self.state(feed.sequence)?.kept.len() > KEPT {
                    self.forget_one(feed.sequence)?;
                }
            }
        }
        while self.slots.free() < self.slots_needed(feeds)? {
            let Some(most) = (0..self.open.len()).max_by_key(|at| self.open[*at].as_ref().map_or(0, |s| s.kept.len()))
            else {
                return Err(ExecError::StateSlotsFull { total: self.slots.total() });
            };
            if !self.forget_one(SequenceId(most as u32))? {
                return Err(ExecError::StateSlotsFull { total: self.slots.total() });
            }
        }
        for feed in feeds {
            let old = self.state(feed.sequence)?.slot;
            if old.is_some_and(|slot| !self.slots.shared(slot)) {
                continue;
            }
            let Some(to) = self.slots.take() else {
                unreachable!("the copies were counted above");
            };
            copies.push(match old {
                Some(from) => StateCopy::Slot { from, to },
                None => StateCopy::Clear { slot: to },
            });
            old.into_iter().for_each(|slot| self.slots.release(slot));
            self.state_mut(feed.sequence)?.slot = Some(to);
        }
        Ok(copies)
    }

    fn slots_needed(&self, feeds: &[Feed<'_>]) -> Result<usize, ExecError> {
        let mut needed = 0;
        for feed in feeds {
            let slot = self.state(feed.sequence)?.slot;
            needed += usize::from(slot.is_none_or(|slot| self.slots.shared(slot)));
        }
        Ok(needed)
    }

    /// Gives up the kept state whose loss leaves the smallest gap, the newest last; whether there was one.
    fn forget_one(&mut self, sequence: SequenceId) -> Result<bool, ExecError> {
        let Ok(state) = self.state_mut(sequence) else {
            return Ok(false);
        };
        let gap = |at: &usize| {
            let before = at.checked_sub(1).map_or(0, |b| state.kept[b].0);
            state.kept.get(at + 1).map_or(usize::MAX, |after| after.0 - before)
        };
        let Some(at) = (0..state.kept.len()).min_by_key(gap) else {
            return Ok(false);
        };
        let (_, slot) = state.kept.remove(at);
        self.slots.release(slot);
        Ok(true)
    }

    /// Whether the next token would write into a block that somebody else can see.
    fn must_copy(&self, state: &State) -> bool {
        state.position % KV_BLOCK != 0 && state.blocks.last().is_some_and(|b| self.blocks.shared(*b))
    }

    fn insert(&mut self, state: State) -> SequenceId {
        let at = self.open.iter().position(Option::is_none).unwrap_or_else(|| {
            self.open.push(None);
            self.open.len() - 1
        });
        self.open[at] = Some(state);
        SequenceId(at as u32)
    }

    fn slot(&mut self, sequence: SequenceId) -> Result<&mut Option<State>, ExecError> {
        let slot = self.open.get_mut(sequence.0 as usize).filter(|s| s.is_some());
        slot.ok_or(ExecError::NoSuchSequence { sequence })
    }

    fn state(&self, sequence: SequenceId) -> Result<&State, ExecError> {
        state_of(&self.open, sequence)
    }

    fn state_mut(&mut self, sequence: SequenceId) -> Result<&mut State, ExecError> {
        let state = self.open.get_mut(sequence.0 as usize).and_then(Option::as_mut);
        state.ok_or(ExecError::NoSuchSequence { sequence })
    }

    /// Another holder of everything a sequence holds.
    fn share(&mut self, sequence: SequenceId) -> Result<State, ExecError> {
        let state = self.state(sequence)?.clone();
        self.hold(&state);
        Ok(state)
    }

    fn hold(&mut self, state: &State) {
        state.blocks.iter().for_each(|b| self.blocks.hold(*b));
        state.slots().for_each(|s| self.slots.hold(s));
    }

    fn drop_state(&mut self, state: State) {
        state.slots().for_each(|s| self.slots.release(s));
        state.blocks.into_iter().for_each(|b| self.blocks.release(b));
    }
}

impl State {
    fn slots(&self) -> impl Iterator<Item = StateSlot> {
        self.slot.into_iter().chain(self.kept.iter().map(|(_, slot)| *slot))
    }
}

fn state_of(open: &[Option<State>], sequence: SequenceId) -> Result<&State, ExecError> {
    open.get(sequence.0 as usize).and_then(Option::as_ref).ok_or(ExecError::NoSuchSequence { sequence })
}

/// The rows of a batch as a device wants them.
#[derive(Default)]
struct RowsOfBatch {
    tokens: Vec<TokenId>,
    positions: Vec<u32>,
    sequence: Vec<u32>,
    wanted: Vec<u32>,
}

impl RowsOfBatch {
    fn push(&mut self, at: usize, feed: &Feed<'_>, position: usize) {
        let rows = feed.tokens.len();
        self.tokens.extend_from_slice(feed.tokens);
        self.positions.extend((position..position + rows).map(|p| p as u32));
        self.sequence.extend(std::iter::repeat_n(at as u32, rows));
        let end = self.tokens.len() as u32;
        self.wanted.extend(end - feed.want.rows(rows) as u32..end);
    }
}
