//! Any order of opens, forks, runs, rewinds, snapshots and failures, against an oracle that keeps every sequence's
//! ids in plain lists.

mod recorder;

use foundation::TokenId;
use proptest::prelude::*;
use recorder::{LARGEST_ID, Recorder, TRUNK, VOCAB, advance, answer, seen};
use std::collections::BTreeSet;
use turbospark_plan::{
    ExecError, Fault, Feed, KV_BLOCK, KvType, KvTypes, Limits, Script, ScriptedExec, SequenceId, Sequences, Snapshot,
    Want,
};

/// What a sequence or a snapshot should be: its ids, and its blocks by names of the oracle's own.
#[derive(Clone, Debug, Default)]
struct Past {
    ids: Vec<u32>,
    blocks: Vec<usize>,
}

impl Past {
    fn rewind(&mut self, to: usize) {
        self.ids.truncate(to);
        self.blocks.truncate(self.ids.len().div_ceil(KV_BLOCK));
    }

    fn logits(&self, position: usize, windows: &[Option<usize>], recurrent: bool) -> [f32; VOCAB] {
        let entry = |p: usize| Some((self.ids[p], p as u32));
        let state = if recurrent { (0..=position).map(entry).fold(0, advance) } else { 0 };
        answer(seen(position, windows).into_iter().map(|(_, p)| entry(p)), state)
    }
}

/// All that holds blocks: sequences first, then snapshots.
#[derive(Clone, Debug, Default)]
struct Oracle {
    sequences: Vec<Past>,
    snapshots: Vec<Past>,
    named: usize,
}

impl Oracle {
    fn held(&self) -> impl Iterator<Item = usize> {
        self.sequences.iter().chain(&self.snapshots).flat_map(|p| p.blocks.iter().copied())
    }

    fn name(&mut self) -> usize {
        self.named += 1;
        self.named
    }

    /// Appends ids, in a block of the sequence's own; returns how many blocks that took.
    fn append(&mut self, sequence: usize, ids: &[u32]) -> usize {
        let mut taken = 0;
        let past = &self.sequences[sequence];
        if let Some(last) = past.blocks.last().copied().filter(|_| !past.ids.len().is_multiple_of(KV_BLOCK))
            && self.held().filter(|b| *b == last).count() > 1
        {
            let name = self.name();
            self.sequences[sequence].blocks.pop();
            self.sequences[sequence].blocks.push(name);
            taken += 1;
        }
        self.sequences[sequence].ids.extend_from_slice(ids);
        while self.sequences[sequence].blocks.len() < self.sequences[sequence].ids.len().div_ceil(KV_BLOCK) {
            let name = self.name();
            self.sequences[sequence].blocks.push(name);
            taken += 1;
        }
        taken
    }
}

/// One thing to do; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Act {
    Open,
    Close(usize),
    Fork(usize),
    Rewind(usize, usize),
    Snapshot(usize),
    Restore(usize, usize),
    Release(usize),
    /// Feeds of (sequence, tokens, want), and perhaps a fault.
    Run(Vec<(usize, usize, Want)>, Option<Failure>),
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    Run(usize),
    Copy,
}

fn act() -> impl Strategy<Value = Act> {
    let any = || 0..64usize;
    let want = prop_oneof![Just(Want::Nothing), Just(Want::Last), Just(Want::All)];
    let count = prop_oneof![4 => 1..6usize, 2 => 25..40usize, 1 => 60..100usize];
    let failure = prop_oneof![
        8 => Just(None),
        1 => (0..8usize).prop_map(|row| Some(Failure::Run(row))),
        1 => Just(Some(Failure::Copy)),
    ];
    prop_oneof![
        2 => Just(Act::Open),
        1 => any().prop_map(Act::Close),
        3 => any().prop_map(Act::Fork),
        3 => (any(), 0..200usize).prop_map(|(s, to)| Act::Rewind(s, to)),
        2 => any().prop_map(Act::Snapshot),
        2 => (any(), any()).prop_map(|(s, k)| Act::Restore(s, k)),
        1 => any().prop_map(Act::Release),
        8 => (prop::collection::vec((any(), count, want), 1..4), failure).prop_map(|(f, e)| Act::Run(f, e)),
    ]
}

struct World {
    real: Sequences<Recorder>,
    limits: Limits,
    windows: Vec<Option<usize>>,
    ids: Vec<SequenceId>,
    kept: Vec<Snapshot>,
    oracle: Oracle,
    next_token: u32,
}

impl World {
    fn new(blocks: usize, slots: usize) -> Self {
        Self::of(Recorder::new(blocks, slots))
    }

