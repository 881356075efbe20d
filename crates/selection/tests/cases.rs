//! The recorded defects of other samplers, as rules this one keeps.

use foundation::TokenId;
use turbospark_selection::{
    History, Scratch, SelectError, Shaping, ShapingError, ShapingOptions, Step, fresh_seed, log_softmax, logprobs,
    select, shaped_distribution,
};

const ROW: [f32; 4] = [2.0, 1.0, 0.0, -1.0];

fn ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().map(|id| TokenId(*id)).collect()
}

fn generated(tokens: &[u32]) -> History {
    let mut history = History::new();
    tokens.iter().for_each(|id| history.push(TokenId(*id)));
    history
}

/// The probabilities in order of id, 0 for tokens that were cut.
fn probabilities(row: &[f32], options: ShapingOptions, history: &History) -> Vec<f64> {
    let shaping = Shaping::new(options).unwrap();
    let mut all = vec![0.0; row.len()];
    for candidate in shaped_distribution(row, &shaping, Step::new(history, 0), &mut Scratch::new()).unwrap() {
        all[candidate.token.index()] = candidate.probability;
    }
    all
}

fn kept(row: &[f32], options: ShapingOptions) -> Vec<usize> {
    let all = probabilities(row, options, &History::new());
    (0..row.len()).filter(|id| all[*id] > 0.0).collect()
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let total: f64 = row.iter().map(|x| x.exp()).sum();
    row.iter().map(|x| x.exp() / total).collect()
}

fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (f, e) in found.iter().zip(expected) {
        assert!((f - e).abs() < 1e-6, "found {found:?}, expected {expected:?}");
    }
}

#[test]
fn d39_repetition_divides_positive_and_multiplies_negative_logits_once() {
    let options = ShapingOptions { repetition_penalty: 1.5, ..Default::default() };
    let expected = softmax(&[4.0 / 3.0, -1.5, 1.0 / 3.0]);
    let row = [2.0, -1.0, 0.5];
    assert_close(&probabilities(&row, options, &generated(&[0, 0, 0, 1, 2])), &expected);
    let mut prompt = History::new();
    prompt.push_prompt(&ids(&[2, 1, 0, 0]));
    assert_close(&probabilities(&row, options, &prompt), &expected);
    // A token without a logit is passed over.
    prompt.push_prompt(&ids(&[1_000_000]));
    assert_close(&probabilities(&row, options, &prompt), &expected);
}

#[test]
fn d39_frequency_and_presence_count_generated_tokens_only() {
    let options = ShapingOptions { frequency_penalty: 0.5, presence_penalty: 0.25, ..Default::default() };
    let mut history = generated(&[0, 1, 0, 0]);
    history.push_prompt(&ids(&[2, 2, 2, 0]));
    let found = probabilities(&[3.0, 2.0, 1.0], options, &history);
    assert_close(&found, &softmax(&[1.25, 1.25, 1.0]));
}

#[test]
fn d39_a_window_forgets_the_oldest_tokens() {
    let options = ShapingOptions { repetition_penalty: 2.0, ..Default::default() };
    let mut history = History::with_window(2);
    history.push_prompt(&ids(&[0, 0]));
    history.push(TokenId(1));
    history.push(TokenId(1));
    let found = probabilities(&[2.0, 2.0, 2.0], options, &history);
    assert_close(&found, &softmax(&[2.0, 1.0, 2.0]));
    assert_eq!((history.len(), history.generated(), history.is_empty()), (4, 2, false));
}

