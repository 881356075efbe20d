//! One random schedule.
//!
//! Every sequence follows one of a few texts, whose cold logits are known; two of the texts begin alike.

use foundation::TokenId;
use plan::{Budget, ContextKey, Exec, ExecError, Feed, PrefixTree, Prompt, SequenceId, Sequences, Snapshot, Want};
use std::collections::BTreeMap;
use testkit::Random;
use turbospark_conformance::{TRUNK, difference};

/// Where the second text departs from the first.
const FORK: usize = 41;

/// Most sequences at once.
const LIVE: usize = 5;

/// Most snapshots at once, those of the tree not counted.
const KEPT: usize = 4;

/// Most rows of one run.
const ROWS: usize = 90;

/// Texts and the logits of each row, from one cold run each.
pub(crate) struct Texts {
    texts: Vec<Vec<TokenId>>,
    expected: Vec<Vec<f32>>,
    vocab: usize,
    /// What the model's state costs, for the prefix tree.
    budget: Budget,
}

impl Texts {
    pub(crate) fn new<E: Exec>(exec: E, budget: Budget, length: usize, seed: u64) -> Self {
        let vocab = exec.vocab(TRUNK);
        let mut random = Random::new(seed);
        let mut draw = || random.tokens(length, vocab).into_iter().map(TokenId).collect::<Vec<_>>();
        let mut texts = vec![draw(), draw(), draw()];
        texts[1] = texts[0][..FORK].iter().chain(&texts[1][FORK..]).copied().collect();
        let mut sequences = Sequences::new(exec);
        let mut cold = |tokens: &Vec<TokenId>| {
            let sequence = sequences.open();
            let mut logits = vec![0.0; length * vocab];
            let feed = Feed { sequence, tokens, want: Want::All };
            sequences.run(TRUNK, &[feed], &mut logits).expect("runs");
            sequences.close(sequence).expect("open");
            logits
        };
        let expected = texts.iter().map(&mut cold).collect();
        Self { texts, expected, vocab, budget }
    }

    fn length(&self) -> usize {
        self.texts[0].len()
    }
}

/// What can happen.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Several sequences go on in one run.
    Feed,
    /// A second sequence with the same past.
    Fork,
    /// Back to any earlier position.
    Rewind,
    /// Other tokens, taken back.
    Detour,
    /// Keeps a state.
    Keep,
    /// Puts a kept state into any sequence.
    Restore,
    /// Goes on with another text that begins alike.
    Depart,
    /// Ends a sequence.
    Close,
    /// Keeps a state in the prefix tree.
    Insert,
    /// Begins from the prefix tree.
    Hit,
    /// The prefix tree gives something up.
    Evict,
}

const OPERATIONS: [Operation; 16] = [
    Operation::Feed,
    Operation::Feed,
    Operation::Feed,
    Operation::Feed,
    Operation::Feed,
    Operation::Feed,
    Operation::Fork,
    Operation::Rewind,
    Operation::Detour,
    Operation::Keep,
    Operation::Restore,
    Operation::Depart,
    Operation::Close,
    Operation::Insert,
    Operation::Hit,
    Operation::Evict,
];

/// A place in a text.
#[derive(Clone, Copy, Debug)]
struct Past {
    text: usize,
    at: usize,
}

/// A schedule under way.
pub(crate) struct Schedule<'a, E> {
    sequences: Sequences<E>,
    texts: &'a Texts,
    random: Random,
    live: Vec<(SequenceId, Past)>,
    kept: Vec<(Snapshot, Past)>,
    tree: PrefixTree,
    key: ContextKey,
    /// What happened, and how often.
    done: &'a mut BTreeMap<String, usize>,
}

