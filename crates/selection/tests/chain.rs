//! Every sampler by its numbers, the order of the chain, and what is refused about both.

use foundation::TokenId;
use turbospark_selection::{
    Candidate, Chain, ChainError, Dry, History, Mirostat, Sampler, Scratch, Shaping, ShapingError, ShapingOptions,
    Step, select, shaped_distribution,
};

/// Probabilities .643914 .236883 .087144 .032059.
const ROW: [f32; 4] = [2.0, 1.0, 0.0, -1.0];

fn plain() -> ShapingOptions {
    ShapingOptions::default()
}

fn history(tokens: &[u32]) -> History {
    let mut history = History::new();
    tokens.iter().for_each(|id| history.push(TokenId(*id)));
    history
}

/// The probabilities in order of id, 0 for tokens that were cut.
fn probabilities(row: &[f32], shaping: &Shaping, history: &History) -> Vec<f64> {
    let mut all = vec![0.0; row.len()];
    for candidate in shaped_distribution(row, shaping, Step::new(history, 0), &mut Scratch::new()).unwrap() {
        all[candidate.token.index()] = candidate.probability;
    }
    all
}

fn kept(row: &[f32], options: ShapingOptions) -> Vec<usize> {
    let all = probabilities(row, &Shaping::new(options).unwrap(), &History::new());
    (0..row.len()).filter(|id| all[*id] > 0.0).collect()
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (f, e) in found.iter().zip(expected) {
        assert!((f - e).abs() < 1e-6, "found {found:?}, expected {expected:?}");
    }
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let total: f64 = row.iter().map(|x| x.exp()).sum();
    row.iter().map(|x| x.exp() / total).collect()
}

fn chain(text: &str) -> Chain {
    text.parse().unwrap()
}

#[test]
fn d40_min_p_before_or_after_temperature_is_a_matter_of_the_chain() {
    let options = ShapingOptions { temperature: 2.0, min_p: 0.4, ..plain() };
    assert_eq!(kept(&ROW, options), [0, 1]);
    assert_eq!(kept(&ROW, ShapingOptions { samplers: chain("min-p,temperature"), ..options }), [0]);
    assert_eq!(kept(&ROW, ShapingOptions { samplers: Chain::ORIGINAL, ..options }), [0]);
    // What is left has the temperature's probabilities whatever the order.
    let options = ShapingOptions { temperature: 2.0, min_p: 0.3, samplers: Chain::ORIGINAL, ..plain() };
    let found = probabilities(&ROW, &Shaping::new(options).unwrap(), &History::new());
    close(&found, &[softmax(&[1.0, 0.5]), vec![0.0, 0.0]].concat());
}

#[test]
fn top_p_counts_what_is_left_where_it_stands() {
    // Of all, the first two have 0.88; of the two best, the first has 0.73.
    let options = ShapingOptions { top_k: 2, top_p: 0.7, ..plain() };
    assert_eq!(kept(&ROW, options), [0]);
    assert_eq!(kept(&ROW, ShapingOptions { samplers: chain("temperature,top-p,top-k"), ..options }), [0, 1]);
    assert_eq!(kept(&ROW, ShapingOptions { samplers: Chain::ORIGINAL, ..options }), [0, 1]);
    // The original cut at temperature 1; at temperature 4 the first two have only 0.62.
    let options = ShapingOptions { temperature: 4.0, top_p: 0.8, ..plain() };
    assert_eq!(kept(&ROW, options), [0, 1, 2]);
    assert_eq!(kept(&ROW, ShapingOptions { samplers: Chain::ORIGINAL, ..options }), [0, 1]);
}

#[test]
fn top_k_behind_other_cuts_takes_the_best_of_what_is_left() {
    let xtc = ShapingOptions { xtc_probability: 1.0, xtc_threshold: 0.2, top_k: 2, ..plain() };
    assert_eq!(kept(&ROW, ShapingOptions { samplers: chain("temperature,xtc,top-k"), ..xtc }), [1, 2]);
    assert_eq!(kept(&ROW, ShapingOptions { samplers: chain("temperature,top-k,xtc"), ..xtc }), [1]);
    // Ties at the edge go to the lowest id.
    let ties = ShapingOptions { top_k: 2, min_p: 0.1, samplers: chain("temperature,min-p,top-k"), ..plain() };
    assert_eq!(kept(&[1.0, 2.0, 1.0, 1.0], ties), [0, 1]);
}