#[test]
fn d40_off_values_and_edges() {
    let plain = ShapingOptions::default();
    assert_close(&probabilities(&ROW, plain, &History::new()), &[0.643914, 0.236883, 0.087144, 0.032059]);
    let warm = ShapingOptions { temperature: 2.0, ..plain };
    assert_close(&probabilities(&ROW, warm, &History::new()), &[0.455054, 0.276004, 0.167405, 0.101536]);
    for (options, expected) in [
        (ShapingOptions { temperature: 0.0, ..plain }, 1),
        (ShapingOptions { temperature: 1e-40, ..plain }, 1),
        (ShapingOptions { top_k: 0, ..plain }, 4),
        (ShapingOptions { top_k: 1, ..plain }, 1),
        (ShapingOptions { top_k: 3, ..plain }, 3),
        (ShapingOptions { top_k: 4, ..plain }, 4),
        (ShapingOptions { top_k: usize::MAX, ..plain }, 4),
        (ShapingOptions { top_p: 0.0, ..plain }, 1),
        (ShapingOptions { top_p: 0.64, ..plain }, 1),
        (ShapingOptions { top_p: 0.65, ..plain }, 2),
        (ShapingOptions { top_p: 1.0, ..plain }, 4),
        (ShapingOptions { top_p: 7.0, ..plain }, 4),
        (ShapingOptions { min_p: 0.0, ..plain }, 4),
        (ShapingOptions { min_p: 1.0, ..plain }, 1),
        (ShapingOptions { top_k: 2, top_p: 0.0, min_p: 1.0, ..plain }, 1),
    ] {
        assert_eq!(kept(&ROW, options), (0..expected).collect::<Vec<_>>(), "{options:?}");
    }
}

#[test]
fn d40_min_p_is_applied_after_temperature() {
    let options = ShapingOptions { temperature: 2.0, min_p: 0.4, ..Default::default() };
    assert_eq!(kept(&ROW, options), [0, 1]);
}

#[test]
fn d40_top_p_counts_what_top_k_left() {
    // Of the two best, the first has 0.731 of the mass.
    let options = ShapingOptions { top_k: 2, top_p: 0.7, ..Default::default() };
    assert_eq!(kept(&ROW, options), [0]);
}

#[test]
fn d40_parameters_outside_their_range_are_named() {
    let plain = ShapingOptions::default();
    let nan = f32::NAN;
    for (options, field) in [
        (ShapingOptions { temperature: nan, ..plain }, "temperature"),
        (ShapingOptions { temperature: -0.1, ..plain }, "temperature"),
        (ShapingOptions { temperature: f32::INFINITY, ..plain }, "temperature"),
        (ShapingOptions { top_p: nan, ..plain }, "top_p"),
        (ShapingOptions { top_p: -0.1, ..plain }, "top_p"),
        (ShapingOptions { min_p: nan, ..plain }, "min_p"),
        (ShapingOptions { min_p: 1.1, ..plain }, "min_p"),
        (ShapingOptions { repetition_penalty: 0.0, ..plain }, "repetition_penalty"),
        (ShapingOptions { repetition_penalty: nan, ..plain }, "repetition_penalty"),
        (ShapingOptions { presence_penalty: 2.1, ..plain }, "presence_penalty"),
        (ShapingOptions { frequency_penalty: -2.1, ..plain }, "frequency_penalty"),
    ] {
        let error = Shaping::new(options).unwrap_err();
        assert!(matches!(error, ShapingError::OutOfRange { field: found, .. } if found == field), "{error}");
        assert!(error.to_string().starts_with(&format!("{field} is ")), "{error}");
    }
    let error = Shaping::new(ShapingOptions { presence_penalty: 3.0, ..plain }).unwrap_err();
    assert_eq!(error.to_string(), "presence_penalty is 3; it must be from -2 to 2 (0 is off)");
}

#[test]
fn d40_a_broken_row_is_an_error_and_never_a_token() {
    let mut scratch = Scratch::new();
    let mut choose = |row: &[f32], shaping: &Shaping| {
        select(row, shaping, Step::new(&generated(&[0]), 9), &mut scratch).map(|chosen| chosen.token)
    };
    let sampled = Shaping::new(ShapingOptions { repetition_penalty: 1.1, ..Default::default() });
    for shaping in [Shaping::greedy(), sampled.unwrap()] {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let mut long = vec![0.0; 100];
        long[77] = nan;
        assert_eq!(choose(&[], &shaping), Err(SelectError::Empty { position: 9 }));
        assert_eq!(
            choose(&[nan; 3], &shaping),
            Err(SelectError::NotANumber { token: TokenId(0), len: 3, position: 9 })
        );
        assert_eq!(choose(&long, &shaping), Err(SelectError::NotANumber { token: TokenId(77), len: 100, position: 9 }));
        assert_eq!(
            choose(&[0.0, inf], &shaping),
            Err(SelectError::PositiveInfinity { token: TokenId(1), len: 2, position: 9 })
        );
        assert_eq!(choose(&[-inf; 5], &shaping), Err(SelectError::AllMasked { len: 5, position: 9 }));
        assert_eq!(choose(&[-inf, -inf, -9.0, -inf], &shaping), Ok(TokenId(2)));
    }
}

