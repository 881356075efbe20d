//! How tokens are chosen: one flag for each value of the chain, and the chain out of flags, recommendations and defaults.

use super::values::{positive, shaping};
use crate::failure::Failure;
use clap::Args;
use foundation::TokenId;
use runtime::{GenerationConfig, Recommended};
use selection::{Chain, ChainError, Dry, Mirostat, Sampler, Shaping, ShapingOptions, fresh_seed};
use tokenizer::{Encode, Tokenizer};

/// The samplers and the seed.
#[derive(Args, Clone, Debug)]
pub(crate) struct SamplingFlags {
    /// 0 takes the best token [default: the model's, else 0.7]
    #[arg(long, value_name = "X", allow_negative_numbers = true,
          value_parser = shaping(|temperature| ShapingOptions { temperature, ..ShapingOptions::default() }))]
    temperature: Option<f32>,
    /// Keep this many candidates; 0 keeps all [default: the model's, else 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    top_k: Option<usize>,
    /// Keep this probability mass; 1 keeps all [default: the model's, else 0.95]
    #[arg(long, value_name = "X", allow_negative_numbers = true,
          value_parser = shaping(|top_p| ShapingOptions { top_p, ..ShapingOptions::default() }))]
    top_p: Option<f32>,
    /// Least probability relative to the best [default: the model's, else 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true,
          value_parser = shaping(|min_p| ShapingOptions { min_p, ..ShapingOptions::default() }))]
    min_p: Option<f32>,
    /// Keep this probability mass of the tokens nearest to the expected surprise; 1 keeps all [default: 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true,
          value_parser = shaping(|typical_p| ShapingOptions { typical_p, ..ShapingOptions::default() }))]
    typical_p: Option<f32>,
    /// How often all but the least probable of the best choices are left out; 0 never [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true,
          value_parser = shaping(|xtc_probability| ShapingOptions { xtc_probability, ..ShapingOptions::default() }))]
    xtc_probability: Option<f32>,
    /// Probability that makes a token one of the best choices [default: 0.1]
    #[arg(long, value_name = "X", allow_negative_numbers = true, requires = "xtc_probability",
          value_parser = shaping(|xtc_threshold| ShapingOptions { xtc_threshold, ..ShapingOptions::default() }))]
    xtc_threshold: Option<f32>,
    /// Mirostat, version 2: cut what is more surprising than a bound that follows an aim; other cuts are off
    #[arg(long, value_name = "2", allow_negative_numbers = true, value_parser = mirostat)]
    mirostat: Option<u8>,
    /// Mean surprise that mirostat aims at, in bits [default: 5]
    #[arg(long, value_name = "X", allow_negative_numbers = true, requires = "mirostat", value_parser =
          shaping(|tau| ShapingOptions { mirostat: Some(Mirostat { tau, ..Mirostat::default() }), ..ShapingOptions::default() }))]
    mirostat_tau: Option<f32>,
    /// How fast mirostat's bound follows, from 0 to 1 [default: 0.1]
    #[arg(long, value_name = "X", allow_negative_numbers = true, requires = "mirostat", value_parser =
          shaping(|eta| ShapingOptions { mirostat: Some(Mirostat { eta, ..Mirostat::default() }), ..ShapingOptions::default() }))]
    mirostat_eta: Option<f32>,
    /// Weakens tokens seen before; 1 is off [default: the model's, else 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser =
          shaping(|repetition_penalty| ShapingOptions { repetition_penalty, ..ShapingOptions::default() }))]
    repetition_penalty: Option<f32>,
    /// Subtracted from tokens generated before [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser =
          shaping(|presence_penalty| ShapingOptions { presence_penalty, ..ShapingOptions::default() }))]
    presence_penalty: Option<f32>,
    /// Subtracted for each time a token was generated [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser =
          shaping(|frequency_penalty| ShapingOptions { frequency_penalty, ..ShapingOptions::default() }))]
    frequency_penalty: Option<f32>,
    /// How many of the last tokens the three penalties look at [default: all, the prompt included]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = positive)]
    penalty_window: Option<usize>,
    /// DRY: weakens what would prolong a repetition, by X · base^(length − allowed length) [default: off]
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser =
          shaping(|multiplier| ShapingOptions { dry: Some(Dry { multiplier, ..Dry::default() }), ..ShapingOptions::default() }))]
    dry_multiplier: Option<f32>,
    /// Growth of DRY's penalty with each token of the repetition [default: 1.75]
    #[arg(long, value_name = "X", allow_negative_numbers = true, requires = "dry_multiplier", value_parser =
          shaping(|base| ShapingOptions { dry: Some(Dry { base, ..Dry::default() }), ..ShapingOptions::default() }))]
    dry_base: Option<f32>,
    /// Repetitions shorter than this are free [default: 2]
    #[arg(long, value_name = "N", allow_negative_numbers = true, requires = "dry_multiplier")]
    dry_allowed_length: Option<usize>,
    /// How many of the last tokens DRY looks at [default: all]
    #[arg(long, value_name = "N", allow_negative_numbers = true, requires = "dry_multiplier", value_parser = positive)]
    dry_range: Option<usize>,
    /// No repetition reaches across a token with this text; may be given several times, and "" alone means none
    /// [default: a line break, `:`, `"` and `*`]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, requires = "dry_multiplier")]
    dry_breaker: Vec<String>,
    /// Add X to the logit of a token, by its id or its text; -inf forbids it; may be given several times
    ///
    /// A text must be one token as the vocabulary writes it, a leading space included: --logit-bias " Tokyo=-5". Digits are an
    /// id; between double quotes they are a text: --logit-bias '"7"=2'.
    #[arg(long, value_name = "TOKEN=X", allow_hyphen_values = true, value_parser = Bias::read)]
    logit_bias: Vec<Bias>,
    /// The order of the samplers: names separated by commas, `default` or `original`; biases come after penalties and dry
    ///
    /// penalties, dry, temperature, top-k, top-p, min-p, typical-p, xtc, mirostat. One that is not named is off. `original` cuts
    /// by the probabilities at temperature 1 and applies the temperature then.
    #[arg(long, value_name = "ORDER", default_value = "default", value_parser = samplers)]
    samplers: Chain,
    /// Report how probable each token was and this many of the best, for the model itself and as shaped by the samplers
    ///
    /// Natural logarithms; on standard error after the answer, or with --json as `logprobs`.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = top)]
    logprobs: Option<usize>,
    /// Makes the answer repeatable [default: a fresh one, reported by --verbose and --json]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seed: Option<u64>,
}

