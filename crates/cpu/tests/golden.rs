//! Every golden model on the CPU device: close to the publisher's logits, and the same bits however the prompt is cut up.

use foundation::TokenId;
use plan::{
    Device, Exec, Feed, KvType, KvTypes, Limits, Outputs, Passes, Place, Point, ProgramId, SequenceId, Sequences, Want,
    lower_with,
};
use testkit::{GoldenFile, Model, families};
use turbospark_cpu::{CpuDevice, CpuExec};

struct Run {
    sequences: Sequences<CpuExec>,
    sequence: SequenceId,
    tokens: Vec<TokenId>,
    vocab: usize,
}

impl Run {
    fn open(golden: &GoldenFile) -> Self {
        let (model, expected) = (Model::open(&golden.path()), golden.expected());
        let device = CpuDevice::new(Some(2));
        let residual = |place: Place| place.point == Point::Residual;
        let passes = Passes { tapped: Some(&residual), ..Passes::default() };
        let program = lower_with(&device.caps(), &model.spec, &model.index, &passes).unwrap_or_else(|e| panic!("{e}"));
        let rows = expected.tokens.len();
        let limits = Limits { wanted: rows, ..Limits::for_context(4 * rows, rows, KvTypes::both(KvType::F32)) };
        let exec = device.compile(vec![program], &model.weights, limits).unwrap_or_else(|e| panic!("{e}"));
        let mut sequences = Sequences::new(exec);
        let sequence = sequences.open();
        let tokens = expected.tokens.iter().copied().map(TokenId).collect();
        Self { sequences, sequence, tokens, vocab: expected.vocab }
    }

    /// The logits of the tokens from the present position on, `chunk` at a time.
    fn rest(&mut self, chunk: usize) -> Vec<f32> {
        let from = self.sequences.position(self.sequence).expect("is open");
        let mut all = Vec::new();
        for tokens in self.tokens[from..].chunks(chunk) {
            let mut logits = vec![0.0; tokens.len() * self.vocab];
            let feed = Feed { sequence: self.sequence, tokens, want: Want::All };
            self.sequences.run(ProgramId(0), &[feed], &mut logits).expect("runs");
            all.extend(logits);
        }
        all
    }

    /// The logits of all tokens, and the residual stream after each layer.
    fn whole(&mut self) -> (Vec<f32>, Vec<Vec<f32>>) {
        let mut logits = vec![0.0; self.tokens.len() * self.vocab];
        let mut layers = vec![Vec::new(); self.sequences.exec().taps(ProgramId(0)).len()];
        let feed = Feed { sequence: self.sequence, tokens: &self.tokens, want: Want::All };
        let outputs = Outputs { logits: &mut logits, taps: &mut layers };
        self.sequences.run_tapped(ProgramId(0), &[feed], outputs).expect("runs");
        (logits, layers)
    }

    fn rewind(&mut self, to: usize) -> usize {
        self.sequences.rewind(self.sequence, to).expect("is open")
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn logits_match_the_publishers_and_no_chunk_size_changes_a_bit() {
    let mut failures = Vec::new();
    for golden in families() {
        let mut run = Run::open(&golden);
        let (whole, layers) = run.whole();
        let error = golden.errors(&whole).into_iter().fold(0.0, f32::max);
        println!("{:20} {:24} cpu max {error:.1e}", golden.model, golden.file);
        let mut check = |what: &str, holds: bool| {
            if !holds {
                failures.push(format!("{}/{}: {what}", golden.model, golden.file));
            }
        };
        check(&format!("max {error}"), error <= 1e-3);
        for (layer, error) in golden.layers_off(&layers) {
            check(&format!("layer {layer} is off by {error}"), false);
        }
        for chunk in [1, 7] {
            run.rewind(0);
            check(&format!("chunks of {chunk}"), bits(&run.rest(chunk)) == bits(&whole));
        }
        for to in [61, 33, 8, 1] {
            let reached = run.rewind(to);
            check(&format!("rewound to {reached} instead of at most {to}"), reached <= to);
            check(&format!("rewound to {reached}"), bits(&run.rest(5)) == bits(&whole[reached * run.vocab..]));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn a_batch_of_sequences_gives_each_the_bits_it_has_alone() {
    for golden in families() {
        let mut run = Run::open(&golden);
        let whole = run.rest(usize::MAX);
        run.rewind(0);
        let other = run.sequences.open();
        let (vocab, tokens) = (run.vocab, run.tokens.clone());
        let (mut mine, mut others) = (Vec::new(), Vec::new());
        for at in (0..60).step_by(6) {
            let behind = at / 2..at / 2 + 3;
            let mut logits = vec![0.0; 9 * vocab];
            let feeds = [
                Feed { sequence: run.sequence, tokens: &tokens[at..at + 6], want: Want::All },
                Feed { sequence: other, tokens: &tokens[behind], want: Want::All },
            ];
            run.sequences.run(ProgramId(0), &feeds, &mut logits).expect("runs");
            mine.extend_from_slice(&logits[..6 * vocab]);
            others.extend_from_slice(&logits[6 * vocab..]);
        }
        for (what, got) in [("first", mine), ("second", others)] {
            assert!(bits(&got) == bits(&whole[..got.len()]), "{}/{}: the {what} sequence", golden.model, golden.file);
        }
    }
}

#[test]
fn a_fork_and_a_snapshot_continue_as_the_sequence_would() {
    for golden in families() {
        let mut run = Run::open(&golden);
        let whole = run.rest(usize::MAX);
        run.rewind(0);
        let vocab = run.vocab;
        let tokens = run.tokens.clone();
        let feed = |run: &mut Run, sequence, range: std::ops::Range<usize>| {
            let mut logits = vec![0.0; range.len() * vocab];
            let feed = Feed { sequence, tokens: &tokens[range.clone()], want: Want::All };
            run.sequences.run(ProgramId(0), &[feed], &mut logits).expect("runs");
            assert!(
                bits(&logits) == bits(&whole[range.start * vocab..range.end * vocab]),
                "{} {range:?}",
                golden.model
            );
        };
        let sequence = run.sequence;
        feed(&mut run, sequence, 0..20);
        let snapshot = run.sequences.snapshot(sequence).expect("is open");
        let fork = run.sequences.fork(sequence).expect("is open");
        feed(&mut run, sequence, 20..41);
        feed(&mut run, fork, 20..30);
        run.sequences.restore(sequence, &snapshot).expect("is open");
        feed(&mut run, sequence, 20..33);
        feed(&mut run, fork, 30..31);
        run.sequences.release(snapshot);
        run.sequences.close(fork).expect("is open");
        feed(&mut run, sequence, 33..50);
    }
}
