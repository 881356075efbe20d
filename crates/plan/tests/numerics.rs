//! Numbers of the case list that do not come from a model: routing (D28), windows (D34), rotation (D35–D37), sinks (D38).

use model::{Pairing, Rope, RopeScaling, Routing, Score};
use turbospark_plan::reference::{Keys, attend, rotate, route, visible};

fn close(found: &[f32], expected: &[f32]) {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() < 2e-6 * b.abs().max(1.0);
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(near), "{found:?} is not {expected:?}");
}

fn rope(theta: f32, rotary_dim: usize, scaling: RopeScaling) -> Rope {
    Rope { theta, rotary_dim, pairing: Pairing::Half, scaling }
}

#[test]
fn d28_router_weights() {
    let logits = [2.0, 1.0, 0.0, -1.0];
    let routing = Routing { top_k: 2, score: Score::Softmax, groups: None, renormalise: false, scale: 1.0 };
    let weights = |routing: &Routing, bias: Option<&[f32]>| {
        let (experts, weights): (Vec<_>, Vec<_>) = route(&logits, routing, bias, None).into_iter().unzip();
        (experts, weights)
    };
    let (experts, plain) = weights(&routing, None);
    assert_eq!(experts, [0, 1]);
    close(&plain, &[0.643914, 0.236883]);
    let renormalised = Routing { renormalise: true, ..routing };
    close(&weights(&renormalised, None).1, &[0.731059, 0.268941]);
    let of_chosen = Routing { score: Score::SoftmaxOfChosen, ..routing };
    close(&weights(&of_chosen, None).1, &[0.731059, 0.268941]);
    // A bias chooses, but the weights are those of the unbiased scores.
    let (experts, biased) = weights(&routing, Some(&[0.0, 0.0, 0.0, 5.0]));
    assert_eq!(experts, [3, 0]);
    close(&biased, &[0.032059, 0.643914]);
    let scaled = Routing { scale: 2.5, ..routing };
    close(&weights(&scaled, None).1, &[1.609786, 0.592206]);
    let tied = route(&[1.0; 4], &routing, None, None);
    assert_eq!(tied.iter().map(|(e, _)| *e).collect::<Vec<_>>(), [0, 1], "ties go to the lower index");
}

/// Keys that all score the same, and values that say where they are.
struct Places(Vec<Vec<f32>>);

impl Places {
    fn new(count: usize) -> Self {
        let one_hot = |p| (0..count).map(|i| if i == p { 1.0 } else { 0.0 }).collect();
        Self((0..count).map(one_hot).collect())
    }
}

impl Keys for Places {
    fn key(&self, _: usize) -> &[f32] {
        &[0.0]
    }

    fn value(&self, position: usize) -> &[f32] {
        &self.0[position]
    }
}

#[test]
fn d34_a_window_of_four_sees_four() {
    let positions: Vec<usize> = visible(10, Some(4)).collect();
    assert_eq!(positions, [7, 8, 9, 10]);
    let mut out = [0.0; 12];
    attend(&[1.0], &Places::new(12), &positions, 1.0, None, &mut out);
    close(&out, &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.25, 0.25, 0.25, 0.25, 0.0]);
    assert_eq!(visible(2, Some(4)), 0..=2, "at the beginning there are fewer");
    assert_eq!(visible(10, None), 0..=10, "no window, no limit");
}

fn rotated(rope: &Rope, position: u32) -> Vec<f32> {
    let mut x: Vec<f32> = (1..=8).map(|x| x as f32).collect();
    rotate(&mut x, position, &rope.frequencies(None), rope.amplitude(), rope.pairing);
    x
}

/// x = 1…8 at position 3, base 10000, half-split.
const HALF: [f32; 8] = [-1.695593, 0.137552, 2.788682, 3.975982, -4.808842, 6.323059, 7.086837, 8.011964];

