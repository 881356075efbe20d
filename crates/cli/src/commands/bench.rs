//! `bench`: speed of prefill and decode, beside the memory bandwidth measured in the same run.

mod bandwidth;
mod batch;
mod spread;
mod turns;

use super::print_json;
use crate::arguments::{ModelArgument, PlaceFlags, PrefixMemoryFlag, StoreFlags, VerboseFlag, positive};
use crate::failure::Failure;
use crate::models::is_scripted;
use crate::{open, output, progress, report};
use bandwidth::Bandwidth;
use clap::Args;
use foundation::TokenId;
use plan::{Budget, WeightRole};
use runtime::{DeviceKind, ExpertChoice, ExpertStats, LogitProducer, ModelFiles, OpenOptions, Want, copy_bandwidth};
use serde_json::{Map, Value, json};
use spread::Spread;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Instant;

/// Measure speed beside the memory bandwidth.
///
/// Every repetition runs all arms in turn, prompts (pp), decoding (tg) and reading a large buffer with all threads,
/// so that they share whatever else the machine does. The first repetition warms up and does not count. Medians
/// are printed, in tokens a second; `first_s` is the time of the first token after opening. The context is as long
/// as the longest arm needs, unless --ctx says otherwise.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    #[command(flatten)]
    model: ModelArgument,
    /// Prompt lengths
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "16,128,512", value_parser = positive)]
    pp: Vec<usize>,
    /// Tokens to decode
    #[arg(long, value_name = "N", default_value = "128", value_parser = positive)]
    tg: usize,
    /// Tokens already in the context when decoding begins
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0,2048")]
    depth: Vec<usize>,
    /// Instead: decode this many sequences at once through the scheduler; all their tokens a second
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = positive)]
    sequences: Vec<usize>,
    /// Instead: the time to the first token in each turn of a conversation as long as the greatest depth
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "sequences")]
    turns: Option<usize>,
    /// Say how streamed experts served each arm
    #[arg(long, conflicts_with_all = ["sequences", "turns"])]
    stats: bool,
    /// Do not measure the memory bandwidth, whose buffer takes 512 MiB
    #[arg(long)]
    no_bandwidth: bool,
    /// Repetitions that count
    #[arg(long, value_name = "N", default_value = "3", value_parser = positive)]
    reps: usize,
    /// Print one JSON line
    #[arg(long)]
    json: bool,
    /// Threads [default: as many as the machine and the container give]
    #[arg(long, value_name = "N", value_parser = positive)]
    threads: Option<usize>,
    /// Prompt tokens computed at once
    #[arg(long, value_name = "N", default_value = "256", value_parser = positive)]
    prefill_chunk: usize,
    /// Allow only exact kernels; every device of this version is exact, so this changes nothing yet
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    prefixes: PrefixMemoryFlag,
    #[command(flatten)]
    place: PlaceFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    verbose: VerboseFlag,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
enum Arm {
    /// A prompt of this length from an empty context.
    Prompt(usize),
    /// Decoding after this many tokens.
    Decode(usize),
}

