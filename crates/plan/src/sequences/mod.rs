//! The one owner of sequence state: which blocks of cache belong to whom, and how far each sequence is.
//!
//! A device stores and copies what it is told; it never decides. Prefix reuse, batching and rollback are
//! `fork`, `rewind`, `snapshot` and `restore`.
//!
//! Keys and values can be forgotten from any position on. A recurrent state can only be put back to a copy: some are
//! kept on the way, and a rewind goes to the last of them that is not too late. Holders of blocks and of copies share
//! them; whoever writes takes one of its own first.

mod recurrent;

use crate::ExecError;
use crate::blocks::{BlockId, Pieces, StateSlot};
use crate::device::{Batch, Exec, Outputs, SequenceArgs, StateCopy};
use crate::program::{KV_BLOCK, ProgramId};
use foundation::{LogitValue, TokenId};
use recurrent::SlotMove;

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
        self.rewind_recurrent(&mut state, to);
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
        self.run_tapped(program, feeds, Outputs { logits, taps: &mut [] })
    }

    /// As [`Sequences::run`], with what the program's taps show.
    pub fn run_tapped(
        &mut self,
        program: ProgramId,
        feeds: &[Feed<'_>],
        mut outputs: Outputs<'_>,
    ) -> Result<(), ExecError> {
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
        let result = self.exec.run(program, &batch, &mut outputs);
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

    /// Gives every feed blocks and a recurrent state of its own to write to; all or none.
    fn reserve(&mut self, feeds: &[Feed<'_>]) -> Result<(), ExecError> {
        let shared = self.shared(feeds)?;
        let missing = feeds.iter().map(|feed| {
            let state = self.state(feed.sequence)?;
            Ok((state.position + feed.tokens.len()).div_ceil(KV_BLOCK) - state.blocks.len())
        });
        let missing: Vec<usize> = missing.collect::<Result<_, ExecError>>()?;
        let (needed, free) = (shared.len() + missing.iter().sum::<usize>(), self.blocks.free());
        if needed > free {
            return Err(ExecError::StateFull { needed, free, total: self.blocks.total(), block: KV_BLOCK });
        }
        let moves = self.slot_moves(feeds)?;
        let leave = |(sequence, from): (SequenceId, BlockId)| Some((sequence, from, self.blocks.take()?));
        let leaves: Vec<_> = shared.into_iter().filter_map(leave).collect();
        let copies = leaves.iter().map(|(_, from, to)| StateCopy::Block { from: *from, to: *to });
        let copies: Vec<StateCopy> = copies.chain(moves.iter().map(SlotMove::copy)).collect();
        if !copies.is_empty()
            && let Err(error) = self.exec.copy_states(&copies)
        {
            leaves.iter().for_each(|(.., to)| self.blocks.release(*to));
            moves.iter().for_each(|m| self.slots.release(m.to));
            return Err(error);
        }
        for (sequence, from, to) in leaves {
            if let Some(last) = self.state_mut(sequence)?.blocks.last_mut() {
                *last = to;
            }
            self.blocks.release(from);
        }
        for m in moves {
            self.state_mut(m.sequence)?.slot = Some(m.to);
            m.from.into_iter().for_each(|from| self.slots.release(from));
        }
        for (feed, missing) in feeds.iter().zip(missing) {
            let fresh: Vec<BlockId> = (0..missing).filter_map(|_| self.blocks.take()).collect();
            self.state_mut(feed.sequence)?.blocks.extend(fresh);
        }
        Ok(())
    }

    /// The sequences whose next token would be written into a block that somebody else can see, with that block.
    /// Where only feeds of this run share a block, the last of them keeps it.
    fn shared(&self, feeds: &[Feed<'_>]) -> Result<Vec<(SequenceId, BlockId)>, ExecError> {
        let mut shared: Vec<(SequenceId, BlockId)> = Vec::new();
        for feed in feeds {
            let state = self.state(feed.sequence)?;
            let partial = !state.position.is_multiple_of(KV_BLOCK);
            if let Some(last) = state.blocks.last().filter(|_| partial) {
                let leaving = shared.iter().filter(|(_, block)| block == last).count();
                if self.blocks.holders(*last) > leaving + 1 {
                    shared.push((feed.sequence, *last));
                }
            }
        }
        Ok(shared)
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
