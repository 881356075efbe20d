//! Time to the first token, turn by turn of a conversation, beside the same prompts computed from nothing.

use super::spread::Spread;
use super::{Runner, some_tokens};
use crate::failure::Failure;
use crate::{output, progress};
use foundation::TokenId;
use runtime::Want;
use serde_json::{Value, json};
use std::ops::Range;
use std::time::Instant;

/// The tokens of a conversation, and where each turn's prompt and answer lie in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conversation {
    /// Turn by turn what is new in the prompt, and the answer behind it.
    turns: Vec<[Range<usize>; 2]>,
}

impl Conversation {
    /// At least a fifth of the tokens stand before the first question, as instructions and tool descriptions do; every turn
    /// has the same share, two fifths of it the question and what tools returned, the others the answer. The last prompt
    /// has all the tokens.
    pub(super) fn new(tokens: usize, turns: usize) -> Result<Self, Failure> {
        let share = (tokens - tokens / 5) / turns;
        let question = share * 2 / 5;
        if question == 0 || question == share {
            return Err(Failure::message(format!(
                "{turns} turns in {tokens} tokens leave too few for each; ask for a --depth of at least {}",
                turns * 4
            )));
        }
        let first = tokens - (turns - 1) * share - question;
        let turn = |at: usize| {
            let from = if at == 0 { 0 } else { first + at * share };
            let answer = first + at * share + question;
            [from..answer, answer..first + (at + 1) * share]
        };
        Ok(Self { turns: (0..turns).map(turn).collect() })
    }

    /// Tokens of the last prompt.
    fn last_prompt(&self) -> usize {
        self.turns.last().map_or(0, |[prompt, _]| prompt.end)
    }
}

/// Seconds to the first token.
#[derive(Debug)]
pub(super) struct Times {
    /// Of each turn after those before it.
    turns: Vec<Spread>,
    /// Of the last prompt alone.
    cold: Spread,
    tokens: usize,
}

/// Holds the conversation `reps` times after a warm-up, each time followed by its last prompt from nothing.
pub(super) fn measure(runner: &mut Runner, talk: &Conversation, reps: usize, quiet: bool) -> Result<Times, Failure> {
    let tokens = some_tokens(talk.last_prompt(), runner.producer.vocab());
    let (mut turns, mut cold) = (vec![Vec::new(); talk.turns.len()], Vec::new());
    let bar = progress::bar("repetitions", reps + 1, quiet);
    for rep in 0..=reps {
        runner.producer.reset();
        for ([prompt, answer], times) in talk.turns.iter().zip(&mut turns) {
            let seconds = runner.first_token(&tokens[..prompt.end])?;
            if rep > 0 {
                times.push(seconds);
            }
            let answered = tokens.get(answer.clone()).unwrap_or_default();
            for token in answered {
                runner.producer.produce(&[*token], Want::Last, &mut runner.logits)?;
            }
        }
        let seconds = runner.prompt(tokens.len())?;
        if rep > 0 {
            cold.push(seconds);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Times {
        turns: turns.iter().map(|times| Spread::of(times)).collect(),
        cold: Spread::of(&cold),
        tokens: tokens.len(),
    })
}

impl Runner {
    /// Seconds until the logits after a prompt are there, whose beginning may be known.
    fn first_token(&mut self, prompt: &[TokenId]) -> Result<f64, Failure> {
        let started = Instant::now();
        let known = self.producer.resume(prompt);
        self.feed(&prompt[known..])?;
        Ok(started.elapsed().as_secs_f64())
    }
}

impl Times {
    /// How many times sooner the last turn's first token comes than from nothing.
    fn gain(&self) -> f64 {
        self.turns.last().map_or(f64::NAN, |last| self.cold.median / last.median)
    }

    pub(super) fn json(&self) -> Value {
        let medians: Vec<_> = self.turns.iter().map(|turn| turn.median).collect();
        let spread: Vec<_> = self.turns.iter().map(|turn| [turn.least, turn.most]).collect();
        json!({
            "tokens": self.tokens,
            "first_token_s": medians,
            "first_token_spread": spread,
            "cold_s": self.cold.median,
            "cold_spread": [self.cold.least, self.cold.most],
            "gain": self.gain(),
        })
    }

    pub(super) fn print(&self) -> Result<(), Failure> {
        let line = |name: String, Spread { median, least, most }: &Spread| {
            format!("{name:<12} {:>9.1} ms ({:.1} to {:.1})\n", median * 1e3, least * 1e3, most * 1e3)
        };
        let mut text: String =
            self.turns.iter().enumerate().map(|(at, t)| line(format!("turn {}", at + 1), t)).collect();
        text += &line(format!("{} cold", self.tokens), &self.cold);
        text += &format!("the last turn's first token comes {:.1} times sooner than from nothing\n", self.gain());
        output::write(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_one_another() {
        let talk = Conversation::new(4096, 10).expect("enough tokens");
        let mut end = 0;
        for [prompt, answer] in &talk.turns {
            assert_eq!(prompt.start, end);
            assert_eq!(prompt.end, answer.start);
            assert!(!prompt.is_empty() && !answer.is_empty());
            end = answer.end;
        }
        assert_eq!(talk.last_prompt(), 4096);
        assert!(Conversation::new(40, 10).is_ok());
        assert!(Conversation::new(36, 10).is_err());
    }
}