    fn of(exec: Recorder) -> Self {
        let (limits, windows) = (exec.limits, exec.windows.clone());
        let real = Sequences::new(exec);
        Self { real, limits, windows, ids: vec![], kept: vec![], oracle: Oracle::default(), next_token: 0 }
    }

    /// Blocks nobody should hold.
    fn free(&self) -> usize {
        self.limits.blocks - self.oracle.held().collect::<BTreeSet<_>>().len()
    }

    fn check(&self) {
        assert_eq!(self.real.free_blocks(), self.free(), "blocks held");
        for (id, past) in self.ids.iter().zip(&self.oracle.sequences) {
            assert_eq!(self.real.position(*id).expect("open"), past.ids.len());
        }
    }

    fn act(&mut self, act: &Act) {
        let sequence = |s: usize| (!self.ids.is_empty()).then(|| s % self.ids.len());
        let snapshot = |s: usize| (!self.kept.is_empty()).then(|| s % self.kept.len());
        match act {
            Act::Open => {
                let id = self.real.open();
                assert!(!self.ids.contains(&id));
                self.ids.push(id);
                self.oracle.sequences.push(Past::default());
            }
            Act::Close(s) => {
                let Some(s) = sequence(*s) else { return };
                let id = self.ids.swap_remove(s);
                self.oracle.sequences.swap_remove(s);
                self.real.close(id).expect("open");
                assert!(matches!(self.real.close(id), Err(ExecError::NoSuchSequence { .. })));
                assert!(self.real.position(id).is_err() && self.real.fork(id).is_err());
            }
            Act::Fork(s) => {
                let Some(s) = sequence(*s) else { return };
                self.ids.push(self.real.fork(self.ids[s]).expect("open"));
                self.oracle.sequences.push(self.oracle.sequences[s].clone());
            }
            Act::Rewind(s, to) => {
                let Some(s) = sequence(*s) else { return };
                let past = &mut self.oracle.sequences[s];
                let reached = self.real.rewind(self.ids[s], *to).expect("open");
                let restorable = (*to).min(past.ids.len());
                // Recurrent state can be put back to where a copy was kept, and to the present; a window that has moved
                // on to where its blocks were kept.
                let exact = self.limits.state_slots == 0 && self.windows == [None] || restorable == past.ids.len();
                assert!(reached == restorable || !exact && reached < restorable, "{reached}, not {restorable}");
                past.rewind(reached);
                assert_eq!(self.real.rewind(self.ids[s], reached).expect("open"), reached);
            }
            Act::Snapshot(s) => {
                let Some(s) = sequence(*s) else { return };
                self.kept.push(self.real.snapshot(self.ids[s]).expect("open"));
                self.oracle.snapshots.push(self.oracle.sequences[s].clone());
            }
            Act::Restore(s, k) => {
                let (Some(s), Some(k)) = (sequence(*s), snapshot(*k)) else { return };
                self.real.restore(self.ids[s], &self.kept[k]).expect("open");
                self.oracle.sequences[s] = self.oracle.snapshots[k].clone();
            }
            Act::Release(k) => {
                let Some(k) = snapshot(*k) else { return };
                self.real.release(self.kept.swap_remove(k));
                self.oracle.snapshots.swap_remove(k);
            }
            Act::Run(feeds, failure) => self.run(feeds, *failure),
        }
    }