#[test]
fn every_cut_leaves_one_also_where_another_cut_the_best() {
    for order in ["xtc,top-p,min-p,temperature", "xtc,temperature,top-p,min-p", "temperature,xtc,min-p,top-p,top-k"] {
        for top_p in [0.0, 0.5, 1.0] {
            let options = ShapingOptions {
                xtc_probability: 1.0,
                xtc_threshold: 0.0,
                top_p,
                min_p: 1.0,
                top_k: if order.contains("top-k") { 1 } else { 0 },
                temperature: 1e-30,
                samplers: chain(order),
                ..plain()
            };
            let spread = [500.0, 300.0, 0.0];
            let found = kept(&spread, options);
            assert_eq!(found.len(), 1, "{order} {top_p}: {found:?}");
        }
    }
    // After the best was cut, the next best is the best.
    let options = ShapingOptions { xtc_probability: 1.0, xtc_threshold: 0.2, top_p: 0.0, ..plain() };
    assert_eq!(kept(&ROW, ShapingOptions { samplers: chain("temperature,xtc,top-p"), ..options }), [1]);
    let options = ShapingOptions { xtc_probability: 1.0, xtc_threshold: 0.2, min_p: 0.3, ..plain() };
    assert_eq!(kept(&ROW, ShapingOptions { samplers: chain("temperature,xtc,min-p"), ..options }), [1, 2]);
}

#[test]
fn xtc_excludes_all_top_choices_but_the_least() {
    let xtc = |threshold| ShapingOptions { xtc_probability: 1.0, xtc_threshold: threshold, ..plain() };
    assert_eq!(kept(&ROW, xtc(0.05)), [2, 3]);
    assert_eq!(kept(&ROW, xtc(0.2)), [1, 2, 3]);
    // One top choice is no choice, and above a half there is never more than one.
    assert_eq!(kept(&ROW, xtc(0.3)), [0, 1, 2, 3]);
    assert_eq!(kept(&ROW, xtc(0.6)), [0, 1, 2, 3]);
    assert_eq!(kept(&[1.0, 1.0, 1.0, -9.0], xtc(0.1)), [2, 3]);
}

#[test]
fn xtc_acts_as_often_as_it_is_asked_to() {
    let options = ShapingOptions { xtc_probability: 0.25, xtc_threshold: 0.2, seed: 3, ..plain() };
    let shaping = Shaping::new(options).unwrap();
    let (history, mut scratch) = (History::new(), Scratch::new());
    let acted = (0..10_000u64)
        .filter(|position| {
            let all = shaped_distribution(&ROW, &shaping, Step::new(&history, *position), &mut scratch).unwrap();
            all.len() == 3
        })
        .count();
    // Within four standard deviations of 2500.
    assert!(acted.abs_diff(2500) < 174, "{acted}");
}

#[test]
fn typical_p_keeps_what_is_nearest_to_the_entropy() {
    // Entropy 0.9475; surprises 0.4402, 1.4402, 2.4402, 3.4402: distances 0.5073, 0.4927, 1.4927, 2.4927.
    let typical = |typical_p| kept(&ROW, ShapingOptions { typical_p, ..plain() });
    assert_eq!(typical(0.0), [1]);
    assert_eq!(typical(0.23), [1]);
    assert_eq!(typical(0.25), [0, 1]);
    assert_eq!(typical(0.9), [0, 1, 2]);
    assert_eq!(typical(0.97), [0, 1, 2, 3]);
    assert_eq!(typical(1.0), [0, 1, 2, 3]);
}

