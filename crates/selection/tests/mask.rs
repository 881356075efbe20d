//! Masks and biases: what is not allowed is never chosen, whatever the chain.

use foundation::TokenId;
use turbospark_selection::{
    Chain, History, Scratch, SelectError, Shaping, ShapingError, ShapingOptions, Step, select, shaped_distribution,
};

const INF: f32 = f32::INFINITY;

fn mask(len: usize, allowed: &[usize]) -> Vec<u32> {
    let mut words = vec![0u32; len.div_ceil(32)];
    allowed.iter().for_each(|id| words[id / 32] |= 1 << (id % 32));
    words
}

fn tokens(row: &[f32], shaping: &Shaping, mask: &[u32]) -> Vec<u32> {
    let history = History::new();
    let found = shaped_distribution(row, shaping, Step::new(&history, 0).masked(mask), &mut Scratch::new()).unwrap();
    let mut ids: Vec<u32> = found.iter().map(|candidate| candidate.token.0).collect();
    ids.sort();
    ids
}

#[test]
fn only_allowed_tokens_are_left_by_every_chain() {
    // The best tokens are not allowed, so that a cut before the mask would leave nothing.
    let row: Vec<f32> = (0..100).map(|id| -0.1 * id as f32).collect();
    let allowed = [40usize, 63, 64, 95, 99];
    let plain = ShapingOptions::default();
    for samplers in [Chain::default(), Chain::ORIGINAL, "temperature,min-p,top-p,top-k,xtc,typical-p".parse().unwrap()]
    {
        for (options, expected) in [
            (plain, 5),
            (ShapingOptions { temperature: 0.0, ..plain }, 1),
            (ShapingOptions { top_k: 2, ..plain }, 2),
            (ShapingOptions { top_p: 0.0, ..plain }, 1),
            (ShapingOptions { min_p: 1.0, ..plain }, 1),
            (ShapingOptions { typical_p: 0.0, ..plain }, 1),
            (ShapingOptions { xtc_probability: 1.0, xtc_threshold: 0.0, ..plain }, 1),
        ] {
            let shaping = Shaping::new(ShapingOptions { samplers, ..options }).unwrap();
            let found = tokens(&row, &shaping, &mask(100, &allowed));
            assert!(found.iter().all(|id| allowed.contains(&(*id as usize))), "{options:?}: {found:?}");
            assert_eq!(found.len(), expected, "{options:?}: {found:?}");
        }
    }
}

#[test]
fn a_mask_ends_with_its_last_word_and_may_be_too_long() {
    let shaping = Shaping::new(ShapingOptions::default()).unwrap();
    // A row padded beyond the vocabulary that the mask is for.
    assert_eq!(tokens(&[0.0; 70], &shaping, &[u32::MAX]), (0..32).collect::<Vec<_>>());
    assert_eq!(tokens(&[0.0; 3], &shaping, &[0b101, u32::MAX, u32::MAX]), [0, 2]);
    assert_eq!(tokens(&[0.0; 3], &shaping, &[u32::MAX]), [0, 1, 2]);
}

#[test]
fn a_mask_that_leaves_nothing_is_an_error_and_hides_no_broken_logit() {
    let shaping = Shaping::greedy();
    let history = History::new();
    let choose =
        |row: &[f32], mask: &[u32]| select(row, &shaping, Step::new(&history, 7).masked(mask), &mut Scratch::new());
    assert_eq!(choose(&[0.0; 3], &[0]), Err(SelectError::AllMasked { len: 3, position: 7 }));
    assert_eq!(choose(&[0.0; 3], &[]), Err(SelectError::AllMasked { len: 3, position: 7 }));
    assert_eq!(choose(&[0.0, -INF], &[2]), Err(SelectError::AllMasked { len: 2, position: 7 }));
    let broken = Err(SelectError::NotANumber { token: TokenId(2), len: 3, position: 7 });
    assert_eq!(choose(&[0.0, 1.0, f32::NAN], &[1]), broken);
    let broken = SelectError::PositiveInfinity { token: TokenId(1), len: 3, position: 7 };
    let text = broken.to_string();
    assert_eq!(choose(&[0.0, INF, 1.0], &[1]), Err(broken));
    assert!(text.contains("position 7") && text.contains("token 1 of 3") && text.contains("+infinity"), "{text}");
}

#[test]
fn biases_are_added_after_penalties_and_before_temperature() {
    let options = ShapingOptions { repetition_penalty: 2.0, temperature: 0.5, ..Default::default() };
    let bias = vec![(TokenId(2), 1.0), (TokenId(0), 3.0)];
    let shaping = Shaping::new(options).unwrap().with_bias(bias).unwrap();
    let mut history = History::new();
    history.push(TokenId(0));
    let found = shaped_distribution(&[2.0, 2.0, 0.0], &shaping, Step::new(&history, 0), &mut Scratch::new()).unwrap();
    // 2/2 + 3 = 4, 2, 1, all divided by 0.5.
    let weights = [8f64, 4.0, 2.0].map(f64::exp);
    for (candidate, weight) in found.iter().zip(weights) {
        assert!((candidate.probability - weight / weights.iter().sum::<f64>()).abs() < 1e-12, "{found:?}");
    }
}

#[test]
fn a_bias_forbids_forces_and_never_unmasks() {
    let history = History::new();
    let choose = |row: &[f32], bias: &[(u32, f32)], mask: &[u32]| {
        let bias = bias.iter().map(|(id, bias)| (TokenId(*id), *bias)).collect();
        let shaping = Shaping::greedy().with_bias(bias).unwrap();
        select(row, &shaping, Step::new(&history, 0).masked(mask), &mut Scratch::new()).map(|chosen| chosen.token.0)
    };
    assert_eq!(choose(&[2.0, 1.0, 0.0], &[(0, -INF)], &[7]), Ok(1));
    assert_eq!(choose(&[2.0, 1.0, 0.0], &[(2, 100.0)], &[7]), Ok(2));
    assert_eq!(choose(&[2.0, 1.0, 0.0], &[(2, 100.0)], &[3]), Ok(0));
    assert_eq!(choose(&[2.0, -INF], &[(1, 100.0)], &[7]), Ok(0));
    assert_eq!(choose(&[3e38, 1.0], &[(0, 3e38)], &[7]), Ok(0));
    let missing = choose(&[2.0, 1.0], &[(2, 1.0)], &[7]).unwrap_err();
    assert_eq!(missing, SelectError::NoSuchToken { id: TokenId(2), len: 2 });
    let all = choose(&[2.0, 1.0], &[(0, -INF), (1, -INF)], &[7]).unwrap_err();
    assert_eq!(all, SelectError::AllMasked { len: 2, position: 0 });
}

#[test]
fn biases_that_are_none_are_refused() {
    let with = |bias: &[(u32, f32)]| {
        Shaping::greedy().with_bias(bias.iter().map(|(id, bias)| (TokenId(*id), *bias)).collect()).unwrap_err()
    };
    assert_eq!(with(&[(5, INF)]), ShapingError::Bias { id: TokenId(5), found: INF });
    assert!(matches!(with(&[(5, f32::NAN)]), ShapingError::Bias { id: TokenId(5), .. }));
    assert_eq!(with(&[(1, 0.0), (5, 1.0), (1, 2.0)]), ShapingError::TwoBiases { id: TokenId(1) });
}