#[test]
fn d35_which_channels_pair() {
    close(&rotated(&rope(1e4, 8, RopeScaling::None), 3), &HALF);
    let interleaved = Rope { pairing: Pairing::Interleaved, ..rope(1e4, 8, RopeScaling::None) };
    let expected = [-1.272233, -1.838865, 1.683929, 4.707907, 4.817777, 6.147278, 6.975969, 8.020964];
    close(&rotated(&interleaved, 3), &expected);
    let partial = [-1.413353, 1.879118, -2.828857, 4.058191, 5.0, 6.0, 7.0, 8.0];
    close(&rotated(&rope(1e4, 4, RopeScaling::None), 3), &partial);
}

#[test]
fn d36_llama3_scales_in_three_bands() {
    let scaling =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192.0 };
    let ratios = |dim: usize| -> Vec<f32> {
        let (old, new) = (rope(5e5, dim, RopeScaling::None), rope(5e5, dim, scaling.clone()));
        new.frequencies(None).iter().zip(old.frequencies(None)).map(|(new, old)| new / old).collect()
    };
    close(&ratios(16), &[1.0, 1.0, 1.0, 1.0, 0.371122, 0.125, 0.125, 0.125]);
    let ratios = ratios(128);
    close(&ratios[..29], &[1.0; 29]);
    close(&ratios[29..35], &[0.828168, 0.643743, 0.493507, 0.371122, 0.271425, 0.190211]);
    close(&ratios[35..], &[0.125; 29]);
}

#[test]
fn d37_linear_scaling_divides_positions() {
    close(&rotated(&rope(1e4, 8, RopeScaling::Linear { factor: 8.0 }), 24), &HALF);
    for position in [0, 1, 24, 4000] {
        let local = rotated(&rope(1e4, 8, RopeScaling::None), position);
        let global = rotated(&rope(1e6, 8, RopeScaling::Linear { factor: 8.0 }), position);
        let by_formula = |theta: f64, factor: f64| -> Vec<f32> {
            let turn = |i: usize| position as f64 / factor * theta.powf(-2.0 * (i % 4) as f64 / 8.0);
            let pair = |i: usize| ((i % 4 + 1) as f64, (i % 4 + 5) as f64);
            let channel = |i: usize| {
                let ((x, y), (sin, cos)) = (pair(i), turn(i).sin_cos());
                (if i < 4 { x * cos - y * sin } else { x * sin + y * cos }) as f32
            };
            (0..8).map(channel).collect()
        };
        // Far out, the angle itself is rounded to f32.
        let near = |a: &[f32], b: &[f32]| assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 5e-3), "{a:?} {b:?}");
        near(&local, &by_formula(1e4, 1.0));
        near(&global, &by_formula(1e6, 8.0));
    }
}

/// Explicit keys and values.
struct Listed(Vec<[f32; 2]>, Vec<[f32; 2]>);

impl Keys for Listed {
    fn key(&self, position: usize) -> &[f32] {
        &self.0[position]
    }

    fn value(&self, position: usize) -> &[f32] {
        &self.1[position]
    }
}

#[test]
fn d38_a_sink_takes_weight_and_gives_nothing() {
    for (keys, sink, expected) in [(5, 2.5, 0.290994), (3, 0.0, 0.75), (8, -1.0, 0.956037)] {
        let cache = Listed(vec![[0.0; 2]; keys], vec![[1.0; 2]; keys]);
        let positions: Vec<usize> = (0..keys).collect();
        let mut out = [0.0; 2];
        attend(&[1.0, 1.0], &cache, &positions, 1.0, Some(sink), &mut out);
        close(&out, &[expected; 2]);
    }
    let cache = Listed(vec![[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], vec![[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]);
    for (sink, expected) in [(None, [1.29198, 1.435946]), (Some(1.0), [1.087817, 1.209033])] {
        let mut out = [0.0; 2];
        attend(&[1.0, 2.0], &cache, &[0, 1, 2], 0.5f32.sqrt(), sink, &mut out);
        close(&out, &expected);
    }
}
