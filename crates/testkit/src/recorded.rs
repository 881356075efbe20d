//! Recorded llama.cpp runs of real models, and how closely a run of ours agrees.
//!
//! llama.cpp rounds activations to 8 bits, so ids are compared strictly only where its two best tokens are far
//! apart; everywhere else the recorded ids are teacher-forced and log-probabilities compared.

use serde_json::Value;
use std::path::Path;

/// The gap between the two best log-probabilities above which both engines must prefer the same token.
const CLEAR_GAP: f64 = 0.25;

/// One recorded generation.
#[derive(Clone, Debug)]
pub struct Run {
    /// `raw` or `chat`.
    pub kind: String,
    /// The prompt's text, of raw runs.
    pub prompt: Option<String>,
    /// The prompt.
    pub prompt_ids: Vec<u32>,
    /// The greedy continuation.
    pub gen_ids: Vec<u32>,
    /// Its text.
    pub text: String,
    /// For each generated token: its log-probability and the gap to the second best.
    pub steps: Vec<Step>,
}

/// What was recorded of one generated token.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The token llama.cpp preferred.
    pub id: u32,
    /// Its log-probability, nats.
    pub logprob: f64,
    /// Distance to the second best, nats.
    pub gap: f64,
}

/// How a model's teacher-forced logits compare with the recorded ones.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// Steps compared.
    pub steps: usize,
    /// Steps whose recorded gap is clear.
    pub clear: usize,
    /// Clear steps where another token was preferred.
    pub wrong: usize,
    /// Steps where the preferred token is the recorded one.
    pub same: usize,
    /// Differences of log-probability, ascending.
    pub differences: Vec<f64>,
}

impl Agreement {
    /// The difference that a share of the steps stays below.
    pub fn quantile(&self, share: f64) -> f64 {
        let at = ((self.differences.len() as f64 * share).ceil() as usize).saturating_sub(1);
        self.differences.get(at).copied().unwrap_or(f64::NAN)
    }

    /// Adds another model's steps.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.clear += other.clear;
        self.wrong += other.wrong;
        self.same += other.same;
        self.differences.extend_from_slice(&other.differences);
        self.differences.sort_by(f64::total_cmp);
    }

    /// What is wrong, if anything: the rule is no disagreement at clear steps, log-probabilities within 0.1 at 90 %
    /// of the steps and within 0.4 at all.
    pub fn verdict(&self) -> Result<(), String> {
        let (most, all) = (self.quantile(0.9), self.quantile(1.0));
        if self.steps == 0 || self.wrong > 0 || most.is_nan() || most > 0.1 || all > 0.4 {
            return Err(format!("{self}; expected 0 wrong, 90 % within 0.1, all within 0.4"));
        }
        Ok(())
    }
}

impl std::fmt::Display for Agreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (most, all) = (self.quantile(0.9), self.quantile(1.0));
        write!(
            f,
            "{} steps, same token at {}, {} of {} clear steps wrong, log-probability within {most:.3} at 90 % and {all:.3} at all",
            self.steps, self.same, self.wrong, self.clear
        )
    }
}

/// The recorded runs of a model (`recorded/<name>.json`).
///
/// # Panics
/// If there is no such record.
pub fn recorded(name: &str) -> Vec<Run> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded").join(format!("{name}.json"));
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let json: Value = serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let ids = |v: &Value| v.as_array().into_iter().flatten().filter_map(Value::as_u64).map(|id| id as u32).collect();
    let runs = json["runs"].as_array().into_iter().flatten();
    runs.map(|run| Run {
        kind: run["kind"].as_str().unwrap_or_default().to_owned(),
        prompt: run["prompt"].as_str().map(str::to_owned),
        prompt_ids: ids(&run["prompt_ids"]),
        gen_ids: ids(&run["gen_ids"]),
        text: run["text"].as_str().unwrap_or_default().to_owned(),
        steps: run["steps"].as_array().into_iter().flatten().map(step).collect(),
    })
    .collect()
}

fn step(step: &Value) -> Step {
    let id = step["id"].as_u64().unwrap_or_default() as u32;
    let logprob = step["logprob"].as_f64().unwrap_or(f64::NAN);
    let others = step["top"].as_array().into_iter().flatten().filter(|t| t[0].as_u64() != Some(id as u64));
    let second = others.filter_map(|t| t[1].as_f64()).fold(f64::NEG_INFINITY, f64::max);
    Step { id, logprob, gap: logprob - second }
}

/// Compares teacher-forced logits with the recorded steps; `logits(tokens)` gives every position's row.
pub fn agreement(runs: &[Run], vocab: usize, mut logits: impl FnMut(&[u32]) -> Vec<f32>) -> Agreement {
    let mut result = Agreement::default();
    for run in runs {
        let tokens: Vec<u32> = run.prompt_ids.iter().chain(&run.gen_ids).copied().collect();
        let rows = logits(&tokens[..tokens.len() - 1]);
        let rows = rows.chunks_exact(vocab).skip(run.prompt_ids.len() - 1);
        for (row, step) in rows.zip(&run.steps) {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let norm = max as f64 + row.iter().map(|x| (*x as f64 - max as f64).exp()).sum::<f64>().ln();
            let same = row[step.id as usize] == max;
            let clear = step.gap > CLEAR_GAP;
            result.steps += 1;
            result.same += usize::from(same);
            result.clear += usize::from(clear);
            result.wrong += usize::from(clear && !same);
            result.differences.push((row[step.id as usize] as f64 - norm - step.logprob).abs());
        }
    }
    result.differences.sort_by(f64::total_cmp);
    result
}
