//! Properties of the chain, against a slow reference that sorts everything.

use foundation::TokenId;
use proptest::prelude::*;
use turbospark_selection::{History, Scratch, Shaping, ShapingOptions, Step, select, shaped_distribution, uniform};

/// The chain as its definition reads: a full sort, the platform's `exp`, no tricks.
fn reference(row: &[f32], options: &ShapingOptions) -> Vec<(u32, f64)> {
    let max = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let mut ranked: Vec<(u32, f32, f64)> = row
        .iter()
        .enumerate()
        .filter(|(_, score)| **score > f32::NEG_INFINITY)
        .map(|(id, score)| {
            let weight = ((f64::from(*score) - max) / f64::from(options.temperature)).exp();
            (id as u32, *score, weight)
        })
        .collect();
    ranked.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap().then(a.0.cmp(&b.0)));
    if options.top_k > 0 {
        ranked.truncate(options.top_k);
    }
    if options.top_p < 1.0 {
        let target = f64::from(options.top_p) * ranked.iter().map(|r| r.2).sum::<f64>();
        let mut before = 0.0;
        let mut first = true;
        ranked.retain(|r| {
            let keep = first || before < target;
            before += r.2;
            first = false;
            keep
        });
    }
    ranked.retain(|r| r.2 >= f64::from(options.min_p));
    let total: f64 = ranked.iter().map(|r| r.2).sum();
    ranked.iter().map(|r| (r.0, r.2 / total)).collect()
}

fn row() -> impl Strategy<Value = Vec<f32>> {
    // Steps of a quarter make ties common.
    let score = prop_oneof![
        8 => (-80i32..40).prop_map(|step| step as f32 * 0.25),
        1 => Just(f32::NEG_INFINITY),
    ];
    (prop::collection::vec(score, 0..3000), any::<prop::sample::Index>()).prop_map(|(mut row, at)| {
        row.push(0.0);
        let at = at.index(row.len());
        row[at] = 1.125;
        row
    })
}

fn options() -> impl Strategy<Value = ShapingOptions> {
    let top_k = prop_oneof![Just(0usize), 1usize..10, 1usize..4000];
    let top_p = prop_oneof![Just(1.0f32), 0.0f32..1.0];
    let min_p = prop_oneof![Just(0.0f32), 0.0f32..1.0];
    (0.05f32..4.0, top_k, top_p, min_p, any::<u64>()).prop_map(|(temperature, top_k, top_p, min_p, seed)| {
        ShapingOptions { temperature, top_k, top_p, min_p, seed, ..ShapingOptions::default() }
    })
}

fn choose(row: &[f32], options: ShapingOptions, position: u64) -> TokenId {
    let shaping = Shaping::new(options).unwrap();
    select(row, &shaping, Step::new(&History::new(), position), &mut Scratch::new()).unwrap().token
}