    fn run(&mut self, feeds: &[(usize, usize, Want)], failure: Option<Failure>) {
        let mut chosen: Vec<(usize, Vec<TokenId>, Want)> = Vec::new();
        let mut rows = 0;
        for (s, count, want) in feeds.iter().filter(|_| !self.ids.is_empty()) {
            let s = s % self.ids.len();
            rows += count;
            if rows <= self.limits.rows && chosen.iter().all(|(other, ..)| *other != s) {
                let tokens = (0..*count as u32).map(|i| TokenId((self.next_token + i) % LARGEST_ID)).collect();
                self.next_token += *count as u32;
                chosen.push((s, tokens, *want));
            }
        }
        if chosen.is_empty() {
            return;
        }
        let given: Vec<_> =
            chosen.iter().map(|(s, tokens, want)| Feed { sequence: self.ids[*s], tokens, want: *want }).collect();
        let rows: usize = chosen.iter().map(|(_, tokens, want)| want.rows(tokens.len())).sum();
        match failure {
            Some(Failure::Run(row)) => self.real.exec().fail_after.set(Some(row)),
            Some(Failure::Copy) => self.real.exec().fail_copy.set(true),
            None => {}
        }
        let mut logits = vec![f32::NAN; rows * VOCAB];
        let result = self.real.run(TRUNK, &given, &mut logits);
        self.real.exec().fail_after.set(None);
        self.real.exec().fail_copy.set(false);

        let free = self.free();
        let mut after = self.oracle.clone();
        let ids = |tokens: &[TokenId]| tokens.iter().map(|t| t.0).collect::<Vec<_>>();
        let taken: usize = chosen.iter().map(|(s, tokens, _)| after.append(*s, &ids(tokens))).sum();
        match result {
            Ok(()) => {
                assert!(taken <= free, "{taken} blocks of {free} free ones");
                let mut expected = Vec::new();
                for (s, tokens, want) in &chosen {
                    let past = &after.sequences[*s];
                    let first = past.ids.len() - want.rows(tokens.len());
                    expected.extend(
                        (first..past.ids.len())
                            .flat_map(|p| past.logits(p, &self.windows, self.limits.state_slots > 0)),
                    );
                }
                assert_eq!(logits, expected, "the device would read another past");
                self.oracle = after;
            }
            Err(ExecError::StateFull { window: None, needed, free: found, total, block }) => {
                assert_eq!((needed, found, total, block), (taken, free, self.limits.blocks, KV_BLOCK));
                assert!(taken > free);
            }
            Err(ExecError::StateFull { window, needed, free, total, .. }) => {
                assert_eq!(total, self.limits.blocks_of(window));
                // Where there are fewer blocks than windows need, snapshots' kept points can take more than their share.
                let crowded = self.ids.len() + self.kept.len() > self.limits.sequences || total == self.limits.blocks;
                assert!(needed > free && crowded, "{needed} of {free}");
            }
            Err(ExecError::StateSlotsFull { total }) => {
                // One a sequence, one a feed that must leave a shared one, and what snapshots keep.
                let most = self.ids.len() + chosen.len() + 5 * self.kept.len();
                assert!(total == self.limits.state_slots && total < most, "{total} copies should have been enough");
                assert!(taken <= free);
            }
            Err(error) => {
                assert!(failure.is_some(), "{error}");
                // Blocks copied before the failure stay copied: nobody's content has changed.
                if let Some(Failure::Run(_)) = failure {
                    chosen.iter().for_each(|(s, ..)| {
                        self.oracle.append(*s, &[]);
                    });
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_sequence_reads_its_own_past(blocks in 1..24usize, acts in prop::collection::vec(act(), 1..60)) {
        all_acts(World::new(blocks, 0), &acts);
    }

    #[test]
    fn recurrent_state_goes_with_every_sequence(
        blocks in 1..24usize,
        slots in 1..24usize,
        acts in prop::collection::vec(act(), 1..60),
    ) {
        all_acts(World::new(blocks, slots), &acts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn windows_move_on_with_every_sequence(
        blocks in 1..40usize,
        sequences in 1..9usize,
        slots in prop_oneof![3 => Just(0usize), 1 => 1..24usize],
        rows in prop_oneof![1..12usize, Just(45usize), Just(130usize)],
        acts in prop::collection::vec(act(), 1..90),
    ) {
        let kv = KvTypes::both(KvType::F32);
        let limits = Limits { rows, wanted: rows, blocks, kv, sequences, state_slots: slots };
        all_acts(World::of(Recorder::with_limits(limits, vec![None, Some(1), Some(5), Some(40)])), &acts);
    }
}

/// Does everything, then looks at all that is left, closes it, and finds that nothing is held.
fn all_acts(mut world: World, acts: &[Act]) {
    for act in acts {
        world.act(act);
        world.check();
    }
    // Everything that was kept still reads as it should, one at a time so that blocks suffice.
    let World { mut real, limits: Limits { state_slots: slots, .. }, windows, mut ids, kept, oracle, .. } = world;
    let mut pasts = oracle.sequences;
    for (kept, past) in kept.into_iter().zip(oracle.snapshots) {
        let id = real.open();
        real.restore(id, &kept).expect("open");
        real.release(kept);
        ids.push(id);
        pasts.push(past);
    }
    for (id, mut past) in ids.into_iter().zip(pasts) {
        let mut logits = [0.0; VOCAB];
        let feed = Feed { sequence: id, tokens: &[TokenId(7)], want: Want::Last };
        match real.run(TRUNK, &[feed], &mut logits) {
            Ok(()) => {
                past.ids.push(7);
                assert_eq!(logits, past.logits(past.ids.len() - 1, &windows, slots > 0));
            }
            Err(error) => {
                assert!(matches!(error, ExecError::StateFull { .. } | ExecError::StateSlotsFull { .. }), "{error}")
            }
        }
        real.close(id).expect("open");
    }
    let mut blocks = usize::MAX;
    for window in windows {
        blocks = blocks.min(real.exec().limits.blocks_of(window));
        assert_eq!(real.free_blocks_of(window), real.exec().limits.blocks_of(window), "{window:?}");
    }
    // Every block and every copy of recurrent state can be had again.
    let fresh = if slots == 0 { blocks } else { blocks.min(slots) };
    for _ in 0..fresh {
        let feed = Feed { sequence: real.open(), tokens: &[TokenId(1)], want: Want::Nothing };
        real.run(TRUNK, &[feed], &mut []).expect("everything is free");
    }
}

#[test]
fn a_rewind_into_a_shared_block_leaves_the_other_holder_alone() {
    let mut world = World::new(8, 0);
    for act in [
        Act::Open,
        Act::Run(vec![(0, 40, Want::Last)], None),
        Act::Fork(0),
        Act::Snapshot(0),
        Act::Rewind(0, 20),
        Act::Run(vec![(0, 3, Want::All)], None),
        Act::Run(vec![(1, 3, Want::All)], None),
        Act::Restore(0, 0),
        Act::Run(vec![(0, 1, Want::All), (1, 1, Want::All)], None),
    ] {
        world.act(&act);
        world.check();
    }
    assert_eq!(world.oracle.sequences[1].ids.len(), 44);
}

#[test]
fn two_forks_in_one_run_take_one_copy_of_their_common_block() {
    let mut world = World::new(2, 0);
    let both = Act::Run(vec![(0, 1, Want::Last), (1, 1, Want::Last)], None);
    for act in [Act::Open, Act::Run(vec![(0, 5, Want::Last)], None), Act::Fork(0), both] {
        world.act(&act);
        world.check();
    }
    assert_eq!((world.real.free_blocks(), world.oracle.sequences[1].ids.len()), (0, 6));
}

#[test]
fn a_copy_that_fails_changes_nothing() {
    let mut world = World::new(4, 0);
    let write = |failure| Act::Run(vec![(1, 40, Want::All)], failure);
    for act in [
        Act::Open,
        Act::Run(vec![(0, 5, Want::Last)], None),
        Act::Fork(0),
        write(Some(Failure::Copy)),
        Act::Run(vec![(1, 1, Want::All)], None),
        Act::Run(vec![(0, 1, Want::All)], None),
    ] {
        world.act(&act);
        world.check();
    }
}

#[test]
fn recurrent_state_is_kept_where_feeds_begin() {
    for (to, expected) in [(64, 64), (63, 48), (50, 48), (48, 48), (47, 32), (16, 16), (15, 0), (0, 0)] {
        let mut real = Sequences::new(Recorder::new(8, 8));
        let id = real.open();
        for chunk in 0..4 {
            let tokens: Vec<_> = (0..16).map(|i| TokenId(16 * chunk + i)).collect();
            real.run(TRUNK, &[Feed { sequence: id, tokens: &tokens, want: Want::Nothing }], &mut []).expect("runs");
        }
        assert_eq!(real.rewind(id, to).expect("open"), expected, "rewound to {to}");
    }
}

/// One copy is enough for one sequence: what was kept makes way.
#[test]
fn a_single_copy_of_recurrent_state_serves_a_sequence() {
    let mut world = World::new(8, 1);
    world.act(&Act::Open);
    for count in [20, 1, 1, 30] {
        world.act(&Act::Run(vec![(0, count, Want::All)], None));
        world.check();
    }
    assert_eq!(world.oracle.sequences[0].ids.len(), 52);
    world.act(&Act::Rewind(0, 10));
    assert_eq!(world.oracle.sequences[0].ids.len(), 0);
    world.act(&Act::Run(vec![(0, 3, Want::All)], None));
    assert_eq!(world.oracle.sequences[0].ids.len(), 3);
}

#[test]
fn a_closed_sequence_never_names_another() {
    let mut sequences = Sequences::new(Recorder::new(8, 0));
    let mut closed = Vec::new();
    for _ in 0..3 {
        let id = sequences.open();
        assert!(!closed.contains(&id));
        for old in &closed {
            assert!(matches!(sequences.position(*old), Err(ExecError::NoSuchSequence { .. })));
            assert!(sequences.rewind(*old, 0).is_err() && sequences.close(*old).is_err());
            let feed = Feed { sequence: *old, tokens: &[TokenId(1)], want: Want::Nothing };
            assert!(sequences.run(TRUNK, &[feed], &mut []).is_err());
        }
        assert_eq!(sequences.position(id).expect("open"), 0);
        sequences.close(id).expect("open");
        closed.push(id);
    }
}

#[test]
fn a_full_window_says_which_and_how_much() {
    let kv = KvTypes::both(KvType::F32);
    let limits = Limits { rows: 40, wanted: 40, blocks: 100, kv, sequences: 1, state_slots: 0 };
    let mut sequences = Sequences::new(Recorder::with_limits(limits, vec![None, Some(8)]));
    let tokens = [TokenId(1); 40];
    // Three blocks for a window and a run, two for each of four kept windows.
    let results: Vec<_> = (0..9)
        .map(|_| {
            let sequence = sequences.open();
            sequences.run(TRUNK, &[Feed { sequence, tokens: &tokens, want: Want::Nothing }], &mut [])
        })
        .collect();
    assert!(results[..5].iter().all(Result::is_ok));
    let error = results.into_iter().find_map(Result::err).expect("eleven blocks do not hold nine sequences");
    assert_eq!(
        error.to_string(),
        "the cache of the layers with a window of 8 is full: 2 more blocks of 32 positions are needed and 1 of 11 are \
         free; shorten the context, close a sequence or raise --memory"
    );
}

#[test]
fn what_is_refused_leaves_everything_as_it_was() {
    let mut sequences = Sequences::new(Recorder::new(2, 0));
    let (a, b) = (sequences.open(), sequences.open());
    let feed = |sequence, tokens| Feed { sequence, tokens, want: Want::Last };
    let many = [TokenId(1); 33];
    sequences.run(TRUNK, &[feed(a, &many[..3])], &mut [0.0; VOCAB]).expect("runs");
    let closed = sequences.open();
    sequences.close(closed).expect("open");
    type Refusal = fn(&ExecError) -> bool;
    let cases: [(&str, Vec<Feed<'_>>, Refusal); 6] = [
        ("nothing", vec![], |e| matches!(e, ExecError::Empty)),
        ("no tokens", vec![feed(a, &many[..1]), feed(b, &[])], |e| matches!(e, ExecError::Empty)),
        ("twice", vec![feed(a, &many[..1]), feed(a, &many[..1])], |e| matches!(e, ExecError::NoSuchSequence { .. })),
        ("closed", vec![feed(a, &many[..1]), feed(closed, &many[..1])], |e| {
            matches!(e, ExecError::NoSuchSequence { .. })
        }),
        ("too long", vec![feed(a, &many[..1]), feed(b, &many)], |e| {
            matches!(e, ExecError::StateFull { needed: 2, free: 1, total: 2, .. })
        }),
        ("unknown id", vec![feed(a, &[TokenId(LARGEST_ID)])], |e| {
            matches!(e, ExecError::TokenOutsideVocabulary { token: LARGEST_ID, .. })
        }),
    ];
    for (name, feeds, refusal) in cases {
        let mut logits = vec![0.0; feeds.len() * VOCAB];
        let error = sequences.run(TRUNK, &feeds, &mut logits).expect_err(name);
        assert!(refusal(&error), "{name}: {error}");
        assert_eq!((sequences.position(a).ok(), sequences.position(b).ok()), (Some(3), Some(0)), "{name}");
        assert_eq!(sequences.free_blocks(), 1, "{name}");
    }
}

#[test]
fn scripted_faults_leave_positions_alone() {
    let ids = [3, 1, 4, 1, 5].map(TokenId);
    let script = Script { faults: vec![Fault { run: 1, what: "a lost device".into() }], ..Script::of_ids(8, &ids) };
    let mut sequences = Sequences::new(ScriptedExec::new(script, 4));
    let id = sequences.open();
    let mut answers = Vec::new();
    for run in 0..6 {
        let mut logits = [0.0; 8];
        let feed = Feed { sequence: id, tokens: &[TokenId(run)], want: Want::Last };
        match sequences.run(TRUNK, &[feed], &mut logits) {
            Ok(()) => answers.push(TokenId(logits.iter().position(|x| *x == 10.0).expect("an answer") as u32)),
            Err(error) => {
                assert!(matches!(&error, ExecError::Injected { run: 1, what } if what == "a lost device"), "{error}");
                assert_eq!((sequences.position(id).expect("open"), sequences.free_blocks()), (1, 3));
            }
        }
    }
    assert_eq!(answers, ids);
    let feed = Feed { sequence: id, tokens: &[TokenId(0)], want: Want::Last };
    let error = sequences.run(TRUNK, &[feed], &mut [0.0; 8]).expect_err("the script has ended");
    assert!(matches!(error, ExecError::ScriptExhausted { row: 5, prepared: 5 }), "{error}");
    assert_eq!(sequences.position(id).expect("open"), 5);
}
