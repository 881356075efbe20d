//! The prefix tree: what it gives back has the bits of a cold run, it reuses all it can, and it takes no more than it may.

mod disk;

use cpu::{CpuDevice, CpuExec};
use foundation::TokenId;
use plan::{
    Budget, ContextKey, Device, Exec, ExecError, Feed, KvType, KvTypes, Limits, Opened, PrefixTree, Prompt, Sequences,
    Want, lower_for,
};
use testkit::{Model, Options, Random, families, synthetic};
use turbospark_conformance::TRUNK;

const F32: KvTypes = KvTypes::both(KvType::F32);

/// A model with sequences and a tree over them.
struct Cached {
    sequences: Sequences<CpuExec>,
    tree: PrefixTree,
    key: ContextKey,
    marks: Vec<usize>,
}

impl Cached {
    fn new(model: &Model, limits: Limits, bytes: u64) -> Self {
        let device = CpuDevice::new(Some(2));
        let programs = vec![lower_for(&device.caps(), &model.spec, &model.index).expect("lowers")];
        let tree = PrefixTree::new(bytes, &budget(model, &limits));
        let exec = device.compile(programs, &model.weights, limits).expect("compiles");
        Self { sequences: Sequences::new(exec), tree, key: ContextKey::default(), marks: Vec::new() }
    }

    fn prompt<'a>(&'a self, tokens: &'a [TokenId]) -> Prompt<'a> {
        Prompt { key: &self.key, tokens, marks: &self.marks, tainted_from: None }
    }

    fn prefill(&mut self, tokens: &[TokenId], tainted_from: Option<usize>) -> Result<(Opened, Vec<f32>), ExecError> {
        let mut logits = vec![0.0; self.sequences.exec().vocab(TRUNK)];
        let prompt = Prompt { key: &self.key, tokens, marks: &self.marks, tainted_from };
        let opened = self.tree.prefill(&mut self.sequences, TRUNK, &prompt, &mut logits)?;
        Ok((opened, logits))
    }

    /// The last row's logits of a prompt, and how much of it was not computed again.
    fn ask(&mut self, tokens: &[TokenId]) -> (usize, Vec<f32>) {
        let (opened, logits) = self.prefill(tokens, None).unwrap_or_else(|e| panic!("{e}"));
        self.sequences.close(opened.sequence).expect("open");
        (opened.reused, logits)
    }

    /// Feeds tokens one by one, as a turn of the assistant would.
    fn decode(&mut self, sequence: plan::SequenceId, tokens: &[TokenId]) -> Vec<f32> {
        let mut logits = vec![0.0; self.sequences.exec().vocab(TRUNK)];
        for token in tokens {
            let feed = Feed { sequence, tokens: &[*token], want: Want::Last };
            self.tree.run(&mut self.sequences, TRUNK, &[feed], &mut logits).unwrap_or_else(|e| panic!("{e}"));
        }
        logits
    }

    fn check_all_is_free_when_cleared(mut self) {
        self.tree.clear(&mut self.sequences);
        assert_eq!((self.tree.bytes(), self.tree.len()), (0, 0));
        let exec = self.sequences.exec();
        for window in exec.windows() {
            assert_eq!(self.sequences.free_blocks_of(*window), exec.limits().blocks_of(*window));
        }
        assert!(!exec.has_fixed_states() || self.sequences.free_slots() == exec.limits().state_slots);
    }
}

fn roomy(rows: usize) -> Limits {
    Limits { rows, wanted: rows, blocks: 400, sequences: 20, kv: F32, state_slots: 64 }
}

fn ids(seed: u64, count: usize, model: &Model) -> Vec<TokenId> {
    Random::new(seed).tokens(count, model.spec.vocab).into_iter().map(TokenId).collect()
}

/// One window of 4 and one layer that sees everything.
fn tiny() -> Model {
    synthetic(1, &Options::tiny()).model()
}

