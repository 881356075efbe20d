//! The reference device against values computed in float64 elsewhere.

use model::{Activation, Pairing, Rope, RopeScaling};
use turbospark_plan::reference::{Keys, attend, gated, norm, rotate, visible};

fn close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (f, e) in found.iter().zip(expected) {
        assert!((f - e).abs() <= 1e-5 * e.abs().max(1.0), "{found:?}, expected {expected:?}");
    }
}

/// Keys and values as lists.
struct Lists<'a>(&'a [Vec<f32>], &'a [Vec<f32>]);

impl Keys for Lists<'_> {
    fn key(&self, position: usize) -> &[f32] {
        &self.0[position]
    }

    fn value(&self, position: usize) -> &[f32] {
        &self.1[position]
    }
}

fn seen(position: usize, window: Option<usize>) -> Vec<usize> {
    visible(position, window).collect()
}

fn rope(rotary_dim: usize, pairing: Pairing, scaling: RopeScaling) -> Rope {
    Rope { theta: 10_000.0, rotary_dim, pairing, scaling }
}

#[test]
fn rope_turns_the_pairs_of_each_layout() {
    let half = [-1.695593, 0.137552, 2.788682, 3.975982, -4.808842, 6.323059, 7.086837, 8.011964];
    let linear = RopeScaling::Linear { factor: 8.0 };
    for (rope, position, expected) in [
        (rope(8, Pairing::Half, RopeScaling::None), 3, half),
        (
            rope(8, Pairing::Interleaved, RopeScaling::None),
            3,
            [-1.272233, -1.838865, 1.683929, 4.707907, 4.817777, 6.147278, 6.975969, 8.020964],
        ),
        (rope(4, Pairing::Half, RopeScaling::None), 3, [-1.413353, 1.879118, -2.828857, 4.058191, 5.0, 6.0, 7.0, 8.0]),
        // Linear scaling by 8 at position 24 is no scaling at 3.
        (rope(8, Pairing::Half, linear), 24, half),
        (rope(8, Pairing::Half, RopeScaling::None), 0, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
    ] {
        let mut x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        rotate(&mut x, position, &rope.frequencies(None), 1.0, rope.pairing);
        close(&x, &expected);
    }
}

#[test]
fn a_window_counts_the_position_itself() {
    let keys = vec![vec![0.0]; 11];
    let values: Vec<Vec<f32>> = (0..11).map(|p| (0..11).map(|i| f32::from(i == p)).collect()).collect();
    let mut out = [0.0; 11];
    attend(&[1.0], &Lists(&keys, &values), &seen(10, Some(4)), 1.0, None, &mut out);
    close(&out, &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.25, 0.25, 0.25, 0.25]);
    attend(&[1.0], &Lists(&keys, &values), &seen(2, Some(4)), 1.0, None, &mut out);
    close(&out[..4], &[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0]);
}

#[test]
fn attention_weighs_values_by_softmax() {
    let keys = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]].map(|k| k.to_vec());
    let values = [[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]].map(|v| v.to_vec());
    let mut out = [0.0; 2];
    attend(&[1.0, 2.0], &Lists(&keys, &values), &seen(2, None), 0.5f32.sqrt(), None, &mut out);
    close(&out, &[1.29198, 1.435946]);
}

#[test]
fn norms_and_activations_have_their_textbook_values() {
    let mut out = [0.0; 2];
    norm(&[3.0, 4.0], Some(&[1.0, 2.0]), 0.0, &mut out);
    close(&out, &[0.848528, 2.262742]);
    norm(&[0.0, 0.0], None, 1e-6, &mut out);
    close(&out, &[0.0, 0.0]);
    let mut out = [0.0; 3];
    gated(Activation::Silu, &[1.0, -2.0, 0.0], &[2.0, 1.0, 5.0], &mut out);
    close(&out, &[1.462117, -0.238406, 0.0]);
    gated(Activation::GeluTanh, &[1.0, -2.0, 0.0], &[2.0, 1.0, 5.0], &mut out);
    close(&out, &[1.682384, -0.045402, 0.0]);
}