#[test]
fn dry_weakens_what_would_continue_a_repetition() {
    let dry = Dry { multiplier: 0.8, base: 1.75, allowed_length: 2, range: None };
    let shaping = |dry| Shaping::new(ShapingOptions { dry: Some(dry), ..plain() }).unwrap();
    let row = [1.0f32; 5];
    let expected = |penalty: f64| softmax(&[1.0, 1.0, 1.0, 1.0 - penalty, 1.0]);
    // 0 1 2 3 … 0 1 2: three tokens are repeated, and 3 would be the fourth.
    let found = |dry, tokens: &[u32]| probabilities(&row, &shaping(dry), &history(tokens));
    close(&found(dry, &[0, 1, 2, 3, 4, 0, 1, 2]), &expected(0.8 * 1.75));
    close(&found(dry, &[1, 2, 3, 4, 1, 2]), &expected(0.8));
    close(&found(dry, &[2, 3, 4, 2]), &expected(0.0));
    close(&found(Dry { allowed_length: 1, ..dry }, &[2, 3, 4, 2]), &expected(0.8));
    // The longest of several copies counts, and the prompt does too.
    close(&found(dry, &[1, 2, 3, 0, 1, 2, 3, 4, 0, 1, 2]), &expected(0.8 * 1.75));
    let mut prompt = History::new();
    prompt.push_prompt(&[0, 1, 2, 3, 4, 0, 1, 2].map(TokenId));
    close(&probabilities(&row, &shaping(dry), &prompt), &expected(0.8 * 1.75));
    // What is out of range is forgotten; breakers end a repetition.
    close(&found(Dry { range: Some(7), ..dry }, &[0, 1, 2, 3, 4, 0, 1, 2]), &expected(0.8));
    close(&found(Dry { range: Some(3), ..dry }, &[0, 1, 2, 3, 4, 0, 1, 2]), &expected(0.0));
    let broken = |breaker| shaping(dry).with_breakers(vec![TokenId(breaker)]);
    let tokens = history(&[0, 1, 2, 3, 4, 0, 1, 2]);
    close(&probabilities(&row, &broken(0), &tokens), &expected(0.8));
    close(&probabilities(&row, &broken(1), &tokens), &expected(0.0));
    close(&probabilities(&row, &broken(2), &tokens), &expected(0.0));
    // A breaker is never weakened.
    close(&probabilities(&row, &broken(3), &tokens), &expected(0.0));
}

#[test]
fn dry_acts_at_temperature_0_and_keeps_logits_finite() {
    let dry = Some(Dry { multiplier: 5.0, base: 4.0, ..Dry::default() });
    let shaping = Shaping::new(ShapingOptions { dry, temperature: 0.0, ..plain() }).unwrap();
    let loop_of = history(&[0; 5000]);
    let chosen = select(&[9.0, 1.0], &shaping, Step::new(&loop_of, 0), &mut Scratch::new()).unwrap();
    assert_eq!(chosen.token, TokenId(1));
    // The weakest finite logit is still a choice.
    let alone = select(&[9.0, f32::NEG_INFINITY], &shaping, Step::new(&loop_of, 0), &mut Scratch::new()).unwrap();
    assert_eq!(alone.token, TokenId(0));
}

#[test]
fn mirostat_bounds_surprise_and_learns_from_what_was_chosen() {
    let mirostat = Mirostat { tau: 1.0, eta: 0.5 };
    let shaping = Shaping::new(ShapingOptions { mirostat: Some(mirostat), ..plain() }).unwrap();
    let mut history = History::new();
    let left = |history: &History| probabilities(&ROW, &shaping, history).iter().filter(|p| **p > 0.0).count();
    // Surprises in bits: 0.635, 2.078, 3.520, 4.963. The bound begins at 2 tau = 2.
    assert_eq!(left(&history), 1);
    // A token without surprise raises the bound by eta · tau = 0.5 each.
    let certain = Candidate { token: TokenId(0), probability: 1.0 };
    history.push_chosen(certain, &shaping);
    assert_eq!(left(&history), 2);
    (0..3).for_each(|_| history.push_chosen(certain, &shaping));
    assert_eq!(left(&history), 3);
    // A surprise of 10 bits lowers it by eta · 9 = 4.5, below 0: the best token stays.
    history.push_chosen(Candidate { token: TokenId(0), probability: 1.0 / 1024.0 }, &shaping);
    assert_eq!(left(&history), 1);
    assert_eq!(history.len(), 5);
}