fn golden(name: &str) -> Model {
    let file = families().into_iter().find(|f| f.model == name && f.file == "model.safetensors").expect("is there");
    Model::open(&file.path())
}

/// Delta rule and attention.
fn hybrid() -> Model {
    golden("qwen3_5")
}

/// Full, windowed, windowed with sinks, shared caches, hybrid, n-gram and recurrent.
fn kinds() -> Vec<(&'static str, Model)> {
    ["llama", "mistral", "gemma3", "gpt_oss", "gemma4_e", "qwen3_5", "qwen4_exp"]
        .map(|name| (name, golden(name)))
        .to_vec()
}

/// The logits of a prompt that nothing is known of.
fn cold(model: &Model, tokens: &[TokenId]) -> Vec<f32> {
    Cached::new(model, roomy(256), 0).ask(tokens).1
}

#[track_caller]
fn same(found: &[f32], expected: &[f32], what: impl std::fmt::Display) {
    let difference = turbospark_conformance::difference(found, expected);
    assert!(difference.is_none(), "{what}: {}", difference.map(|d| d.to_string()).unwrap_or_default());
}

fn join(parts: &[&[TokenId]]) -> Vec<TokenId> {
    parts.concat()
}

#[test]
fn d20_a_cached_repeat_changes_no_bit() {
    for (name, model) in kinds().into_iter().chain([("tiny", tiny())]) {
        let prompt = ids(20, 37, &model);
        let expected = cold(&model, &prompt);
        for rows in [1, 5, 16, 36, 37] {
            let mut cached = Cached::new(&model, roomy(rows), u64::MAX);
            for repeat in 0..3 {
                let (reused, found) = cached.ask(&prompt);
                same(&found, &expected, format!("{name}, {rows} rows, repeat {repeat}"));
                assert!(repeat == 0 && reused == 0 || repeat > 0 && (32..37).contains(&reused), "{name}: {reused}");
            }
            let reuse = cached.tree.reuse();
            assert_eq!((reuse.lookups, reuse.hits, reuse.tokens), (3, 2, 3 * 37));
            cached.check_all_is_free_when_cleared();
        }
    }
}

#[test]
fn d21_a_window_is_reused_where_its_keys_are_still_held_and_nowhere_else() {
    let model = tiny();
    let (a, b) = (ids(21, 20, &model), ids(22, 5, &model));
    for (rows, length) in [(256, 20), (4, 20), (4, 200)] {
        let a = join(&[&a, &ids(23, length - 20, &model)]);
        for k in 0..=length {
            let mut cached = Cached::new(&model, roomy(rows), u64::MAX);
            cached.ask(&a);
            let prompt = join(&[&a[..k], &b]);
            let (reused, found) = cached.ask(&prompt);
            same(&found, &cold(&model, &prompt), format!("{k} of {length}, {rows} rows"));
            // Chance may prolong what both have in common.
            let common = a.iter().zip(&prompt).take_while(|(a, b)| a == b).count().min(prompt.len() - 1);
            // A short past loses no block; of a long one, the nearest state kept on the way serves.
            if length == 20 {
                assert_eq!(reused, common, "{k} of {length}, {rows} rows");
            } else {
                assert!(reused <= common && reused + 64 >= common.min(128), "{reused} of {common}");
                assert!(common < length - 5 || reused == common, "{reused} of {common}: the window is still there");
            }
        }
    }
}

#[test]
fn d22_attention_and_recurrent_state_come_back_together_at_one_boundary() {
    let model = hybrid();
    let (a, c) = (ids(24, 64, &model), ids(25, 9, &model));
    for (k, expected) in [(40, 32), (48, 48), (64, 64), (63, 48), (15, 0)] {
        let mut cached = Cached::new(&model, roomy(256), u64::MAX);
        cached.marks = vec![16, 32, 48];
        cached.ask(&a);
        let prompt = join(&[&a[..k], &c]);
        let (reused, found) = cached.ask(&prompt);
        assert_eq!(reused, expected, "after {k} common tokens");
        same(&found, &cold(&model, &prompt), format!("after {k} common tokens"));
    }
}