impl<'a, E: Exec> Schedule<'a, E> {
    /// Runs the schedule of a seed; the sequences come back as empty as they were.
    pub(crate) fn run(
        sequences: Sequences<E>,
        texts: &'a Texts,
        seed: u64,
        done: &'a mut BTreeMap<String, usize>,
    ) -> (Result<(), String>, Sequences<E>) {
        let free = free(&sequences);
        let mut schedule = Self {
            sequences,
            texts,
            random: Random::new(seed),
            live: Vec::new(),
            kept: Vec::new(),
            tree: PrefixTree::new(u64::MAX, &texts.budget),
            key: ContextKey::default(),
            done,
        };
        schedule.happened("schedules");
        let mut result = Ok(());
        for step in 0..14 {
            let operation = schedule.random.pick(&OPERATIONS);
            result = schedule.apply(operation).map_err(|wrong| format!("step {step}, {operation:?}: {wrong}"));
            if result.is_err() {
                break;
            }
        }
        let Self { mut sequences, live, kept, mut tree, .. } = schedule;
        tree.clear(&mut sequences);
        live.into_iter().for_each(|(id, _)| sequences.close(id).expect("open"));
        kept.into_iter().for_each(|(snapshot, _)| sequences.release(snapshot));
        let left = self::free(&sequences);
        let result =
            result.and_then(|()| if left == free { Ok(()) } else { Err(format!("{left:?} free of {free:?}")) });
        (result, sequences)
    }

    fn happened(&mut self, what: &str) {
        *self.done.entry(what.to_owned()).or_default() += 1;
    }

    fn apply(&mut self, operation: Operation) -> Result<(), String> {
        if self.live.is_empty() {
            let text = self.random.below(self.texts.texts.len());
            self.live.push((self.sequences.open(), Past { text, at: 0 }));
        }
        let at = self.random.below(self.live.len());
        let (id, past) = self.live[at];
        match operation {
            Operation::Feed => self.feed()?,
            Operation::Fork if self.live.len() < LIVE => {
                let fork = self.sequences.fork(id).map_err(text)?;
                self.live.push((fork, past));
                self.happened("fork");
            }
            Operation::Rewind if past.at > 0 => {
                let to = self.random.below(past.at);
                self.rewind(at, to)?;
                self.happened("rewind");
            }
            Operation::Detour => {
                let count = 1 + self.random.below(30);
                let wrong: Vec<_> = self.random.tokens(count, self.texts.vocab).into_iter().map(TokenId).collect();
                let feed = Feed { sequence: id, tokens: &wrong, want: Want::Nothing };
                if self.make_way(|s| s.run(TRUNK, &[feed], &mut []))? {
                    self.rewind(at, past.at)?;
                    self.happened("detour");
                }
            }
            Operation::Keep if self.kept.len() < KEPT => {
                let snapshot = self.sequences.snapshot(id).map_err(text)?;
                self.kept.push((snapshot, past));
                self.happened("keep");
            }
            Operation::Restore if !self.kept.is_empty() => {
                let (snapshot, past) = &self.kept[self.random.below(self.kept.len())];
                self.sequences.restore(id, snapshot).map_err(text)?;
                let swapped = past.text != self.live[at].1.text;
                self.live[at].1 = *past;
                self.happened(if swapped { "swap" } else { "restore" });
            }
            Operation::Depart if past.at <= FORK && past.text < 2 => {
                self.live[at].1.text = 1 - past.text;
                self.happened("depart");
            }
            Operation::Close => {
                self.sequences.close(id).map_err(text)?;
                self.live.swap_remove(at);
                self.happened("close");
            }
            Operation::Insert => {
                let tokens = &self.texts.texts[past.text][..past.at];
                let prompt = Prompt { key: &self.key, tokens, marks: &[], tainted_from: None };
                let (tree, sequences) = (&mut self.tree, &mut self.sequences);
                loop {
                    match tree.keep(sequences, id, &prompt) {
                        Err(error) if is_full(&error) => {
                            if !tree.evict(sequences) {
                                break;
                            }
                        }
                        other => {
                            if other.map_err(text)? {
                                *self.done.entry("insert".to_owned()).or_default() += 1;
                            }
                            break;
                        }
                    }
                }
            }
            Operation::Hit if self.live.len() < LIVE => {
                let text = self.random.below(self.texts.texts.len());
                let end = 1 + self.random.below(self.texts.length());
                let tokens = &self.texts.texts[text][..end];
                let prompt = Prompt { key: &self.key, tokens, marks: &[], tainted_from: None };
                let opened = self.tree.open(&mut self.sequences, &prompt);
                self.live.push((opened.sequence, Past { text, at: opened.reused }));
                self.happened(if opened.reused > 0 { "hit" } else { "miss" });
            }
            Operation::Evict if self.tree.evict(&mut self.sequences) => self.happened("eviction"),
            _ => {}
        }
        Ok(())
    }

