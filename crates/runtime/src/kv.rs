//! Which types keys and values are kept in: what a choice changes in predictions, and the choice by measure.
//!
//! Both are measured on a short text of our own, or on fixed tokens where a model has no vocabulary, as the mean KL divergence
//! from f16 keys and values.

use crate::checkpoint::ModelFiles;
use crate::perplexity::compare;
use crate::{ProducerError, RuntimeError};
use foundation::TokenId;
use plan::{
    Device, Exec, Feed, KV_BLOCK, KvPlan, KvSpec, KvType, KvTypes, Limits, Program, ProgramId, Sequences, Want,
};
use std::collections::BTreeMap;
use std::fmt;
use tokenizer::Encode;
use weights::Weights;

/// How the types of the cache are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvChoice {
    /// As said.
    Plan(KvPlan),
    /// Layer by layer by what each type changes, so that keys and values of the whole context take at most this many bytes.
    Auto(u64),
}

impl From<KvTypes> for KvChoice {
    fn from(types: KvTypes) -> Self {
        Self::Plan(types.into())
    }
}

impl fmt::Display for KvChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(plan) => plan.fmt(f),
            Self::Auto(bytes) => write!(f, "auto:{bytes}"),
        }
    }
}

/// The types in use and what was measured of them.
#[derive(Clone, Debug, PartialEq)]
pub struct KvReport {
    /// The types.
    pub plan: KvPlan,
    /// Mean KL divergence from f16 keys and values, nats; `None` where nothing is packed.
    pub divergence: Option<f64>,
    /// Tokens it was measured over.
    pub tokens: usize,
    /// Of layers measured alone: their types and the divergence.
    pub layers: Vec<(usize, KvTypes, f64)>,
}

impl fmt::Display for KvReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kv {}", self.plan)?;
        if let Some(divergence) = self.divergence {
            write!(f, ", mean KL {divergence:.6} nats from f16 over {} tokens", self.tokens)?;
        }
        if !self.layers.is_empty() {
            let alone = self.layers.iter().map(|(layer, types, kl)| format!("{layer} {types} {kl:.6}"));
            write!(f, "; layers by themselves: {}", alone.collect::<Vec<_>>().join(", "))?;
        }
        Ok(())
    }
}

/// Mean divergence above which opening a model warns, nats.
pub const KV_WARNING: f64 = 0.1;

/// Tokens measured.
const TOKENS: usize = 96;

const TEXT: &str = "The harbour town wakes before the sun. Boats come in on the last of the tide, and by six the quay smells \
    of diesel, rope and fish. Maria counts the crates twice: 42 of mackerel, 17 of cod, none of the crab she was promised. \
    \"Next week,\" says the skipper, and shrugs. She writes the numbers into her book, because paper, unlike skippers, \
    remembers. At noon she will divide the total by the price per kilogram, subtract the cost of ice, and find that what \
    is left pays for bread, for the school bus and for one evening at the cinema.";

const F16: KvTypes = KvTypes::both(KvType::F16);

/// From wide to narrow, each worth its bytes in `benches/results/kv-types.md`.
const LADDER: [KvTypes; 6] = [
    F16,
    KvTypes::both(KvType::Q8),
    KvTypes { k: KvType::Q8, v: KvType::Q4 },
    KvTypes::both(KvType::Tq4),
    KvTypes::both(KvType::Tq3),
    KvTypes::both(KvType::Tq2),
];

/// The same for heads that cannot be rotated.
const PLAIN_LADDER: [KvTypes; 4] = [LADDER[0], LADDER[1], LADDER[2], KvTypes::both(KvType::Q4)];

/// A model that is asked for the same predictions with different caches.
struct Probe<E> {
    exec: Option<E>,
    tokens: Vec<TokenId>,
    expected: Vec<f32>,
}