proptest! {
    #[test]
    fn the_distribution_is_that_of_the_definition(row in row(), options in options()) {
        let shaping = Shaping::new(options).unwrap();
        let found = shaped_distribution(&row, &shaping, Step::new(&History::new(), 0), &mut Scratch::new()).unwrap();
        let expected = reference(&row, &options);
        // A token on the very edge of top-p or min-p may fall either way by rounding.
        prop_assert!(found.len().abs_diff(expected.len()) <= 1);
        if found.len() == expected.len() {
            for (f, e) in found.iter().zip(&expected) {
                prop_assert_eq!(f.token.0, e.0);
                prop_assert!((f.probability - e.1).abs() <= 1e-12 * e.1.max(1e-3));
            }
        }
        let total: f64 = found.iter().map(|c| c.probability).sum();
        prop_assert!((total - 1.0).abs() < 1e-12);
        let token = select(&row, &shaping, Step::new(&History::new(), 5), &mut Scratch::new()).unwrap().token;
        prop_assert!(found.iter().any(|candidate| candidate.token == token));
    }

    #[test]
    fn top_k_1_is_greedy(row in row(), options in options(), position: u64) {
        let greedy = ShapingOptions { temperature: 0.0, ..options };
        let one = ShapingOptions { top_k: 1, ..options };
        prop_assert_eq!(choose(&row, one, position), choose(&row, greedy, position));
    }

    #[test]
    fn a_shift_of_all_logits_changes_nothing(row in row(), options in options(), shift in -64i32..64) {
        let shifted: Vec<f32> = row.iter().map(|score| score + shift as f32).collect();
        prop_assert_eq!(choose(&row, options, 3), choose(&shifted, options, 3));
    }

    #[test]
    fn a_reused_scratch_changes_nothing(rows in prop::collection::vec(row(), 3), options in options()) {
        let shaping = Shaping::new(options).unwrap();
        let mut scratch = Scratch::new();
        for row in &rows {
            let reused = select(row, &shaping, Step::new(&History::new(), 9), &mut scratch).unwrap().token;
            prop_assert_eq!(reused, choose(row, options, 9));
        }
    }

    #[test]
    fn of_tied_tokens_the_lowest_ids_stay(
        (len, ties) in (1usize..2000).prop_flat_map(|len| (Just(len), 0..=len)),
        rotate: prop::sample::Index,
        k in 1usize..40,
    ) {
        let mut row = vec![-5.0; len];
        row[..ties].fill(2.0);
        row.rotate_right(rotate.index(len));
        let mut expected: Vec<u32> = (0..len as u32).collect();
        expected.sort_by_key(|id| (row[*id as usize] < 0.0, *id));
        expected.truncate(k);
        let shaping = Shaping::new(ShapingOptions { top_k: k, ..Default::default() }).unwrap();
        let found = shaped_distribution(&row, &shaping, Step::new(&History::new(), 0), &mut Scratch::new()).unwrap();
        let found: Vec<u32> = found.iter().map(|candidate| candidate.token.0).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn uniform_draws_lie_in_0_to_1(seed: u64, position: u64) {
        prop_assert!((0.0..1.0).contains(&uniform(seed, position)));
    }
}

#[test]
fn draws_follow_the_exact_distribution() {
    let row: Vec<f32> = (0..500).map(|id| ((id * 7919) % 500) as f32 * -0.02).collect();
    for (seed, top_k, top_p) in [(1, 0, 1.0), (2, 40, 1.0), (3, 0, 0.9), (4, 100, 0.8)] {
        let options = ShapingOptions { temperature: 0.8, top_k, top_p, seed, ..Default::default() };
        let shaping = Shaping::new(options).unwrap();
        let mut scratch = Scratch::new();
        let mut counts = vec![0f64; row.len()];
        const DRAWS: u64 = 100_000;
        for position in 0..DRAWS {
            let token = select(&row, &shaping, Step::new(&History::new(), position), &mut scratch).unwrap().token;
            counts[token.index()] += 1.0;
        }
        let expected = reference(&row, &options);
        let (mut chi, mut degrees, mut seen) = (0.0, -1.0, 0.0);
        let (mut rare_expected, mut rare_seen) = (0.0, 0.0);
        for (id, probability) in expected {
            let (count, mean) = (counts[id as usize], probability * DRAWS as f64);
            seen += count;
            if mean < 20.0 {
                rare_expected += mean;
                rare_seen += count;
            } else {
                chi += (count - mean).powi(2) / mean;
                degrees += 1.0;
            }
        }
        if rare_expected > 20.0 {
            chi += f64::powi(rare_seen - rare_expected, 2) / rare_expected;
            degrees += 1.0;
        }
        assert_eq!(seen, DRAWS as f64, "a token outside the distribution was drawn");
        // The 0.999 quantile by Wilson and Hilferty's approximation.
        let spread = 2.0 / (9.0 * degrees);
        let limit = degrees * f64::powi(1.0 - spread + 3.09 * f64::sqrt(spread), 3);
        assert!(chi < limit, "seed {seed}: {chi} of at most {limit}");
    }
}