#[test]
fn mirostat_comes_near_its_aim() {
    let row: Vec<f32> = (0..1000).map(|id| -1.1 * ((id + 1) as f32).ln()).collect();
    for tau in [2.0f32, 4.0] {
        let mirostat = Some(Mirostat { tau, eta: 0.1 });
        let shaping = Shaping::new(ShapingOptions { mirostat, seed: 5, ..plain() }).unwrap();
        let (mut history, mut scratch, mut bits) = (History::new(), Scratch::new(), 0.0);
        const TOKENS: u64 = 2000;
        for position in 0..TOKENS {
            let chosen = select(&row, &shaping, Step::new(&history, position), &mut scratch).unwrap();
            bits -= chosen.probability.log2();
            history.push_chosen(chosen, &shaping);
        }
        let mean = bits / TOKENS as f64;
        assert!((mean - f64::from(tau)).abs() < 0.05 * f64::from(tau), "{mean} bits for {tau}");
    }
}

#[test]
fn a_window_of_the_options_reaches_the_history() {
    let options = ShapingOptions { repetition_penalty: 2.0, penalty_window: Some(2), ..plain() };
    let shaping = Shaping::new(options).unwrap();
    let mut history = History::for_shaping(&shaping);
    history.push_prompt(&[0, 1, 2].map(TokenId));
    close(&probabilities(&[2.0; 3], &shaping, &history), &softmax(&[2.0, 1.0, 1.0]));
}

#[test]
fn chains_are_written_and_read_by_name() {
    let default = "penalties,dry,temperature,top-k,top-p,min-p,typical-p,xtc,mirostat";
    assert_eq!(Chain::default().to_string(), default);
    assert_eq!(chain(default), Chain::default());
    assert_eq!(chain("default"), Chain::default());
    assert_eq!(chain("original"), Chain::ORIGINAL);
    assert_eq!(Chain::ORIGINAL.to_string(), "penalties,dry,top-p,top-k,min-p,typical-p,xtc,temperature,mirostat");
    assert_eq!(Chain::new(Chain::ORIGINAL.order()), Ok(Chain::ORIGINAL));
    assert_eq!(chain("top-k , temperature").order(), [Sampler::TopK, Sampler::Temperature]);
}