impl Bench {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        if cfg!(debug_assertions) {
            output::warn("this is a build without optimisation: neither speed nor bandwidth mean anything");
        }
        let model = self.store.models(self.json)?.locate(self.model.name()?)?;
        let deepest = self.depth.iter().max().copied().unwrap_or(0);
        let longest = self.pp.iter().max().copied().unwrap_or(0);
        let context = self.place.ctx.or(Some((deepest + self.tg).max(longest)));
        let (threads, prefill_chunk) = (self.threads, self.prefill_chunk);
        let prefixes = self.prefixes.prefixes();
        let options = OpenOptions { context, threads, prefill_chunk, prefixes, ..self.place.options() };
        if !self.sequences.is_empty() {
            let options = OpenOptions { context: self.place.ctx, ..options };
            let rates = batch::measure(&model, &options, &self.sequences, (self.tg, self.reps, self.json))?;
            return self.print_batches(&rates);
        }
        let (producer, opened) = open::logits(&model, &options, self.verbose.verbose)?;
        let mut runner = Runner { logits: vec![0.0; producer.vocab()], producer, chunk: self.prefill_chunk };
        if let Some(turns) = self.turns {
            let talk = turns::Conversation::new(deepest, turns)?;
            let times = turns::measure(&mut runner, &talk, self.reps, self.json)?;
            return if self.json { print_json(&times.json()) } else { times.print() };
        }
        let first = runner.prompt(1)?;
        let depths = self.depth.iter().map(|depth| Arm::Decode(*depth));
        let arms: Vec<Arm> = self.pp.iter().map(|n| Arm::Prompt(*n)).chain(depths).collect();
        let mut rates = vec![Vec::new(); arms.len()];
        let mut experts = vec![None; arms.len()];
        let mut bandwidth = (!self.no_bandwidth).then(|| Bandwidth::new(opened.threads));
        let mut bandwidths = Vec::new();
        let bar = progress::bar("repetitions", self.reps + 1, self.json);
        for rep in 0..=self.reps {
            for ((arm, rates), experts) in arms.iter().zip(&mut rates).zip(&mut experts) {
                let before = runner.producer.expert_stats();
                let rate = match arm {
                    Arm::Prompt(tokens) => *tokens as f64 / runner.prompt(*tokens)?,
                    Arm::Decode(depth) => self.tg as f64 / runner.decode(*depth, self.tg)?,
                };
                rates.push(rate);
                // Of the last repetition, when the slots have found their experts.
                *experts = runner.producer.expert_stats().zip(before).map(|(now, before)| now.since(&before));
                if let (Arm::Decode(_), Some(bandwidth)) = (arm, &mut bandwidth) {
                    bandwidths.push(copy_bandwidth(options.device)?.unwrap_or_else(|| bandwidth.measure()));
                }
            }
            if rep == 0 {
                rates.iter_mut().for_each(Vec::clear);
                bandwidths.clear();
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let outcome = Outcome {
            load: opened.elapsed.as_secs_f64(),
            first,
            threads: opened.threads,
            tg: self.tg,
            experts: self.stats.then_some(experts),
            rates: arms.into_iter().zip(rates.iter().map(|r| Spread::of(r))).collect(),
            bandwidth: (!bandwidths.is_empty()).then(|| Spread::of(&bandwidths)),
            own_memory: matches!(options.device, DeviceKind::Cuda(_)),
            traffic: Traffic::of(&model, &options)?,
        };
        match self.json {
            true => print_json(&outcome.json()),
            false => output::write(&outcome.text()),
        }
    }

    fn print_batches(&self, rates: &[(usize, Spread)]) -> Result<(), Failure> {
        if self.json {
            let name = |count: &usize| format!("tg{}x{count}", self.tg);
            let medians: Map<_, _> = rates.iter().map(|(n, rate)| (name(n), json!(rate.median))).collect();
            let spread: Map<_, _> = rates.iter().map(|(n, rate)| (name(n), json!([rate.least, rate.most]))).collect();
            print_json(&json!({ "aggregate_tok_s": medians, "spread": spread }))
        } else {
            let line = |(n, rate): &(usize, Spread)| {
                let one = rate.median / *n as f64;
                let Spread { median, least, most } = rate;
                format!("{n:>3} sequences {median:>9.2} tok/s ({least:.2} to {most:.2}), {one:.2} each\n")
            };
            output::write(&rates.iter().map(line).collect::<String>())
        }
    }
}

/// The model under test.
struct Runner {
    producer: Box<dyn LogitProducer + Send>,
    logits: Vec<f32>,
    chunk: usize,
}

impl Runner {
    /// Seconds for a prompt of this length.
    fn prompt(&mut self, tokens: usize) -> Result<f64, Failure> {
        self.producer.reset();
        let prompt = some_tokens(tokens, self.producer.vocab());
        let started = Instant::now();
        self.feed(&prompt)?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Seconds to decode `count` tokens after `depth` of them.
    fn decode(&mut self, depth: usize, count: usize) -> Result<f64, Failure> {
        let tokens = some_tokens(depth + count, self.producer.vocab());
        // The tokens before are the same in every repetition and are not computed again.
        self.producer.rewind(depth);
        let known = self.producer.fed().iter().zip(&tokens[..depth]).take_while(|(a, b)| a == b).count();
        let known = self.producer.rewind(known);
        self.feed(&tokens[known..depth])?;
        let started = Instant::now();
        for token in &tokens[depth..] {
            self.producer.produce(&[*token], Want::Last, &mut self.logits)?;
        }
        Ok(started.elapsed().as_secs_f64())
    }

    fn feed(&mut self, tokens: &[TokenId]) -> Result<(), Failure> {
        let chunks = tokens.chunks(self.chunk);
        let last = chunks.len().saturating_sub(1);
        for (index, chunk) in chunks.enumerate() {
            if index < last {
                self.producer.produce(chunk, Want::Nothing, &mut [])?;
            } else {
                self.producer.produce(chunk, Want::Last, &mut self.logits)?;
            }
        }
        Ok(())
    }
}

/// Tokens spread over the vocabulary, so that embedding rows and activations are those of real use.
fn some_tokens(count: usize, vocab: usize) -> Vec<TokenId> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        TokenId(((state >> 33) % vocab as u64) as u32)
    };
    (0..count).map(|_| next()).collect()
}

/// Bytes that decoding one token must read.
#[derive(Clone, Debug)]
struct Traffic {
    /// Weights, with one row of the embedding table and as many experts as a token uses.
    weights: u64,
    /// What says how much of the cache is read.
    budget: Budget,
}

