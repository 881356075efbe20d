//! A device that remembers which token it was given where.

use std::cell::Cell;
use turbospark_plan::{
    Batch, Exec, ExecError, KV_BLOCK, KvType, KvTypes, Limits, Outputs, ProgramId, SequenceArgs, StateCopy, StateSlot,
    Tap,
};

pub(crate) const TRUNK: ProgramId = ProgramId(0);
pub(crate) const VOCAB: usize = 4;
pub(crate) const LARGEST_ID: u32 = 1000;

/// (token, position).
pub(crate) type Entry = (u32, u32);

/// A device that stores entries where keys and values would be, and a digest of all tokens so far where recurrent state
/// would be; a row's logits are a digest of the entries attention would read, and that of the recurrence.
pub(crate) struct Recorder {
    pub(crate) limits: Limits,
    pub(crate) windows: Vec<Option<usize>>,
    /// The blocks of each group.
    caches: Vec<Vec<[Option<Entry>; KV_BLOCK]>>,
    /// No slots: the model has no recurrent state.
    slots: Vec<u64>,
    /// Rows until a run fails, if it is to fail.
    pub(crate) fail_after: Cell<Option<usize>>,
    pub(crate) fail_copy: Cell<bool>,
}

fn injected(what: &str) -> ExecError {
    ExecError::Injected { run: 0, what: what.to_owned() }
}

impl Recorder {
    pub(crate) fn new(blocks: usize, state_slots: usize) -> Self {
        let kv = KvTypes::both(KvType::F32);
        Self::with_limits(Limits { rows: 1000, wanted: 1000, blocks, kv, sequences: 99, state_slots }, vec![None])
    }

    pub(crate) fn with_limits(limits: Limits, windows: Vec<Option<usize>>) -> Self {
        Self {
            limits,
            caches: windows.iter().map(|window| vec![[None; KV_BLOCK]; limits.blocks_of(*window)]).collect(),
            windows,
            // Whatever an earlier sequence left: a fresh one must be cleared.
            slots: vec![u64::MAX; limits.state_slots],
            fail_after: Cell::new(None),
            fail_copy: Cell::new(false),
        }
    }

    fn place(&mut self, sequence: &SequenceArgs<'_>, group: usize, position: usize) -> &mut Option<Entry> {
        let block = sequence.blocks(self.windows[group])[position / KV_BLOCK];
        &mut self.caches[group][block.0 as usize][position % KV_BLOCK]
    }
}

/// The positions that a row sees in layers with these windows, one layer after the other.
pub(crate) fn seen(position: usize, windows: &[Option<usize>]) -> Vec<(usize, usize)> {
    let first = |window: &Option<usize>| window.map_or(0, |w| (position + 1).saturating_sub(w));
    let group = |(group, window)| (first(window)..=position).map(move |p| (group, p));
    windows.iter().enumerate().flat_map(group).collect()
}

/// A recurrence over entries; 0 at the beginning.
pub(crate) fn advance(hash: u64, entry: Option<Entry>) -> u64 {
    let (token, position) = entry.unwrap_or((u32::MAX, u32::MAX));
    let word = (token as u64) << 32 | position as u64;
    (hash ^ word ^ 0xcbf2_9ce4_8422_2325).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
}

/// The logits of a row whose attention reads these entries, and whose recurrent state is this.
pub(crate) fn answer(entries: impl Iterator<Item = Option<Entry>>, state: u64) -> [f32; VOCAB] {
    let halves = |hash: u64| [(hash >> 40) as f32, (hash & 0x00ff_ffff) as f32];
    let [a, b] = halves(entries.fold(1, advance));
    let [c, d] = halves(state);
    [a, b, c, d]
}

impl Exec for Recorder {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn windows(&self) -> &[Option<usize>] {
        &self.windows
    }

    fn has_fixed_states(&self) -> bool {
        !self.slots.is_empty()
    }

    fn vocab(&self, _: ProgramId) -> usize {
        VOCAB
    }

    fn taps(&self, _: ProgramId) -> &[Tap] {
        &[]
    }

    fn run(&mut self, _: ProgramId, batch: &Batch<'_>, outputs: &mut Outputs<'_>) -> Result<(), ExecError> {
        // Ids go up to more than a row of logits is wide, so the check is told of as many outputs as it expects.
        batch.check(&self.limits, LARGEST_ID as usize, batch.wanted.len() * LARGEST_ID as usize)?;
        assert_eq!(outputs.logits.len(), batch.wanted.len() * VOCAB);
        // Keys and values are written at once, as no one else sees those places; recurrent state at the end.
        let slot_of = |row: usize| batch.sequences[batch.sequence[row] as usize].slot;
        let mut slots = self.slots.clone();
        let mut wanted = batch.wanted.iter().peekable();
        let mut out = outputs.logits.chunks_exact_mut(VOCAB);
        for (row, (token, position)) in batch.tokens.iter().zip(batch.positions).enumerate() {
            if self.fail_after.get() == Some(row) {
                self.fail_after.set(None);
                return Err(injected("a run that stopped half-way"));
            }
            let sequence = batch.sequences[batch.sequence[row] as usize];
            let entry = Some((token.0, *position));
            for group in 0..self.windows.len() {
                *self.place(&sequence, group, *position as usize) = entry;
            }
            let state = slot_of(row).map_or(0, |StateSlot(slot)| {
                slots[slot as usize] = advance(slots[slot as usize], entry);
                slots[slot as usize]
            });
            if wanted.next_if(|w| **w as usize == row).is_some() {
                let seen = seen(*position as usize, &self.windows).into_iter();
                let entries = seen.map(|(group, p)| *self.place(&sequence, group, p));
                out.next().expect("as many as wanted").copy_from_slice(&answer(entries, state));
            }
        }
        self.slots = slots;
        Ok(())
    }

    fn copy_states(&mut self, copies: &[StateCopy]) -> Result<(), ExecError> {
        if self.fail_copy.take() {
            return Err(injected("a copy that failed"));
        }
        for copy in copies {
            match copy {
                StateCopy::Block { window, from, to } => {
                    let group = self.windows.iter().position(|w| w == window).expect("a group");
                    self.caches[group][to.0 as usize] = self.caches[group][from.0 as usize];
                }
                StateCopy::Slot { from, to } => self.slots[to.0 as usize] = self.slots[from.0 as usize],
                StateCopy::Clear { slot } => self.slots[slot.0 as usize] = 0,
            }
        }
        Ok(())
    }
}