    /// Goes on with some sequences, each as far as it likes.
    fn feed(&mut self) -> Result<(), String> {
        let mut chosen = Vec::new();
        let mut left = ROWS;
        for at in 0..self.live.len() {
            let past = self.live[at].1;
            let most = (self.texts.length() - past.at).min(left);
            if most > 0 && self.random.below(3) > 0 {
                let rows = if self.random.below(3) == 0 { 1 } else { 1 + self.random.below(most) };
                left -= rows;
                let want = self.random.pick(&[Want::All, Want::All, Want::Last]);
                chosen.insert(self.random.below(chosen.len() + 1), (at, rows, want));
            }
        }
        if chosen.is_empty() {
            return Ok(());
        }
        let (texts, vocab) = (self.texts, self.texts.vocab);
        let feeds: Vec<_> = chosen
            .iter()
            .map(|(at, rows, want)| {
                let (sequence, past) = self.live[*at];
                Feed { sequence, tokens: &texts.texts[past.text][past.at..past.at + rows], want: *want }
            })
            .collect();
        let wanted: usize = feeds.iter().map(|feed| feed.want.rows(feed.tokens.len())).sum();
        let mut logits = vec![0.0; wanted * vocab];
        if !self.make_way(|s| s.run(TRUNK, &feeds, &mut logits))? {
            return Ok(());
        }
        self.happened("feed");
        if chosen.len() > 1 {
            self.happened("neighbours");
        }
        if chosen.iter().any(|(_, rows, _)| *rows == 1) {
            self.happened("chunk of one");
        }
        let mut rest = logits.as_slice();
        for (at, rows, want) in chosen {
            let past = self.live[at].1;
            let (found, later) = rest.split_at(want.rows(rows) * vocab);
            rest = later;
            let end = past.at + rows;
            let expected = &texts.expected[past.text][(end - want.rows(rows)) * vocab..end * vocab];
            if let Some(wrong) = difference(found, expected) {
                return Err(format!("text {} from {} to {end}: {wrong}", past.text, past.at));
            }
            self.live[at].1.at = end;
        }
        Ok(())
    }

    /// Where a sequence is afterwards is where the model can go on: never later than asked for.
    fn rewind(&mut self, at: usize, to: usize) -> Result<(), String> {
        let (id, _) = self.live[at];
        let reached = self.sequences.rewind(id, to).map_err(text)?;
        if reached > to || self.sequences.position(id).map_err(text)? != reached {
            return Err(format!("asked for {to}, came to {reached}"));
        }
        self.live[at].1.at = reached;
        Ok(())
    }

    /// Runs; while memory is short, the tree gives up first, then kept states. False if that is not enough: then nothing
    /// has happened.
    fn make_way(&mut self, mut run: impl FnMut(&mut Sequences<E>) -> Result<(), ExecError>) -> Result<bool, String> {
        loop {
            match run(&mut self.sequences) {
                Ok(()) => return Ok(true),
                Err(error) if !is_full(&error) => return Err(error.to_string()),
                Err(_) => {
                    self.happened("no room");
                    if self.tree.evict(&mut self.sequences) {
                        self.happened("eviction");
                    } else {
                        let Some((snapshot, _)) = self.kept.pop() else { return Ok(false) };
                        self.sequences.release(snapshot);
                    }
                }
            }
        }
    }
}

fn text(error: ExecError) -> String {
    error.to_string()
}

fn is_full(error: &ExecError) -> bool {
    matches!(error, ExecError::StateFull { .. } | ExecError::StateSlotsFull { .. })
}

/// Everything nobody holds.
fn free<E: Exec>(sequences: &Sequences<E>) -> (Vec<usize>, usize) {
    let windows = sequences.exec().windows().to_vec();
    (windows.into_iter().map(|window| sequences.free_blocks_of(window)).collect(), sequences.free_slots())
}