impl<E: Exec> Probe<E> {
    fn new<D: Device<Exec = E>>(
        device: &D,
        (files, weights): (&ModelFiles, &Weights),
        programs: &[Program],
        context: usize,
    ) -> Result<Self, RuntimeError> {
        let tokens = tokens(files, context);
        let limits = Limits { wanted: tokens.len(), ..Limits::for_context(tokens.len(), tokens.len(), F16) };
        let mut programs = programs.to_vec();
        programs.iter_mut().try_for_each(|p| p.keep_kv(&F16.into()))?;
        let exec = device.compile(programs, weights, limits)?;
        let mut probe = Self { exec: Some(exec), tokens, expected: Vec::new() };
        probe.expected = probe.logits(&F16.into())?;
        Ok(probe)
    }

    fn logits(&mut self, kv: &KvPlan) -> Result<Vec<f32>, RuntimeError> {
        let Some(mut exec) = self.exec.take() else { return Ok(self.expected.clone()) };
        exec.keep_kv(kv)?;
        let mut logits = vec![0.0; self.tokens.len() * exec.vocab(ProgramId(0))];
        let mut sequences = Sequences::new(exec);
        let feed = Feed { sequence: sequences.open(), tokens: &self.tokens, want: Want::All };
        sequences.run(ProgramId(0), &[feed], &mut logits).map_err(ProducerError::from)?;
        self.exec = Some(sequences.into_exec());
        Ok(logits)
    }

    /// The mean divergence of a plan from f16.
    fn divergence(&mut self, kv: &KvPlan) -> Result<f64, RuntimeError> {
        let vocab = self.expected.len() / self.tokens.len();
        Ok(compare(&self.logits(kv)?, &self.expected, vocab).mean_kl)
    }

    /// The divergence where only one layer differs from f16.
    fn alone(&mut self, layer: usize, types: KvTypes) -> Result<f64, RuntimeError> {
        self.divergence(&KvPlan { all: F16, layers: BTreeMap::from([(layer, types)]) })
    }
}

/// The text in the model's tokens; without a vocabulary, a fixed sequence.
fn tokens(files: &ModelFiles, context: usize) -> Vec<TokenId> {
    let vocab = files.spec.vocab;
    let text = files.tokenizer().ok().and_then(|t| t.encode(TEXT, Encode { special: false, bos: true }).ok());
    let text = text.filter(|ids| ids.len() >= TOKENS.min(context) && ids.iter().all(|id| id.index() < vocab));
    let fixed = || (0..TOKENS).map(|i| TokenId(((i * i * 31 + i * 17 + 5) % vocab) as u32)).collect();
    let mut tokens = text.unwrap_or_else(fixed);
    tokens.truncate(TOKENS.min(context));
    tokens
}

/// The layers with keys and values of their own.
fn layers(programs: &[Program]) -> BTreeMap<usize, Vec<KvSpec>> {
    let mut layers: BTreeMap<usize, Vec<KvSpec>> = BTreeMap::new();
    for cache in programs.iter().flat_map(Program::caches) {
        layers.entry(cache.layer).or_default().push(*cache);
    }
    layers
}

/// Measures what a plan with packed types changes; names the layers to blame where that is much.
pub(crate) fn check<D: Device>(
    device: &D,
    model: (&ModelFiles, &Weights),
    programs: &[Program],
    (plan, context): (&KvPlan, usize),
) -> Result<(KvReport, Option<String>), RuntimeError> {
    let mut probe = Probe::new(device, model, programs, context)?;
    let divergence = probe.divergence(plan)?;
    let mut report =
        KvReport { plan: plan.clone(), divergence: Some(divergence), tokens: probe.tokens.len(), layers: Vec::new() };
    if divergence <= KV_WARNING {
        return Ok((report, None));
    }
    for layer in layers(programs).into_keys().filter(|layer| plan.of(*layer).packed()) {
        report.layers.push((layer, plan.of(layer), probe.alone(layer, plan.of(layer))?));
    }
    let mut worst: Vec<_> = report.layers.iter().collect();
    worst.sort_by(|a, b| b.2.total_cmp(&a.2));
    let worst: Vec<_> = worst.iter().take(3).map(|(layer, _, kl)| format!("layer {layer} ({kl:.3})")).collect();
    let warning = format!(
        "keys and values as {plan} change this model's predictions: mean KL {divergence:.3} nats from f16 on a short text, most of \
         it by {} alone; keep such layers wider, as in --kv {plan},{}=f16, or choose a wider type",
        worst.join(", "),
        report.layers.iter().max_by(|a, b| a.2.total_cmp(&b.2)).map_or(0, |(layer, ..)| *layer),
    );
    Ok((report, Some(warning)))
}