#[test]
fn d40_penalties_hold_at_temperature_0_and_ties_go_to_the_lowest_id() {
    let mut scratch = Scratch::new();
    let tied = select(&[1.0, 3.0, 3.0], &Shaping::greedy(), Step::new(&History::new(), 0), &mut scratch);
    assert_eq!(tied.map(|chosen| chosen.token), Ok(TokenId(1)));
    let options = ShapingOptions { temperature: 0.0, repetition_penalty: 1.5, ..ShapingOptions::default() };
    let shaping = Shaping::new(options).unwrap();
    let penalised = select(&[1.0, 3.0, 3.0], &shaping, Step::new(&generated(&[1]), 0), &mut scratch);
    assert_eq!(penalised.map(|chosen| chosen.token), Ok(TokenId(2)));
    // A finite logit stays finite whatever the penalty.
    let options = ShapingOptions { repetition_penalty: 1e-30, ..options };
    let huge = select(&[3e38, 1.0], &Shaping::new(options).unwrap(), Step::new(&generated(&[0]), 0), &mut scratch);
    assert_eq!(huge.map(|chosen| chosen.token), Ok(TokenId(0)));
}

#[test]
fn d41_logprobs_are_of_the_raw_logits() {
    let row = [2.0, 1.0, 0.0];
    let expected = [-0.407606, -1.407606, -2.407606];
    assert_close(&log_softmax(&row, &ids(&[0, 1, 2]), 0).unwrap(), &expected);
    let report = logprobs(&row, TokenId(2), 2, 0).unwrap();
    assert_eq!(report.chosen.token, TokenId(2));
    assert_close(&[report.chosen.logprob], &expected[2..]);
    let top: Vec<_> = report.top.iter().map(|entry| entry.token.0).collect();
    assert_eq!(top, [0, 1]);
    assert_eq!(logprobs(&row, TokenId(0), 0, 0).unwrap().top, []);
}

#[test]
fn d41_logprobs_are_finite_and_never_positive() {
    let row = [f32::NEG_INFINITY, 80.0, -3e38];
    assert_eq!(log_softmax(&row, &ids(&[0, 1, 2]), 0).unwrap(), [-9999.0, 0.0, -9999.0]);
    // Masked tokens are not among the best, however many are asked for.
    assert_eq!(logprobs(&row, TokenId(0), 20, 0).unwrap().top.len(), 2);
    let missing = logprobs(&row, TokenId(3), 1, 0).unwrap_err();
    assert_eq!(missing, SelectError::NoSuchToken { id: TokenId(3), len: 3 });
}

fn draws(seed: u64, positions: std::ops::Range<u64>) -> Vec<u32> {
    let shaping = Shaping::new(ShapingOptions { seed, ..Default::default() }).unwrap();
    let mut scratch = Scratch::new();
    let row = [0.0; 64];
    positions.map(|p| select(&row, &shaping, Step::new(&History::new(), p), &mut scratch).unwrap().token.0).collect()
}

#[test]
fn d42_a_seed_fixes_the_text_whatever_else_runs() {
    let alone = draws(7, 0..200);
    let threads: Vec<_> = [7, 8, 9, 10].map(|seed| std::thread::spawn(move || draws(seed, 0..200))).into();
    let together: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(alone, together[0]);
    assert_ne!(alone, together[1]);
    // A sequence continued from a cache draws what it would have drawn.
    assert_eq!(alone[150..], draws(7, 150..200));
    assert_ne!(fresh_seed(), fresh_seed());
}

#[test]
fn d42_draws_are_the_same_on_every_machine() {
    assert_eq!(draws(7, 0..12), [48, 50, 0, 16, 63, 21, 29, 30, 60, 0, 63, 57]);
}

#[test]
fn d42_chi_square_of_20_000_uniform_draws() {
    let mut counts = [0f64; 64];
    for token in draws(7, 0..20_000) {
        counts[token as usize] += 1.0;
    }
    let expected = 20_000.0 / 64.0;
    let chi: f64 = counts.iter().map(|count| (count - expected).powi(2) / expected).sum();
    // The 0.999 quantile with 63 degrees of freedom.
    assert!(chi < 103.4, "{chi}");
}
