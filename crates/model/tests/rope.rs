//! Frequencies against values computed in float64 elsewhere.

use turbospark_model::{Pairing, Rope, RopeScaling, Source};

fn ratios(rotary_dim: usize, scaling: RopeScaling, divisors: Option<&[f32]>) -> Vec<f32> {
    let rope = Rope { theta: 500_000.0, rotary_dim, pairing: Pairing::Half, scaling };
    let plain = Rope { scaling: RopeScaling::None, ..rope.clone() };
    rope.frequencies(divisors).iter().zip(plain.frequencies(None)).map(|(new, old)| new / old).collect()
}

fn close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= 1e-5, "{i}: {f}, expected {e}");
    }
}

#[test]
fn llama3_scaling_has_three_bands() {
    let scaling =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192.0 };
    close(&ratios(16, scaling.clone(), None), &[1.0, 1.0, 1.0, 1.0, 0.371122, 0.125, 0.125, 0.125]);
    let mut expected = vec![1.0; 29];
    expected.extend([0.828168, 0.643743, 0.493507, 0.371122, 0.271425, 0.190211]);
    expected.resize(64, 0.125);
    close(&ratios(128, scaling, None), &expected);
}

#[test]
fn linear_scaling_divides_and_divisors_divide_each() {
    close(&ratios(8, RopeScaling::Linear { factor: 8.0 }, None), &[0.125; 4]);
    let divisors = RopeScaling::Divisors(Source::tensor("rope_freqs.weight"));
    close(&ratios(8, divisors, Some(&[1.0, 2.0, 4.0, 8.0])), &[1.0, 0.5, 0.25, 0.125]);
    close(&ratios(8, RopeScaling::None, None), &[1.0; 4]);
}

#[test]
fn frequencies_are_a_geometric_series() {
    let rope = Rope { theta: 10_000.0, rotary_dim: 8, pairing: Pairing::Half, scaling: RopeScaling::None };
    close(&rope.frequencies(None), &[1.0, 0.1, 0.01, 0.001]);
}