/// What is used where neither a flag nor the model says anything.
const TEMPERATURE: f32 = 0.7;
const TOP_P: f32 = 0.95;
/// What usually separates one statement from the next.
const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

impl SamplingFlags {
    /// How many of the best tokens to report beside each.
    pub(crate) fn logprobs(&self) -> Option<usize> {
        self.logprobs
    }

    /// The chain: flags first, then what the model's makers recommend, for the samplers that are part of it.
    pub(crate) fn shaping(&self, recommended: Recommended, tokenizer: &Tokenizer) -> Result<Shaping, Failure> {
        let off = ShapingOptions::default();
        // A cut that nobody asked for makes way for an order that leaves it out, and for mirostat.
        let may_cut = |sampler| self.mirostat.is_none() && self.samplers.has(sampler);
        let top_k = recommended.top_k.filter(|_| may_cut(Sampler::TopK));
        let top_p = Some(recommended.top_p.unwrap_or(TOP_P)).filter(|_| may_cut(Sampler::TopP));
        let min_p = recommended.min_p.filter(|_| may_cut(Sampler::MinP));
        let repetition = recommended.repetition_penalty.filter(|_| self.samplers.has(Sampler::Penalties));
        let dry = self.dry_multiplier.map(|multiplier| Dry {
            multiplier,
            base: self.dry_base.unwrap_or(Dry::default().base),
            allowed_length: self.dry_allowed_length.unwrap_or(Dry::default().allowed_length),
            range: self.dry_range,
        });
        let mirostat = self.mirostat.map(|_| Mirostat {
            tau: self.mirostat_tau.unwrap_or(Mirostat::default().tau),
            eta: self.mirostat_eta.unwrap_or(Mirostat::default().eta),
        });
        let shaping = Shaping::new(ShapingOptions {
            temperature: self.temperature.or(recommended.temperature).unwrap_or(TEMPERATURE),
            top_k: self.top_k.or(top_k).unwrap_or(off.top_k),
            top_p: self.top_p.or(top_p).unwrap_or(off.top_p),
            min_p: self.min_p.or(min_p).unwrap_or(off.min_p),
            typical_p: self.typical_p.unwrap_or(off.typical_p),
            xtc_probability: self.xtc_probability.unwrap_or(off.xtc_probability),
            xtc_threshold: self.xtc_threshold.unwrap_or(off.xtc_threshold),
            repetition_penalty: self.repetition_penalty.or(repetition).unwrap_or(off.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(off.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(off.frequency_penalty),
            penalty_window: self.penalty_window,
            dry,
            mirostat,
            samplers: self.samplers,
            seed: self.seed.unwrap_or_else(fresh_seed),
        })?;
        let bias = self.logit_bias.iter().map(|bias| bias.resolve(tokenizer)).collect::<Result<Vec<_>, _>>()?;
        let breakers = if dry.is_some() { self.breakers(tokenizer) } else { Vec::new() };
        Ok(shaping.with_bias(bias)?.with_breakers(breakers))
    }

    /// Every token with a breaker's text in it.
    fn breakers(&self, tokenizer: &Tokenizer) -> Vec<TokenId> {
        let given: Vec<&str> = self.dry_breaker.iter().map(String::as_str).collect();
        let texts = if given.is_empty() { &BREAKERS[..] } else { &given };
        let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).filter(|text| !text.is_empty()).collect();
        let breaks = |id: &TokenId| {
            let bytes = tokenizer.token_bytes(*id).unwrap_or_default();
            texts.iter().any(|text| bytes.windows(text.len()).any(|window| window == *text))
        };
        (0..tokenizer.vocab_size() as u32).map(TokenId).filter(breaks).collect()
    }
}

/// A token by name, and what is added to its logit.
#[derive(Clone, Debug, PartialEq)]
struct Bias {
    token: String,
    add: f32,
}

impl Bias {
    fn read(text: &str) -> Result<Self, String> {
        let expected = || "expected TOKEN=X, as 42=-1.5 or \" Tokyo=-inf\"".to_owned();
        let (token, add) = text.rsplit_once('=').filter(|(token, _)| !token.is_empty()).ok_or_else(expected)?;
        let add: f32 = add.trim().parse().map_err(|_| expected())?;
        // The chain's own rule, before a model is opened.
        match Shaping::greedy().with_bias(vec![(TokenId(0), add)]) {
            Ok(_) => Ok(Self { token: token.to_owned(), add }),
            Err(_) => Err(format!("{add} is no bias; it must be a finite number, or -inf to forbid the token")),
        }
    }

