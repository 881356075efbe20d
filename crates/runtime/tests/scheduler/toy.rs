//! A toy model that really reads its past through the block table: its logits follow from every token it finds there.

use foundation::TokenId;
use plan::{Batch, Exec, ExecError, KV_BLOCK, KvType, KvTypes, Limits, Outputs, ProgramId, StateCopy, StateSlot, Tap};
use turbospark_runtime::SCRIPTED_VOCAB;

/// A token that breaks the run it is in.
pub(crate) const POISON: TokenId = TokenId(1);

/// Caches of tokens by block, one for each window, and one hash for each copy of recurrent state.
pub(crate) struct Toy {
    limits: Limits,
    recurrent: bool,
    windows: Vec<Option<usize>>,
    caches: Vec<Vec<u32>>,
    slots: Vec<u64>,
    /// Rows of each run.
    pub(crate) runs: Vec<usize>,
}

fn mix(hash: u64, token: u32) -> u64 {
    (hash ^ u64::from(token).wrapping_add(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29)
}

impl Toy {
    pub(crate) fn new(blocks: usize, rows: usize, wanted: usize, state_slots: usize) -> Self {
        Self::with_windows(blocks, (rows, wanted), state_slots, vec![None])
    }

    /// With layers of these windows, `None` first.
    pub(crate) fn with_windows(
        blocks: usize,
        (rows, wanted): (usize, usize),
        state_slots: usize,
        windows: Vec<Option<usize>>,
    ) -> Self {
        let limits =
            Limits { wanted, state_slots, ..Limits::for_context(blocks * KV_BLOCK, rows, KvTypes::both(KvType::F32)) };
        let caches = windows.iter().map(|window| vec![u32::MAX; limits.blocks_of(*window) * KV_BLOCK]).collect();
        Self { limits, recurrent: state_slots > 0, windows, caches, slots: vec![0; state_slots], runs: Vec::new() }
    }
}

impl Exec for Toy {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn windows(&self) -> &[Option<usize>] {
        &self.windows
    }

    fn has_fixed_states(&self) -> bool {
        self.recurrent
    }

    fn vocab(&self, _: ProgramId) -> usize {
        SCRIPTED_VOCAB
    }

    fn taps(&self, _: ProgramId) -> &[Tap] {
        &[]
    }

    fn run(&mut self, _: ProgramId, batch: &Batch<'_>, outputs: &mut Outputs<'_>) -> Result<(), ExecError> {
        batch.check(&self.limits, SCRIPTED_VOCAB, outputs.logits.len())?;
        let run = self.runs.len();
        self.runs.push(batch.tokens.len());
        if batch.tokens.contains(&POISON) {
            return Err(ExecError::Injected { run, what: "poison".to_owned() });
        }
        let mut out = outputs.logits.chunks_exact_mut(SCRIPTED_VOCAB);
        let rows = batch.tokens.iter().zip(batch.positions).zip(batch.sequence);
        for (row, ((token, &position), &sequence)) in rows.enumerate() {
            let args = &batch.sequences[sequence as usize];
            let (position, mut hash) = (position as usize, 7);
            for (window, cache) in self.windows.iter().zip(&mut self.caches) {
                let place = |p: usize| args.blocks(*window)[p / KV_BLOCK].0 as usize * KV_BLOCK + p % KV_BLOCK;
                cache[place(position)] = token.0;
                let first = window.map_or(0, |w| (position + 1).saturating_sub(w));
                hash = (first..=position).fold(hash, |hash, p| mix(hash, cache[place(p)]));
            }
            if let Some(StateSlot(slot)) = args.slot {
                let state = &mut self.slots[slot as usize];
                *state = mix(*state, token.0);
                hash ^= *state;
            }
            if batch.wanted.contains(&(row as u32))
                && let Some(out) = out.next()
            {
                // Only bytes are likely.
                for (id, out) in out.iter_mut().enumerate() {
                    let noise = (mix(hash, id as u32) >> 40) as f32 / (1 << 22) as f32;
                    *out = if (b'a' as usize..=b'z' as usize).contains(&id) { noise } else { noise - 20.0 };
                }
            }
        }
        Ok(())
    }

    fn copy_states(&mut self, copies: &[StateCopy]) -> Result<(), ExecError> {
        for copy in copies {
            match *copy {
                StateCopy::Block { window, from, to } => {
                    let group = self.windows.iter().position(|w| *w == window).expect("a window of ours");
                    let from = from.0 as usize * KV_BLOCK;
                    self.caches[group].copy_within(from..from + KV_BLOCK, to.0 as usize * KV_BLOCK);
                }
                StateCopy::Slot { from, to } => self.slots[to.0 as usize] = self.slots[from.0 as usize],
                StateCopy::Clear { slot } => self.slots[slot.0 as usize] = 0,
            }
        }
        Ok(())
    }
}
