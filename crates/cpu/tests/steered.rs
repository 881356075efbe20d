//! Steering on every golden family: the CPU device against the reference, and the same bits however a prompt is cut up.

use foundation::TokenId;
use model::Source;
use plan::reference::ReferenceDevice;
use plan::{
    Device, Edit, Exec, Feed, KvType, KvTypes, Limits, Outputs, Passes, Place, Point, ProgramId, SequenceId, Sequences,
    Steer, SteerMode, Want, lower_for, lower_with,
};
use testkit::{GoldenFile, Model, Random, families, nmse};
use turbospark_cpu::CpuDevice;
use weights::Tensor;

const MODES: [SteerMode; 4] = [SteerMode::Add, SteerMode::Ablate, SteerMode::Clamp { target: 0.5 }, SteerMode::Renorm];

/// A golden model with a direction for each mode at one of its layers.
struct Steered {
    model: Model,
    tokens: Vec<TokenId>,
    steering: Vec<Steer>,
}

impl Steered {
    fn of(golden: &GoldenFile) -> Self {
        let mut model = Model::open(&golden.path());
        let (width, layers) = (model.spec.hidden, model.spec.layers.len());
        let mut random = Random::new(11);
        let mut steer = |(at, mode): (usize, SteerMode)| {
            let name = format!("steering {at}");
            model.weights.insert(Tensor::from_f32(name.as_str(), vec![width], &random.normals(width, 0.0, 0.3)));
            let edit = Edit { mode, strength: 0.7, threshold: 0.0 };
            Steer { layer: at % layers, direction: Source::tensor(name), width, edit }
        };
        let steering = MODES.into_iter().enumerate().map(&mut steer).collect();
        let tokens = golden.expected().tokens.iter().copied().map(TokenId).collect();
        Self { model, tokens, steering }
    }

    /// All positions' logits, and the residual stream after each layer.
    fn run<D: Device>(&self, device: &D, steering: &[Steer], chunk: usize) -> (Vec<f32>, Vec<Vec<f32>>) {
        let (mut sequences, sequence) = self.open(device, steering);
        let layers = sequences.exec().taps(ProgramId(0)).len();
        let vocab = sequences.exec().vocab(ProgramId(0));
        let (mut all, mut streams) = (Vec::new(), vec![Vec::new(); layers]);
        for tokens in self.tokens.chunks(chunk) {
            let (mut logits, mut taps) = (vec![0.0; tokens.len() * vocab], vec![Vec::new(); layers]);
            let outputs = Outputs { logits: &mut logits, taps: &mut taps };
            sequences.run_tapped(ProgramId(0), &[Feed { sequence, tokens, want: Want::All }], outputs).expect("runs");
            all.extend(logits);
            streams.iter_mut().zip(taps).for_each(|(stream, tap)| stream.extend(tap));
        }
        (all, streams)
    }

    fn open<D: Device>(&self, device: &D, steering: &[Steer]) -> (Sequences<D::Exec>, SequenceId) {
        let residual = |place: Place| place.point == Point::Residual;
        let passes = Passes { steering, tapped: Some(&residual), ..Passes::default() };
        let Model { spec, index, weights, .. } = &self.model;
        let program = lower_with(&device.caps(), spec, index, &passes).unwrap_or_else(|e| panic!("{e}"));
        let rows = self.tokens.len();
        let limits = Limits { wanted: rows, ..Limits::for_context(4 * rows, rows, KvTypes::both(KvType::F32)) };
        let mut sequences = Sequences::new(device.compile(vec![program], weights, limits).expect("compiles"));
        let sequence = sequences.open();
        (sequences, sequence)
    }
}