#[test]
fn chains_that_are_none_are_refused_by_name() {
    for (text, expected, says) in [
        ("temperature,top-q", ChainError::Unknown { found: "top-q".to_owned() }, "no sampler \"top-q\""),
        ("", ChainError::Unknown { found: String::new() }, "penalties, dry, temperature"),
        ("temperature,", ChainError::Unknown { found: String::new() }, "no sampler \"\""),
        ("top-k,temperature,top-k", ChainError::Twice(Sampler::TopK), "top-k is named twice"),
        ("temperature,temperature", ChainError::Twice(Sampler::Temperature), "temperature is named twice"),
        ("top-k,top-p", ChainError::NoTemperature, "temperature is not named"),
        (
            "top-k,dry,temperature",
            ChainError::Late { late: Sampler::Dry, early: Sampler::TopK },
            "dry stands behind top-k",
        ),
        ("mirostat,temperature", ChainError::MirostatNotLast(Sampler::Temperature), "followed by temperature"),
    ] {
        let error = text.parse::<Chain>().unwrap_err();
        assert_eq!(error, expected, "{text}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_sampler_that_is_on_must_be_part_of_the_chain() {
    let samplers = chain("temperature");
    for (options, sampler) in [
        (ShapingOptions { presence_penalty: 1.0, ..plain() }, Sampler::Penalties),
        (ShapingOptions { dry: Some(Dry::default()), ..plain() }, Sampler::Dry),
        (ShapingOptions { top_k: 5, ..plain() }, Sampler::TopK),
        (ShapingOptions { top_p: 0.5, ..plain() }, Sampler::TopP),
        (ShapingOptions { min_p: 0.5, ..plain() }, Sampler::MinP),
        (ShapingOptions { typical_p: 0.5, ..plain() }, Sampler::TypicalP),
        (ShapingOptions { xtc_probability: 0.5, ..plain() }, Sampler::Xtc),
        (ShapingOptions { mirostat: Some(Mirostat::default()), ..plain() }, Sampler::Mirostat),
    ] {
        assert!(Shaping::new(options).is_ok());
        let error = Shaping::new(ShapingOptions { samplers, ..options }).unwrap_err();
        assert_eq!(error, ShapingError::NotInChain { sampler, chain: samplers });
        assert!(error.to_string().starts_with(sampler.name()), "{error}");
    }
    assert!(Shaping::new(ShapingOptions { samplers, ..plain() }).is_ok());
}

#[test]
fn mirostat_beside_another_cut_is_refused() {
    let mirostat = ShapingOptions { mirostat: Some(Mirostat::default()), ..plain() };
    for (options, other) in [
        (ShapingOptions { top_k: 5, ..mirostat }, Sampler::TopK),
        (ShapingOptions { top_p: 0.5, ..mirostat }, Sampler::TopP),
        (ShapingOptions { min_p: 0.5, ..mirostat }, Sampler::MinP),
        (ShapingOptions { typical_p: 0.5, ..mirostat }, Sampler::TypicalP),
        (ShapingOptions { xtc_probability: 0.5, ..mirostat }, Sampler::Xtc),
    ] {
        assert_eq!(Shaping::new(options), Err(ShapingError::MirostatBeside { other }));
    }
}

#[test]
fn d40_the_parameters_of_every_sampler_are_checked() {
    let dry = |dry| ShapingOptions { dry: Some(dry), ..plain() };
    let mirostat = |mirostat| ShapingOptions { mirostat: Some(mirostat), ..plain() };
    for (options, expected) in [
        (ShapingOptions { typical_p: f32::NAN, ..plain() }, "typical_p"),
        (ShapingOptions { typical_p: 1.5, ..plain() }, "typical_p"),
        (ShapingOptions { xtc_probability: -0.1, ..plain() }, "xtc_probability"),
        (ShapingOptions { xtc_threshold: 2.0, ..plain() }, "xtc_threshold"),
        (ShapingOptions { penalty_window: Some(0), ..plain() }, "penalty_window"),
        (dry(Dry { multiplier: 0.0, ..Dry::default() }), "dry.multiplier"),
        (dry(Dry { multiplier: f32::INFINITY, ..Dry::default() }), "dry.multiplier"),
        (dry(Dry { base: 0.9, ..Dry::default() }), "dry.base"),
        (dry(Dry { range: Some(0), ..Dry::default() }), "dry.range"),
        (mirostat(Mirostat { tau: 0.0, ..Mirostat::default() }), "mirostat.tau"),
        (mirostat(Mirostat { eta: f32::NAN, ..Mirostat::default() }), "mirostat.eta"),
    ] {
        let error = Shaping::new(options).unwrap_err();
        assert!(matches!(error, ShapingError::OutOfRange { field, .. } if field == expected), "{error}");
    }
}

#[test]
fn d42_samplers_with_chance_or_memory_depend_on_seed_history_and_position_alone() {
    let row: Vec<f32> = (0..64).map(|id| (id * 37 % 64) as f32 * -0.05).collect();
    let xtc = ShapingOptions { xtc_probability: 0.5, xtc_threshold: 0.01, seed: 7, ..plain() };
    let mirostat = ShapingOptions { mirostat: Some(Mirostat { tau: 3.0, eta: 0.2 }), seed: 7, ..plain() };
    let dry = ShapingOptions { dry: Some(Dry::default()), seed: 7, ..plain() };
    for options in [xtc, mirostat, dry] {
        let run = |seed, scratch: &mut Scratch| {
            let shaping = Shaping::new(ShapingOptions { seed, ..options }).unwrap();
            let mut history = History::for_shaping(&shaping);
            let step = |position| {
                let chosen = select(&row, &shaping, Step::new(&history, position), scratch).unwrap();
                history.push_chosen(chosen, &shaping);
                chosen.token.0
            };
            (0..100).map(step).collect::<Vec<_>>()
        };
        let mut shared = Scratch::new();
        let first = run(7, &mut shared);
        assert_ne!(first, run(8, &mut shared));
        assert_eq!(first, run(7, &mut shared));
        assert_eq!(first, run(7, &mut Scratch::new()));
    }
}
