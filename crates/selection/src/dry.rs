//! DRY ("don't repeat yourself"): weakens tokens that would continue a repetition of what was said before.

use crate::shaping::{Dry, Shaping};
use foundation::{LogitValue, TokenId};
use std::collections::HashMap;

/// Subtracts `multiplier · base^(length − allowed_length)` from every token that followed an earlier copy of the last
/// `length` tokens, for the longest such copy; shorter ones than `allowed_length` are free.
///
/// A copy does not reach across a breaker, and a breaker is not weakened. Linear in the history.
pub(crate) fn weaken_repeats(row: &mut [LogitValue], shaping: &Shaping, tokens: &[TokenId]) {
    let Some(dry) = shaping.options().dry else { return };
    let window = dry.range.map_or(tokens, |range| &tokens[tokens.len().saturating_sub(range)..]);
    for (token, length) in repeats(window, shaping.breakers(), dry.allowed_length) {
        if let Some(logit) = row.get_mut(token.index()).filter(|logit| logit.is_finite()) {
            *logit = (f64::from(*logit) - penalty(dry, length)).clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
        }
    }
}

/// The tokens that would continue a repetition, with the greatest length of what they would repeat.
fn repeats(tokens: &[TokenId], breakers: &[TokenId], allowed: usize) -> HashMap<TokenId, usize> {
    let is_breaker = |id: &TokenId| breakers.binary_search(id).is_ok();
    let reach = tokens.iter().rev().position(is_breaker).unwrap_or(tokens.len());
    let mut longest = HashMap::new();
    if reach == 0 || reach < allowed {
        return longest;
    }
    let reversed: Vec<TokenId> = tokens.iter().rev().copied().collect();
    for (at, length) in common_prefixes(&reversed).into_iter().enumerate().skip(1) {
        let (length, next) = (length.min(reach), reversed[at - 1]);
        if length > 0 && length >= allowed && !is_breaker(&next) {
            let known = longest.entry(next).or_insert(length);
            *known = length.max(*known);
        }
    }
    longest
}

/// For each place, how many elements from there on equal those from the start (the Z function).
fn common_prefixes(ids: &[TokenId]) -> Vec<usize> {
    let mut lengths = vec![0; ids.len()];
    let (mut from, mut to) = (0, 0);
    for at in 1..ids.len() {
        let mut length = if at < to { lengths[at - from].min(to - at) } else { 0 };
        while at + length < ids.len() && ids[length] == ids[at + length] {
            length += 1;
        }
        lengths[at] = length;
        if at + length > to {
            (from, to) = (at, at + length);
        }
    }
    lengths
}

/// By multiplications alone, so that every machine gets the same bits.
fn penalty(dry: Dry, length: usize) -> f64 {
    let mut factor = 1.0f64;
    for _ in dry.allowed_length..length {
        factor *= f64::from(dry.base);
        if factor > f64::from(f32::MAX) {
            break;
        }
    }
    f64::from(dry.multiplier) * factor
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    /// As the definition reads: every earlier place, compared backwards.
    fn slow(tokens: &[TokenId], breakers: &[TokenId], allowed: usize) -> HashMap<TokenId, usize> {
        let mut longest = HashMap::new();
        for next in 1..tokens.len() {
            let length = (1..=next)
                .take_while(|back| {
                    let (earlier, last) = (tokens[next - back], tokens[tokens.len() - back]);
                    earlier == last && !breakers.contains(&last)
                })
                .count();
            if length > 0 && length >= allowed && !breakers.contains(&tokens[next]) {
                let known = longest.entry(tokens[next]).or_insert(length);
                *known = length.max(*known);
            }
        }
        longest
    }

    #[test]
    fn the_fast_search_finds_what_the_definition_finds() {
        let mut word = 12345u32;
        for case in 0..400usize {
            let tokens: Vec<TokenId> = (0..case % 40)
                .map(|_| {
                    word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    TokenId((word >> 24) % 3)
                })
                .collect();
            for breakers in [ids(&[]), ids(&[1])] {
                for allowed in 0..4 {
                    assert_eq!(repeats(&tokens, &breakers, allowed), slow(&tokens, &breakers, allowed), "{tokens:?}");
                }
            }
        }
    }
}