fn goldens() -> impl Iterator<Item = GoldenFile> {
    families().into_iter().filter(|golden| golden.file == "model.safetensors")
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn every_family_steers_as_the_reference_does_and_no_cut_changes_a_bit() {
    let mut failures = Vec::new();
    for golden in goldens() {
        let (steered, device) = (Steered::of(&golden), CpuDevice::new(Some(2)));
        let (whole, streams) = steered.run(&device, &steered.steering, usize::MAX);
        let (plain, plain_streams) = steered.run(&device, &[], usize::MAX);
        let (oracle, oracle_streams) = steered.run(&ReferenceDevice, &steered.steering, usize::MAX);
        let mut check = |what: String, holds: bool| {
            if !holds {
                failures.push(format!("{}: {what}", golden.model));
            }
        };
        // Choices of experts and of blocks are no smooth functions; where a near tie falls otherwise, a row differs.
        let error = nmse(&whole, &oracle);
        println!("{:20} NMSE {error:.1e}, moved by {:.1e}", golden.model, nmse(&whole, &plain));
        check(format!("NMSE {error} from the reference"), error <= 1e-6);
        check("nothing moved".to_owned(), nmse(&whole, &plain) > 1e-4);
        let first = nmse(&streams[0], &oracle_streams[0]);
        check(format!("the first layer is off by {first}"), first <= 1e-9);
        check("the first layer is not steered".to_owned(), bits(&streams[0]) != bits(&plain_streams[0]));
        for chunk in [1, 7] {
            check(
                format!("chunks of {chunk}"),
                bits(&steered.run(&device, &steered.steering, chunk).0) == bits(&whole),
            );
        }
        let (mut sequences, sequence) = steered.open(&device, &steered.steering);
        let other = sequences.open();
        let vocab = whole.len() / steered.tokens.len();
        let (mut mine, mut others) = (Vec::new(), Vec::new());
        for at in (0..60).step_by(6) {
            let feeds = [
                Feed { sequence, tokens: &steered.tokens[at..at + 6], want: Want::All },
                Feed { sequence: other, tokens: &steered.tokens[at / 2..at / 2 + 3], want: Want::All },
            ];
            let mut logits = vec![0.0; 9 * vocab];
            sequences.run(ProgramId(0), &feeds, &mut logits).expect("runs");
            mine.extend_from_slice(&logits[..6 * vocab]);
            others.extend_from_slice(&logits[6 * vocab..]);
        }
        check("the first of two sequences".to_owned(), bits(&mine) == bits(&whole[..mine.len()]));
        check("the second of two sequences".to_owned(), bits(&others) == bits(&whole[..others.len()]));
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn a_strength_of_zero_leaves_no_trace() {
    for golden in goldens() {
        let mut steered = Steered::of(&golden);
        steered.steering.iter_mut().for_each(|s| s.edit.strength = 0.0);
        let Model { spec, index, .. } = &steered.model;
        let caps = CpuDevice::new(Some(1)).caps();
        let passes = Passes { steering: &steered.steering, ..Passes::default() };
        let program = lower_with(&caps, spec, index, &passes).expect("lowers");
        assert_eq!(program, lower_for(&caps, spec, index).expect("lowers"), "{}", golden.model);
    }
}

/// Each mode does to every stream what its definition says, and touches nothing before its layer.
#[test]
fn an_edit_is_what_its_definition_says_and_local_to_its_layer() {
    for golden in goldens() {
        let (steered, device) = (Steered::of(&golden), CpuDevice::new(Some(2)));
        let (_, plain) = steered.run(&device, &[], usize::MAX);
        let layer = plain.len() - 1;
        for steer in &steered.steering {
            let (mode, width) = (steer.edit.mode, steer.width);
            let only = [Steer { layer, ..steer.clone() }];
            let (_, streams) = steered.run(&device, &only, usize::MAX);
            for before in 0..layer {
                assert_eq!(bits(&streams[before]), bits(&plain[before]), "{} {mode:?}: layer {before}", golden.model);
            }
            let Source::Tensor(name) = &steer.direction else { panic!("a tensor") };
            let direction = steered.model.weights.require(name).expect("inserted").to_f32().expect("floats");
            let length = direction.iter().map(|d| f64::from(*d).powi(2)).sum::<f64>().sqrt();
            let along = |x: &[f32]| x.iter().zip(&direction).map(|(x, d)| f64::from(x * d)).sum::<f64>() / length;
            let norm = |x: &[f32]| x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            for (before, after) in plain[layer].chunks(width).zip(streams[layer].chunks(width)) {
                let (was, is, size) = (along(before), along(after), norm(before));
                let close = |a: f64, b: f64| assert!((a - b).abs() <= 1e-4 * (1.0 + size), "{mode:?}: {a} for {b}");
                match mode {
                    SteerMode::Add => close(is, was + 0.7 * length),
                    SteerMode::Ablate => close(is, 0.3 * was),
                    SteerMode::Clamp { target } => close(is, was + 0.7 * (f64::from(target) - was)),
                    SteerMode::Renorm => {
                        close(norm(after), size);
                        let left = (size * size - 0.91 * was * was).sqrt();
                        close(is, 0.3 * was * size / left);
                    }
                }
            }
        }
    }
}

#[test]
fn rows_below_the_threshold_stay() {
    let golden = goldens().next().expect("a model");
    let (steered, device) = (Steered::of(&golden), CpuDevice::new(Some(2)));
    let (_, plain) = steered.run(&device, &[], usize::MAX);
    let edit = Edit { threshold: 1e30, ..steered.steering[0].edit };
    let (_, streams) = steered.run(&device, &[Steer { edit, ..steered.steering[0].clone() }], usize::MAX);
    assert!(streams.iter().zip(&plain).all(|(a, b)| bits(a) == bits(b)));
}