    fn resolve(&self, tokenizer: &Tokenizer) -> Result<(TokenId, f32), Failure> {
        let bad = |reason: String| Err(Failure::message(format!("--logit-bias {}={}: {reason}", self.token, self.add)));
        if let Ok(id) = self.token.parse::<u32>() {
            let size = tokenizer.vocab_size();
            return match (id as usize) < size {
                true => Ok((TokenId(id), self.add)),
                false => {
                    bad(format!("there is no token {id}; the vocabulary has tokens 0 to {}", size.saturating_sub(1)))
                }
            };
        }
        let quoted = self.token.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        let text = quoted.filter(|text| !text.is_empty()).unwrap_or(&self.token);
        match tokenizer.encode(text, Encode { special: true, bos: false })?.as_slice() {
            [id] => Ok((*id, self.add)),
            ids => {
                let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
                bad(format!("{text:?} is {} tokens ({}); name one of them by its id", ids.len(), ids.join(", ")))
            }
        }
    }
}

/// An order of samplers.
fn samplers(text: &str) -> Result<Chain, String> {
    text.parse().map_err(|error: ChainError| error.to_string())
}

/// The version of mirostat.
fn mirostat(text: &str) -> Result<u8, String> {
    match text {
        "2" => Ok(2),
        _ => Err("this version has mirostat 2 only; leave it out for none".to_owned()),
    }
}

/// How many tokens to report.
fn top(text: &str) -> Result<usize, String> {
    let most = GenerationConfig::MOST_LOGPROBS;
    let top = text.parse().ok().filter(|top| *top <= most);
    top.ok_or_else(|| format!("expected a whole number from 0 to {most}"))
}
