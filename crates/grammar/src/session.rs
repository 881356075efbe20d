//! A compiled constraint, and its state along one reply.

use crate::error::GrammarError;
use crate::mask::Mask;
use foundation::TokenId;
use llguidance::Matcher;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// What replies must follow. Cheap to share; every reply gets a [`Session`] of its own.
#[derive(Clone)]
pub struct Constraint {
    fresh: Arc<Matcher>,
    ends: Arc<BTreeSet<TokenId>>,
    chunks: bool,
}

impl Constraint {
    pub(crate) fn new(fresh: Matcher, ends: &BTreeSet<TokenId>) -> Self {
        Self { fresh: Arc::new(fresh), ends: Arc::new(ends.clone()), chunks: true }
    }

    /// Feeds tokens that must come one by one instead of together. Changes no token.
    pub fn one_by_one(mut self) -> Self {
        self.chunks = false;
        self
    }

    /// Whether tokens that must come may be fed together.
    pub fn feeds_chunks(&self) -> bool {
        self.chunks
    }

    /// A state at the beginning of a reply, independent of every other.
    pub fn session(&self) -> Session {
        Session {
            matcher: self.fresh.deep_clone(),
            ends: Arc::clone(&self.ends),
            forced: VecDeque::new(),
            tokens: 0,
            ended: false,
        }
    }
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint").field("chunks", &self.chunks).finish_non_exhaustive()
    }
}

/// Where one reply stands.
pub struct Session {
    matcher: Matcher,
    ends: Arc<BTreeSet<TokenId>>,
    /// Tokens that must come, in order; not taken yet.
    forced: VecDeque<TokenId>,
    tokens: usize,
    ended: bool,
}

impl Session {
    /// A copy that goes its own way from here.
    pub fn fork(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            ends: Arc::clone(&self.ends),
            forced: self.forced.clone(),
            tokens: self.tokens,
            ended: self.ended,
        }
    }

    /// Whether the reply is complete and nothing can follow.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Tokens taken so far.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Whether the reply could end here.
    ///
    /// # Errors
    /// As [`Session::mask`].
    pub fn may_end(&mut self) -> Result<bool, GrammarError> {
        if self.ended {
            return Ok(true);
        }
        let accepting = self.forced.is_empty() && self.matcher.is_accepting().map_err(|error| self.stuck(error))?;
        Ok(accepting)
    }

    /// The token that must come next, if there is but one way to go on. It follows from the tokens before it alone.
    pub fn forced(&mut self) -> Option<TokenId> {
        if self.forced.is_empty() && !self.ended {
            self.forced.extend(self.matcher.compute_ff_tokens().into_iter().map(TokenId));
        }
        self.forced.front().copied()
    }

    /// The tokens that may come next; at least one.
    ///
    /// # Errors
    /// The reply is over, or the grammar cannot be followed within its limits.
    pub fn mask(&mut self) -> Result<Mask, GrammarError> {
        if self.ended {
            return Err(self.stuck("the reply is complete"));
        }
        if let Some(token) = self.forced() {
            let mut words = vec![0; token.index() / 32 + 1];
            words[token.index() / 32] = 1 << (token.index() % 32);
            return Ok(Mask::new(&words));
        }
        let set = self.matcher.compute_mask().map_err(|error| self.stuck(error))?;
        Ok(Mask::new(set.as_slice()))
    }

    /// Goes on by one token.
    ///
    /// # Errors
    /// A token that the grammar does not allow here; the session stays where it was.
    pub fn take(&mut self, token: TokenId) -> Result<(), GrammarError> {
        let refused = GrammarError::NotAllowed { token: token.0, tokens: self.tokens };
        if self.ended || self.forced.front().is_some_and(|forced| *forced != token) {
            return Err(refused);
        }
        if self.ends.contains(&token) {
            if !self.may_end()? {
                return Err(refused);
            }
            self.tokens += 1;
            self.ended = true;
            return Ok(());
        }
        // A token outside the grammar would leave the parser unusable: ask first.
        if self.matcher.validate_tokens(&[token.0]).map_err(|error| self.stuck(error))? == 0 {
            return Err(refused);
        }
        self.matcher.consume_token(token.0).map_err(|error| self.stuck(error))?;
        self.forced.pop_front();
        self.tokens += 1;
        self.ended = self.forced.is_empty() && self.matcher.is_stopped();
        match self.matcher.get_error() {
            Some(error) => Err(self.stuck(error)),
            None if self.ended && !self.matcher.stop_reason().is_ok() => {
                Err(self.stuck(format!("the parser gave up ({})", self.matcher.stop_reason())))
            }
            None => Ok(()),
        }
    }

    fn stuck(&self, reason: impl ToString) -> GrammarError {
        GrammarError::Stuck { tokens: self.tokens, reason: reason.to_string() }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("tokens", &self.tokens).field("ended", &self.ended).finish_non_exhaustive()
    }
}
