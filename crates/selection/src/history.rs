//! Which tokens a sequence has seen, counted for the penalties.

use std::collections::{HashMap, VecDeque};

use crate::arithmetic::ln;
use crate::select::Candidate;
use crate::shaping::{Mirostat, Shaping};
use foundation::TokenId;

/// The tokens of one sequence, counted; an update is O(1).
///
/// The repetition penalty looks at prompt and generated tokens, the presence and frequency
/// penalties at generated tokens only. A caller that wants the prompt left out does not push it.
/// With a window, only the last `window` tokens count. Beside the counts it keeps the tokens in order, for DRY, and how far
/// the surprise so far was from mirostat's aim. A copy is a state to return to when drafted tokens are rejected.
#[derive(Clone, Debug, Default)]
pub struct History {
    counts: Vec<Count>,
    index: HashMap<TokenId, usize>,
    recent: Option<Recent>,
    generated: usize,
    tokens: Vec<TokenId>,
    /// Σ eta · (surprise − tau).
    excess: f64,
}

/// How often one token occurs in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) id: TokenId,
    pub(crate) prompt: u32,
    pub(crate) generated: u32,
}

#[derive(Clone, Debug)]
struct Recent {
    window: usize,
    ids: VecDeque<(TokenId, Origin)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Prompt,
    Generated,
}

impl History {
    /// An empty history in which every token counts for ever.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty history in which only the last `window` tokens count.
    pub fn with_window(window: usize) -> Self {
        Self { recent: Some(Recent { window, ids: VecDeque::new() }), ..Self::default() }
    }

    /// An empty history for a sequence that is shaped so: with its window.
    pub fn for_shaping(shaping: &Shaping) -> Self {
        shaping.options().penalty_window.map_or_else(Self::new, Self::with_window)
    }

    /// Adds the tokens of a prompt.
    pub fn push_prompt(&mut self, ids: &[TokenId]) {
        for &id in ids {
            self.add(id, Origin::Prompt);
        }
    }

    /// Adds one generated token.
    pub fn push(&mut self, id: TokenId) {
        self.generated += 1;
        self.add(id, Origin::Generated);
    }

    /// Adds a token that [`select`](crate::select) chose, with what mirostat learns from how surprising it was.
    pub fn push_chosen(&mut self, chosen: Candidate, shaping: &Shaping) {
        if let Some(Mirostat { tau, eta }) = shaping.options().mirostat {
            let surprise = -ln(chosen.probability) / std::f64::consts::LN_2;
            self.excess += f64::from(eta) * (surprise - f64::from(tau));
        }
        self.push(chosen.token);
    }

    /// The surprise in bits above which mirostat cuts: 2 tau at first, less after surprising tokens.
    pub(crate) fn most_surprise(&self, mirostat: Mirostat) -> f64 {
        2.0 * f64::from(mirostat.tau) - self.excess
    }

    /// Every token pushed, in order.
    pub(crate) fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Tokens pushed, prompt included, whether or not they still count.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Generated tokens pushed, whether or not they still count.
    pub fn generated(&self) -> usize {
        self.generated
    }

    /// Each distinct token once; entries that left the window may remain with counts of zero.
    pub(crate) fn counts(&self) -> &[Count] {
        &self.counts
    }

    fn add(&mut self, id: TokenId, origin: Origin) {
        self.tokens.push(id);
        let slot = *self.index.entry(id).or_insert_with(|| {
            self.counts.push(Count { id, prompt: 0, generated: 0 });
            self.counts.len() - 1
        });
        *self.counts[slot].of(origin) += 1;
        let Some(recent) = &mut self.recent else {
            return;
        };
        recent.ids.push_back((id, origin));
        if recent.ids.len() > recent.window
            && let Some((old, origin)) = recent.ids.pop_front()
        {
            *self.counts[self.index[&old]].of(origin) -= 1;
        }
    }
}

impl Count {
    fn of(&mut self, origin: Origin) -> &mut u32 {
        match origin {
            Origin::Prompt => &mut self.prompt,
            Origin::Generated => &mut self.generated,
        }
    }
}
