//! The one owner of sequence state: which blocks of cache belong to whom, and how far each sequence is.
//!
//! A device stores and copies what it is told; it never decides. Prefix reuse, batching and rollback are
//! `fork`, `rewind`, `snapshot` and `restore`.
//!
//! Layers with the same window form a group with blocks of its own. A block that no row to come can see is freed when
//! nobody else refers to it; as many positions as one run has rows stay behind the window, so that shorter rewinds are
//! exact. Keys and values without a window can be forgotten from any position on. A recurrent state can only be put back
//! to a copy, and a window that has moved on to the blocks it saw then: such points are kept on the way, and a rewind
//! goes to the last of them that is not too late. Holders of blocks and of copies share them; whoever writes takes one
//! of its own first.

mod kept;
mod reserve;
mod room;
mod size;
mod stored;

use crate::ExecError;
use crate::blocks::{BlockId, Pieces, StateSlot, Table};
use crate::device::{Batch, Exec, Outputs, SequenceArgs};
use crate::program::{KV_BLOCK, ProgramId};
use foundation::{LogitValue, TokenId};
use kept::Kept;
pub use room::Room;
pub(crate) use stored::Stored;

/// A sequence of tokens with its state. The name of a closed sequence never becomes that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceId {
    place: u32,
    generation: u32,
}

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
    /// One a group.
    tables: Vec<Table>,
    position: usize,
    /// The recurrent state at `position`; `None` at the beginning, where it is zero.
    slot: Option<StateSlot>,
    /// Points to come back to, by ascending position.
    kept: Vec<Kept>,
    /// Whether the last feed had several tokens: its end is a place to come back to.
    after_many: bool,
}

/// A place for an open sequence.
#[derive(Debug, Default)]
struct Place {
    /// How many sequences were here before.
    generation: u32,
    state: Option<State>,
}

/// All sequences of an [`Exec`].
#[derive(Debug)]
pub struct Sequences<E> {
    exec: E,
    /// The blocks of each group.
    pools: Vec<Pieces<BlockId>>,
    slots: Pieces<StateSlot>,
    open: Vec<Place>,
}

impl<E: Exec> Sequences<E> {
    /// No sequence yet; all blocks free.
    pub fn new(exec: E) -> Self {
        let pools = exec.windows().iter().map(|window| Pieces::new(exec.limits().blocks_of(*window))).collect();
        let slots = Pieces::new(if exec.has_fixed_states() { exec.limits().state_slots } else { 0 });
        Self { exec, pools, slots, open: Vec::new() }
    }

    /// The device's side.
    pub fn exec(&self) -> &E {
        &self.exec
    }

    /// Ends all sequences and gives the device's side back.
    pub fn into_exec(self) -> E {
        self.exec
    }

    /// Blocks that nobody holds, of the layers without a window; of those with the shortest if all have one.
    pub fn free_blocks(&self) -> usize {
        self.pools.first().map_or(0, Pieces::free)
    }

    /// Blocks that nobody holds, of the layers with this window.
    pub fn free_blocks_of(&self, window: Option<usize>) -> usize {
        self.group_of(window).map_or(0, |group| self.pools[group].free())
    }

    /// Copies of the recurrent state that nobody holds.
    pub fn free_slots(&self) -> usize {
        self.slots.free()
    }

    /// Whether a sequence can forget its end at any position by itself: there are neither windows nor recurrent states.
    pub fn forgets_anywhere(&self) -> bool {
        !self.exec.has_fixed_states() && self.exec.windows().iter().all(Option::is_none)
    }

    fn group_of(&self, window: Option<usize>) -> Option<usize> {
        self.exec.windows().iter().position(|w| *w == window)
    }

    /// A new, empty sequence.
    pub fn open(&mut self) -> SequenceId {
        let state = self.empty();
        self.insert(state)
    }

    /// A new sequence in a kept state, which stays kept.
    pub fn open_at(&mut self, snapshot: &Snapshot) -> SequenceId {
        self.hold(&snapshot.state);
        self.insert(snapshot.state.clone())
    }

    /// Ends a sequence and frees what only it held.
    pub fn close(&mut self, sequence: SequenceId) -> Result<(), ExecError> {
        self.state(sequence)?;
        let place = &mut self.open[sequence.place as usize];
        place.generation += 1;
        if let Some(state) = place.state.take() {
            self.drop_state(state);
        }
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
        self.state(sequence)?;
        let fresh = self.empty();
        let mut state = std::mem::replace(self.state_mut(sequence)?, fresh);
        self.rewind_state(&mut state, to);
        let reached = state.position;
        *self.state_mut(sequence)? = state;
        Ok(reached)
    }

    /// Where [`Sequences::rewind`] would go.
    pub fn restorable(&self, sequence: SequenceId, to: usize) -> Result<usize, ExecError> {
        Ok(self.way_back(self.state(sequence)?, to).0)
    }

    /// Where [`Sequences::rewind`] would go from a kept state.
    pub fn restorable_from(&self, snapshot: &Snapshot, to: usize) -> usize {
        self.way_back(&snapshot.state, to).0
    }

    /// Keeps a sequence's present state for later.
    pub fn snapshot(&mut self, sequence: SequenceId) -> Result<Snapshot, ExecError> {
        Ok(Snapshot { state: self.share(sequence)? })
    }