#[test]
fn d23_a_repeat_and_a_growing_chat_feed_only_what_is_new() {
    for (name, model) in [("tiny", tiny()), ("hybrid", hybrid())] {
        let mut cached = Cached::new(&model, roomy(64), u64::MAX);
        let prompt = ids(26, 200, &model);
        assert_eq!(cached.ask(&prompt).0, 0);
        let (reused, _) = cached.ask(&prompt);
        assert!((184..200).contains(&reused), "{name}: {reused} of 200");

        // Each turn: the whole past, a question, an answer decoded after it, and a mark where that ends.
        let mut past: Vec<TokenId> = Vec::new();
        for turn in 0..6 {
            let answered = past.len();
            past.extend(ids(30 + turn, 23, &model));
            let (opened, found) = cached.prefill(&past, None).expect("fits");
            assert_eq!(opened.reused, answered, "{name}, turn {turn}: only the question is fed");
            same(&found, &cold(&model, &past), format!("{name}, turn {turn}"));
            let answer = ids(40 + turn, 31, &model);
            cached.decode(opened.sequence, &answer);
            past.extend(answer);
            let (key, sequence) = (cached.key.clone(), opened.sequence);
            let end = Prompt { key: &key, tokens: &past, marks: &[], tainted_from: None };
            assert!(cached.tree.keep(&mut cached.sequences, sequence, &end).expect("open"));
            cached.sequences.close(sequence).expect("open");
        }
        // An edit in the middle costs what follows the nearest state before it; which tokens are known is told.
        let mut edited = past.clone();
        edited[170] = TokenId((edited[170].0 + 1) % model.spec.vocab as u32);
        let (opened, found) = cached.prefill(&edited, None).expect("fits");
        assert_eq!(opened.known, 170);
        assert!(opened.reused + 31 + 16 >= 170, "{name}: {opened:?}");
        same(&found, &cold(&model, &edited), format!("{name}, edited"));
        cached.sequences.close(opened.sequence).expect("open");
        let reuse = cached.tree.reuse();
        assert_eq!((reuse.lookups, reuse.hits, reuse.evictions), (9, 7, 0), "{name}");
        cached.check_all_is_free_when_cleared();
    }
}

#[test]
fn d24_a_later_pass_starts_from_the_stored_state_at_every_cut() {
    for model in [hybrid(), golden("qwen4_exp")] {
        for length in [1, 2, 31, 32, 33, 63, 64, 65, 127, 200] {
            let prompt = ids(27, length, &model);
            let expected = cold(&model, &prompt);
            for cut in (7..length).step_by(7) {
                let mut cached = Cached::new(&model, roomy(256), u64::MAX);
                cached.marks = vec![cut];
                cached.ask(&prompt[..cut]);
                let (reused, found) = cached.ask(&prompt);
                assert_eq!(reused, cut);
                same(&found, &expected, format!("{cut} of {length}"));
            }
        }
    }
}

#[test]
fn d25_nothing_is_shared_between_contexts() {
    let model = tiny();
    let prompt = ids(28, 40, &model);
    let vector = |content: &[u8], scale: f32| {
        ContextKey::default().with("steering v1", content).with("scale", &scale.to_le_bytes())
    };
    let mut cached = Cached::new(&model, roomy(64), u64::MAX);
    // The same name, another content; the same content, another scale.
    for key in [vector(b"A", 1.0), vector(b"B", 1.0), vector(b"A", 0.5), ContextKey::default()] {
        cached.key = key;
        assert_eq!(cached.ask(&prompt).0, 0);
        assert_eq!(cached.ask(&prompt).0, 39);
    }
    assert_ne!(ContextKey::default().with("a", b"bc"), ContextKey::default().with("ab", b"c"));
    // An injected row and what follows it are neither kept nor found.
    cached.key = vector(b"C", 1.0);
    for reused in [0, 20, 20] {
        let (opened, _) = cached.prefill(&prompt, Some(20)).expect("fits");
        assert_eq!(opened.reused, reused);
        cached.sequences.close(opened.sequence).expect("open");
    }
}