/// Chooses types layer by layer so that keys and values of `limits` take at most `bytes`: every layer starts as f16, and the
/// layer that costs the least divergence a byte goes a rung down until they fit.
pub(crate) fn choose<D: Device>(
    device: &D,
    model: (&ModelFiles, &Weights),
    programs: &[Program],
    (bytes, context): (u64, usize),
    limits: &dyn Fn(usize) -> Limits,
) -> Result<KvReport, RuntimeError> {
    struct Choice {
        layer: usize,
        ladder: &'static [KvTypes],
        bytes: Vec<u64>,
        rung: usize,
        divergence: f64,
        /// The divergence one rung further down, once measured.
        next: Option<f64>,
    }
    let limits = limits(context);
    let mut choices = Vec::new();
    for (layer, caches) in layers(programs) {
        let fits = caches.iter().all(|c| KvType::Tq4.fits(c.k_dim) && KvType::Tq4.fits(c.v_dim));
        let ladder: &[KvTypes] = if fits { &LADDER } else { &PLAIN_LADDER };
        let size = |types: &KvTypes| {
            let cache =
                |c: &KvSpec| KvSpec { kv: Some(*types), ..*c }.bytes(F16) * limits.blocks_of(c.window) * KV_BLOCK;
            caches.iter().map(cache).sum::<usize>() as u64
        };
        let bytes = ladder.iter().map(size).collect();
        choices.push(Choice { layer, ladder, bytes, rung: 0, divergence: 0.0, next: None });
    }
    let least: u64 = choices.iter().filter_map(|c| c.bytes.last()).sum();
    if least > bytes {
        return Err(RuntimeError::KvBudget { bytes, least, context });
    }
    let mut probe = Probe::new(device, model, programs, context)?;
    while choices.iter().map(|c| c.bytes[c.rung]).sum::<u64>() > bytes {
        for choice in &mut choices {
            if choice.next.is_none() && choice.rung + 1 < choice.ladder.len() {
                choice.next = Some(probe.alone(choice.layer, choice.ladder[choice.rung + 1])?);
            }
        }
        let price = |c: &Choice| {
            let saved = c.bytes[c.rung] - c.bytes[c.rung + 1];
            (c.next.unwrap_or(f64::INFINITY) - c.divergence) / saved.max(1) as f64
        };
        let open = choices.iter_mut().filter(|c| c.rung + 1 < c.ladder.len());
        let Some(choice) = open.min_by(|a, b| price(a).total_cmp(&price(b))) else { break };
        choice.rung += 1;
        choice.divergence = choice.next.take().unwrap_or_default();
    }
    let types = |c: &Choice| (c.layer, c.ladder[c.rung]);
    let all = choices
        .iter()
        .map(|c| c.ladder[c.rung])
        .max_by_key(|types| choices.iter().filter(|c| c.ladder[c.rung] == *types).count());
    let all = all.unwrap_or(F16);
    let layers = choices.iter().map(types).filter(|(_, types)| *types != all).collect();
    let plan = KvPlan { all, layers };
    let divergence = Some(probe.divergence(&plan)?);
    let measured = choices.iter().map(|c| (c.layer, c.ladder[c.rung], c.divergence)).collect();
    Ok(KvReport { plan, divergence, tokens: probe.tokens.len(), layers: measured })
}
