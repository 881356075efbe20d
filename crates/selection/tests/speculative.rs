//! Tokens kept by verification are distributed as the target's own.

use foundation::TokenId;
use turbospark_selection::{
    Candidate, Draw, History, Scratch, Shaping, ShapingOptions, Step, Verdict, residual, select, shaped_distribution,
    verify,
};

fn candidates(of: &[(u32, f64)]) -> Vec<Candidate> {
    of.iter().map(|(id, probability)| Candidate { token: TokenId(*id), probability: *probability }).collect()
}

#[test]
fn the_residual_is_what_the_draft_gave_too_little() {
    let target = candidates(&[(3, 0.5), (1, 0.3), (0, 0.2)]);
    let draft = candidates(&[(1, 0.6), (3, 0.4)]);
    let found = residual(&target, &draft);
    assert_eq!(found.iter().map(|c| c.token.0).collect::<Vec<_>>(), [0, 3]);
    for (candidate, expected) in found.iter().zip([0.2 / 0.3, 0.1 / 0.3]) {
        assert!((candidate.probability - expected).abs() < 1e-12, "{found:?}");
    }
}

#[test]
fn without_a_residual_the_target_is_drawn_from() {
    let same = candidates(&[(0, 0.25), (1, 0.75)]);
    assert_eq!(residual(&same, &same), same);
    let rounded = candidates(&[(0, 0.25 + 1e-15), (1, 0.75)]);
    assert_eq!(residual(&rounded, &same), rounded);
}

#[test]
fn greedy_targets_accept_their_own_token_only() {
    let target = candidates(&[(4, 1.0)]);
    for position in 0..1000 {
        let draw = Draw { seed: 1, position };
        let draft = candidates(&[(4, 0.001), (5, 0.999)]);
        assert_eq!(verify(&target, &draft, TokenId(4), draw), Verdict::Accepted);
        assert_eq!(verify(&target, &draft, TokenId(5), draw), Verdict::Replaced(TokenId(4)));
    }
}

#[test]
fn equal_distributions_accept_everything() {
    let same = candidates(&[(0, 0.1), (1, 0.9)]);
    for position in 0..1000 {
        assert_eq!(verify(&same, &same, TokenId(0), Draw { seed: 2, position }), Verdict::Accepted);
    }
}

/// χ² of the tokens kept against the target, over targets and drafts shaped by different chains.
#[test]
fn speculation_reproduces_the_target_distribution() {
    const TRIALS: u64 = 200_000;
    let target_row = [2.0f32, 1.0, 0.5, 0.0, -0.5, -1.0, 1.5, -3.0];
    let shape = |temperature, top_k, top_p, seed| {
        Shaping::new(ShapingOptions { temperature, top_k, top_p, seed, ..ShapingOptions::default() }).unwrap()
    };
    let history = History::new();
    let mut scratch = Scratch::new();
    let drafts: [(&[f32; 8], Shaping); 4] = [
        (&[0.0; 8], shape(1.0, 0, 1.0, 11)),
        (&[-1.0, 0.0, 3.0, 1.0, 1.0, 1.0, 0.0, 2.0], shape(1.0, 0, 1.0, 12)),
        // The draft never proposes some of the target's tokens.
        (&[2.0, 1.0, 0.5, 0.0, -0.5, -1.0, 1.5, -3.0], shape(0.5, 3, 1.0, 13)),
        (&[0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], shape(0.0, 0, 1.0, 14)),
    ];
    for (draft_row, draft_shaping) in drafts {
        let seed = draft_shaping.options().seed;
        let target_shaping = shape(0.9, 7, 0.99, seed);
        let step = Step::new(&history, 0);
        let target = shaped_distribution(&target_row, &target_shaping, step, &mut scratch).unwrap();
        let draft = shaped_distribution(draft_row, &draft_shaping, step, &mut scratch).unwrap();
        let (mut counts, mut accepted) = ([0f64; 8], 0f64);
        for position in 0..TRIALS {
            let drafted = select(draft_row, &draft_shaping, Step::new(&history, position), &mut scratch).unwrap().token;
            let kept = match verify(&target, &draft, drafted, Draw { seed, position }) {
                Verdict::Accepted => {
                    accepted += 1.0;
                    drafted
                }
                Verdict::Replaced(token) => token,
            };
            counts[kept.index()] += 1.0;
        }
        let q = |token| draft.iter().find(|c| c.token == token).map_or(0.0, |c| c.probability);
        let (mut chi, mut seen, mut overlap) = (0.0, 0.0, 0.0);
        for candidate in &target {
            let mean = candidate.probability * TRIALS as f64;
            let count = counts[candidate.token.index()];
            chi += (count - mean).powi(2) / mean;
            seen += count;
            overlap += candidate.probability.min(q(candidate.token));
        }
        assert_eq!(seen, TRIALS as f64, "a token outside the target was kept");
        assert!(target.len() <= 7, "{target:?}");
        // The 0.999 quantile with 6 degrees of freedom; fewer degrees have a lower one.
        assert!(chi < 22.46, "seed {seed}: {chi}");
        // A token is accepted with probability Σ min(p, q).
        let spread = (overlap * (1.0 - overlap) / TRIALS as f64).sqrt();
        assert!((accepted / TRIALS as f64 - overlap).abs() <= 4.0 * spread + 1e-9, "{accepted} {overlap}");
    }
}