/// Conversations that go on, fork and are edited, in a tree too small for all: never another bit, never a byte too many.
#[test]
fn random_chats_in_a_small_tree_have_the_bits_of_cold_runs() {
    for (name, model) in kinds().into_iter().chain([("tiny", tiny())]) {
        let limits = Limits { rows: 24, wanted: 1, blocks: 12, sequences: 3, kv: F32, state_slots: 7 };
        for (seed, limit) in [(1, u64::MAX), (2, budget(&model, &limits).states / 3)] {
            let mut cached = Cached::new(&model, limits, limit);
            let mut random = Random::new(seed);
            let mut chats: Vec<Vec<TokenId>> = vec![ids(seed, 40, &model)];
            for turn in 0..14 {
                let mut chat = chats[random.below(chats.len())].clone();
                if random.below(3) == 0 {
                    chat.truncate(1 + random.below(chat.len()));
                }
                if chat.len() > 150 {
                    chat.truncate(30);
                }
                chat.extend(ids(100 * seed + turn, 1 + random.below(40), &model));
                cached.marks = vec![random.below(chat.len())];
                let (_, found) = cached.ask(&chat);
                same(&found, &cold(&model, &chat), format!("{name}, seed {seed}, turn {turn}"));
                assert!(cached.tree.bytes() <= limit, "{} of {limit}", cached.tree.bytes());
                chats.push(chat);
            }
            let reuse = cached.tree.reuse();
            assert!(reuse.hits > 0 && reuse.evictions > 0, "{name}: {reuse:?}");
            cached.check_all_is_free_when_cleared();
        }
    }
}

fn budget(model: &Model, limits: &Limits) -> Budget {
    let device = CpuDevice::new(Some(2));
    let programs = [lower_for(&device.caps(), &model.spec, &model.index).expect("lowers")];
    device.memory(&programs, &model.weights, limits).expect("is counted")
}

#[test]
fn bytes_are_those_of_what_is_held_each_counted_once() {
    let model = hybrid();
    let limits = roomy(256);
    let budget = budget(&model, &limits);
    let (block, slot) = (budget.groups[0].block(), budget.slot);
    let mut cached = Cached::new(&model, limits, u64::MAX);
    let prompt = ids(29, 64, &model);
    cached.marks = vec![32];
    cached.ask(&prompt);
    // States at 32, 48 and 64, a copy each; the first block serves them all, the second was half full at 48 and left.
    assert_eq!((cached.tree.len(), cached.tree.bytes()), (3, 3 * block + 3 * slot));
    cached.tree.evict(&mut cached.sequences);
    assert_eq!((cached.tree.len(), cached.tree.bytes()), (2, 3 * block + 2 * slot));
    cached.tree.evict(&mut cached.sequences);
    assert_eq!((cached.tree.len(), cached.tree.bytes()), (1, 2 * block + slot));
    cached.check_all_is_free_when_cleared();
}

#[test]
fn a_state_is_kept_only_under_the_tokens_it_has_seen() {
    let model = tiny();
    let mut cached = Cached::new(&model, roomy(64), u64::MAX);
    let tokens = ids(1, 10, &model);
    let (opened, _) = cached.prefill(&tokens, None).expect("fits");
    let key = ContextKey::default();
    let wrong = Prompt { key: &key, tokens: &tokens[..9], marks: &[], tainted_from: None };
    let error = cached.tree.keep(&mut cached.sequences, opened.sequence, &wrong).expect_err("is at 10");
    assert!(matches!(error, ExecError::WrongPast { position: 10, tokens: 9 }), "{error}");
    assert!(matches!(cached.prefill(&[], None), Err(ExecError::Empty)));
    assert!(cached.tree.stops(&cached.sequences, &cached.prompt(&tokens), 0).iter().all(|stop| *stop < 10));
}