    /// As [`Sequences::snapshot`], without the points kept on the way there: it holds no more than the present needs, and a
    /// rewind from it goes no further back than its blocks reach.
    pub fn snapshot_alone(&mut self, sequence: SequenceId) -> Result<Snapshot, ExecError> {
        let state = State { kept: Vec::new(), ..self.state(sequence)?.clone() };
        self.hold(&state);
        Ok(Snapshot { state })
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
    /// Either every sequence advances or none does; a run that is refused may leave shorter ways back.
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
            .map(|f| state_of(&self.open, f.sequence).map(|s| SequenceArgs { tables: &s.tables, slot: s.slot }))
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
                let used = state.position.div_ceil(KV_BLOCK);
                let unused = state.tables.iter_mut().map(|table| table.blocks.split_off(used)).collect();
                self.give_back(unused);
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
        // Which blocks stay behind a window counts on no run being longer.
        let (found, limit) = (feeds.iter().map(|f| f.tokens.len()).sum(), self.exec.limits().rows);
        if found > limit { Err(ExecError::TooManyRows { found, limit }) } else { Ok(()) }
    }

    fn empty(&self) -> State {
        let tables = self.exec.windows().iter().map(|window| Table::new(*window)).collect();
        State { tables, ..State::default() }
    }

    fn insert(&mut self, state: State) -> SequenceId {
        let place = self.open.iter().position(|place| place.state.is_none()).unwrap_or_else(|| {
            self.open.push(Place::default());
            self.open.len() - 1
        });
        self.open[place].state = Some(state);
        SequenceId { place: place as u32, generation: self.open[place].generation }
    }

    fn state(&self, sequence: SequenceId) -> Result<&State, ExecError> {
        state_of(&self.open, sequence)
    }

    fn state_mut(&mut self, sequence: SequenceId) -> Result<&mut State, ExecError> {
        let place = self.open.get_mut(sequence.place as usize).filter(|place| place.generation == sequence.generation);
        place.and_then(|place| place.state.as_mut()).ok_or(ExecError::NoSuchSequence { sequence })
    }

    /// Another holder of everything a sequence holds.
    fn share(&mut self, sequence: SequenceId) -> Result<State, ExecError> {
        let state = self.state(sequence)?.clone();
        self.hold(&state);
        Ok(state)
    }

    fn hold(&mut self, state: &State) {
        self.hold_tables(&state.tables);
        state.kept.iter().for_each(|kept| self.hold_tables(&kept.tables));
        state.slots().for_each(|s| self.slots.hold(s));
    }

    fn hold_tables(&mut self, tables: &[Table]) {
        for (pool, table) in self.pools.iter_mut().zip(tables) {
            table.held().iter().for_each(|block| pool.hold(*block));
        }
    }

    fn drop_state(&mut self, state: State) {
        state.slots().for_each(|s| self.slots.release(s));
        state.kept.iter().for_each(|kept| self.drop_tables(&kept.tables));
        self.drop_tables(&state.tables);
    }

    fn drop_tables(&mut self, tables: &[Table]) {
        for (pool, table) in self.pools.iter_mut().zip(tables) {
            table.held().iter().for_each(|block| pool.release(*block));
        }
    }

    /// Releases blocks, group by group; holes among them are nobody's.
    fn give_back(&mut self, blocks: Vec<Vec<BlockId>>) {
        for (pool, blocks) in self.pools.iter_mut().zip(blocks) {
            blocks.into_iter().filter(|b| *b != BlockId::HOLE).for_each(|block| pool.release(block));
        }
    }
}

/// What a snapshot holds, each piece once: blocks with their group's number, and copies of recurrent state.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) blocks: Vec<(usize, BlockId)>,
    pub(crate) slots: Vec<StateSlot>,
}

impl Held {
    /// Without repetitions.
    fn each_once(mut self) -> Self {
        self.blocks.sort_unstable();
        self.blocks.dedup();
        self.slots.sort_unstable();
        self.slots.dedup();
        self
    }
}

impl Snapshot {
    pub(crate) fn held(&self) -> Held {
        self.state.held()
    }
}

impl State {
    fn slots(&self) -> impl Iterator<Item = StateSlot> {
        self.slot.into_iter().chain(self.kept.iter().filter_map(|kept| kept.slot))
    }

    fn held(&self) -> Held {
        let tables = |tables: &[Table]| -> Vec<(usize, BlockId)> {
            let group = |(group, table): (usize, &Table)| table.held().iter().map(|b| (group, *b)).collect::<Vec<_>>();
            tables.iter().enumerate().flat_map(group).collect()
        };
        let kept = self.kept.iter().flat_map(|kept| tables(&kept.tables));
        let blocks = tables(&self.tables).into_iter().chain(kept).collect();
        Held { blocks, slots: self.slots().collect() }.each_once()
    }
}

fn state_of(open: &[Place], sequence: SequenceId) -> Result<&State, ExecError> {
    let place = open.get(sequence.place as usize).filter(|place| place.generation == sequence.generation);
    place.and_then(|place| place.state.as_ref()).ok_or(ExecError::NoSuchSequence { sequence })
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
