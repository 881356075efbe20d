//! Recurrent state in [`Sequences`]: which copies are kept, shared and given up, on a device that hashes its past.

use foundation::TokenId;
use std::cell::Cell;
use turbospark_plan::{
    Batch, Exec, ExecError, Feed, KvType, KvTypes, Limits, Outputs, ProgramId, SequenceId, Sequences, StateCopy, Tap,
    Want,
};

/// A device whose only state is a hash of all tokens fed, in as many copies as it has slots.
struct Hasher {
    limits: Limits,
    slots: Vec<u64>,
    fail_copy: Cell<bool>,
}

impl Hasher {
    fn sequences(slots: usize) -> Sequences<Self> {
        let kv = KvTypes::both(KvType::F32);
        let limits = Limits { rows: 1000, wanted: 1000, blocks: 100, kv, sequences: 99, state_slots: slots };
        // Nothing may depend on what a slot held before.
        Sequences::new(Self { limits, slots: vec![0xdead; slots], fail_copy: Cell::new(false) })
    }
}

fn next(hash: u64, token: u32) -> u64 {
    (hash ^ u64::from(token)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(7)
}

/// What a hash looks like from outside.
fn digest(hash: u64) -> f32 {
    (hash >> 41) as f32
}

impl Exec for Hasher {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn has_fixed_states(&self) -> bool {
        true
    }

    fn vocab(&self, _: ProgramId) -> usize {
        1
    }

    fn taps(&self, _: ProgramId) -> &[Tap] {
        &[]
    }

    fn run(&mut self, _: ProgramId, batch: &Batch<'_>, outputs: &mut Outputs<'_>) -> Result<(), ExecError> {
        let mut out = outputs.logits.iter_mut();
        for (row, (token, sequence)) in batch.tokens.iter().zip(batch.sequence).enumerate() {
            let slot = batch.sequences[*sequence as usize].slot.expect("a slot").0 as usize;
            self.slots[slot] = next(self.slots[slot], token.0);
            if batch.wanted.contains(&(row as u32)) {
                *out.next().expect("room for a wanted row") = digest(self.slots[slot]);
            }
        }
        Ok(())
    }

    fn copy_states(&mut self, copies: &[StateCopy]) -> Result<(), ExecError> {
        if self.fail_copy.take() {
            return Err(ExecError::Injected { run: 0, what: "a copy that failed".to_owned() });
        }
        for copy in copies {
            match *copy {
                StateCopy::Slot { from, to } => self.slots[to.0 as usize] = self.slots[from.0 as usize],
                StateCopy::Clear { slot } => self.slots[slot.0 as usize] = 0,
                StateCopy::Block { .. } => {}
            }
        }
        Ok(())
    }
}

fn token(position: usize) -> u32 {
    (position * 31 % 97) as u32
}

/// The digest after the tokens of positions `0..=last`.
fn expected(last: usize) -> f32 {
    digest((0..=last).fold(0, |hash, position| next(hash, token(position))))
}

/// Feeds the tokens of `range` to a sequence that stands at its start, and checks the last row.
fn feed(
    sequences: &mut Sequences<Hasher>,
    sequence: SequenceId,
    range: std::ops::Range<usize>,
) -> Result<(), ExecError> {
    let tokens: Vec<TokenId> = range.clone().map(|p| TokenId(token(p))).collect();
    let mut logits = [0.0];
    sequences.run(ProgramId(0), &[Feed { sequence, tokens: &tokens, want: Want::Last }], &mut logits)?;
    assert_eq!(logits[0], expected(range.end - 1), "after {range:?}");
    Ok(())
}

#[test]
fn a_rewind_reaches_the_last_kept_position_before_it() {
    let mut sequences = Hasher::sequences(6);
    let id = sequences.open();
    feed(&mut sequences, id, 0..20).expect("runs");
    feed(&mut sequences, id, 20..30).expect("runs");
    for position in 30..150 {
        feed(&mut sequences, id, position..position + 1).expect("runs");
    }
    // Kept: where feeds of several tokens begin and end, then every 64 positions.
    for (to, reached) in [(149, 94), (94, 94), (93, 30), (29, 20), (19, 0)] {
        assert_eq!(sequences.rewind(id, to).expect("is open"), reached);
        feed(&mut sequences, id, reached..reached + 1).expect("runs");
        assert_eq!(sequences.rewind(id, reached).expect("is open"), reached);
    }
    assert_eq!(sequences.rewind(id, 1000).expect("is open"), 0, "a rewind never goes forward");
    feed(&mut sequences, id, 0..5).expect("runs");
    assert_eq!(sequences.rewind(id, 5).expect("is open"), 5, "nothing to forget");
    feed(&mut sequences, id, 5..6).expect("runs");
}

#[test]
fn forks_and_snapshots_share_until_they_write() {
    let mut sequences = Hasher::sequences(8);
    let trunk = sequences.open();
    feed(&mut sequences, trunk, 0..10).expect("runs");
    let snapshot = sequences.snapshot(trunk).expect("is open");
    let forks: Vec<_> = (0..3).map(|_| sequences.fork(trunk).expect("is open")).collect();
    for (fork, end) in forks.iter().zip([12, 17, 11]) {
        feed(&mut sequences, *fork, 10..end).expect("runs");
    }
    feed(&mut sequences, trunk, 10..30).expect("runs");
    sequences.restore(trunk, &snapshot).expect("is open");
    feed(&mut sequences, trunk, 10..13).expect("runs");
    feed(&mut sequences, forks[1], 17..18).expect("runs");
    assert_eq!(sequences.rewind(forks[0], 11).expect("is open"), 10);
    feed(&mut sequences, forks[0], 10..11).expect("runs");
}

#[test]
fn kept_states_are_given_up_before_a_sequence_is_refused() {
    let mut sequences = Hasher::sequences(5);
    let first = sequences.open();
    for at in (0..40).step_by(10) {
        feed(&mut sequences, first, at..at + 10).expect("runs");
    }
    // One live copy and three kept: four more sequences leave room for none.
    let others: Vec<_> = (0..4).map(|_| sequences.open()).collect();
    for other in &others {
        feed(&mut sequences, *other, 0..3).expect("runs");
    }
    feed(&mut sequences, first, 40..41).expect("still runs");
    assert_eq!(sequences.rewind(first, 35).expect("is open"), 0, "all kept states went");
    let one_more = sequences.open();
    feed(&mut sequences, first, 0..1).expect("has a copy");
    let refused = feed(&mut sequences, one_more, 0..1).expect_err("all five are in use");
    assert!(matches!(refused, ExecError::StateSlotsFull { total: 5 }), "{refused}");
    assert_eq!(sequences.position(one_more).expect("is open"), 0);
    sequences.close(others[0]).expect("is open");
    feed(&mut sequences, one_more, 0..4).expect("runs now");
}

#[test]
fn a_copy_that_fails_changes_nothing() {
    let mut sequences = Hasher::sequences(4);
    let trunk = sequences.open();
    feed(&mut sequences, trunk, 0..10).expect("runs");
    let fork = sequences.fork(trunk).expect("is open");
    for _ in 0..5 {
        sequences.exec().fail_copy.set(true);
        assert!(matches!(feed(&mut sequences, fork, 10..12), Err(ExecError::Injected { .. })));
        assert_eq!(sequences.position(fork).expect("is open"), 10);
    }
    feed(&mut sequences, fork, 10..12).expect("runs");
    feed(&mut sequences, trunk, 10..13).expect("runs");
}