impl Traffic {
    /// `None` for a scripted model, which reads nothing.
    fn of(model: &OsStr, options: &OpenOptions) -> Result<Option<Self>, Failure> {
        if is_scripted(model) {
            return Ok(None);
        }
        let files = ModelFiles::open(Path::new(model))?;
        let options = OpenOptions { experts: ExpertChoice::Auto, ..options.clone() };
        let budget = files.memory(&options, 1)?;
        let program = files.program(&options)?;
        let tables = program.weights.iter().filter(|w| w.role == WeightRole::Table);
        let unread = tables.flat_map(|w| w.source.tensors().into_iter().filter_map(|name| files.weights.get(name)));
        let unread: u64 = unread.map(|t| (t.stored_bytes() - t.stored_bytes() / t.rows().max(1)) as u64).sum();
        let banks = program.banks();
        let experts = files.experts(&options)?.map(|report| report.layers).unwrap_or_default();
        let unused = banks
            .iter()
            .zip(experts)
            .map(|(bank, layer)| layer.bytes - layer.bytes * bank.top_k as u64 / bank.experts as u64);
        let weights = budget.weights.saturating_sub(unread + unused.sum::<u64>());
        Ok(Some(Self { weights, budget }))
    }

    fn at(&self, depth: usize, tg: usize) -> u64 {
        // On average half of the decoded tokens are in the cache as well.
        self.weights + self.budget.read_at(depth + tg / 2)
    }
}

/// What was found.
struct Outcome {
    load: f64,
    first: f64,
    threads: usize,
    tg: usize,
    rates: Vec<(Arm, Spread)>,
    /// How streamed experts served each arm, if that was asked for.
    experts: Option<Vec<Option<ExpertStats>>>,
    bandwidth: Option<Spread>,
    /// Whether the bandwidth is of the device's own memory, reads and writes together.
    own_memory: bool,
    traffic: Option<Traffic>,
}

impl Outcome {
    fn name(&self, arm: Arm) -> String {
        match arm {
            Arm::Prompt(tokens) => format!("pp{tokens}"),
            Arm::Decode(depth) => format!("tg{}@{depth}", self.tg),
        }
    }

    /// Bytes a token and the share of the measured bandwidth, if it was, for an arm that decodes.
    fn share(&self, arm: Arm, rate: f64) -> Option<(u64, Option<f64>)> {
        let (Arm::Decode(depth), Some(traffic)) = (arm, &self.traffic) else { return None };
        let bytes = traffic.at(depth, self.tg);
        let share = self.bandwidth.as_ref().map(|bandwidth| 100.0 * bytes as f64 * rate / bandwidth.median);
        Some((bytes, share))
    }

    fn json(&self) -> Value {
        let mut json = Map::new();
        json.insert("load_s".into(), json!(self.load));
        json.insert("first_s".into(), json!(self.first));
        json.insert("threads".into(), json!(self.threads));
        let (mut spreads, mut bytes, mut shares) = (Map::new(), Map::new(), Map::new());
        for (arm, rate) in &self.rates {
            let name = self.name(*arm);
            json.insert(name.clone(), json!(rate.median));
            spreads.insert(name.clone(), json!([rate.least, rate.most]));
            if let Some((per_token, share)) = self.share(*arm, rate.median) {
                bytes.insert(name.clone(), json!(per_token));
                shares.insert(name, json!(share));
            }
        }
        json.insert("spread".into(), spreads.into());
        if let Some(experts) = &self.experts {
            let arms = self.rates.iter().zip(experts);
            let each = arms.map(|((arm, _), stats)| (self.name(*arm), stats.as_ref().map(report::expert_json).into()));
            json.insert("experts".into(), Value::Object(each.collect()));
        }
        json.insert("bytes_per_token".into(), bytes.into());
        if let Some(bandwidth) = &self.bandwidth {
            json.insert("bandwidth_bytes_s".into(), json!(bandwidth.median));
            json.insert("bandwidth_spread".into(), json!([bandwidth.least, bandwidth.most]));
        }
        json.insert("bandwidth_percent".into(), shares.into());
        json.into()
    }

    fn text(&self) -> String {
        let mut text = format!(
            "opened in {:.3} s, first token after {:.3} s more, {} threads{}\n",
            self.load,
            self.first,
            self.threads,
            self.bandwidth.as_ref().map_or(String::new(), |bandwidth| {
                let what = if self.own_memory { "the device's memory copied" } else { "memory read" };
                format!(", {what} at {:.2} GB/s", bandwidth.median / 1e9)
            })
        );
        for (at, (arm, rate)) in self.rates.iter().enumerate() {
            let share = self.share(*arm, rate.median).map_or(String::new(), |(bytes, share)| {
                let share = share.map_or(String::new(), |share| format!(", {share:.0} % of bandwidth"));
                format!("  {:.1} MB a token{share}", bytes as f64 / 1e6)
            });
            let name = self.name(*arm);
            text += &format!("{name:<12} {:>9.2} tok/s ({:.2} to {:.2}){share}\n", rate.median, rate.least, rate.most);
            if let Some(stats) = self.experts.as_ref().map(|all| all[at]) {
                let served = stats.map_or("none are streamed".to_owned(), |stats| report::expert_stats(&stats));
                text += &format!("             experts: {served}\n");
            }
        }
        text
    }
}
