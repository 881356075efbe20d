//! `inspect`: what a model is and what it takes.

use super::print_json;
use crate::arguments::{ModelArgument, PlaceFlags, PrefixMemoryFlag, StoreFlags};
use crate::failure::Failure;
use crate::{models, output, report};
use clap::Args;
use plan::Budget;
use runtime::{
    ExpertLayerReport, ExpertReport, Machine, ModelFiles, OpenOptions, PrefixOptions, Recommended, Residency, mebibytes,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Describe a model: architecture, tensors by format, vocabulary, template, and memory at several contexts.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    #[command(flatten)]
    model: ModelArgument,
    /// Print the program the device would run as well
    #[arg(long)]
    plan: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    prefixes: PrefixMemoryFlag,
    #[command(flatten)]
    place: PlaceFlags,
    #[command(flatten)]
    store: StoreFlags,
}

/// Tensors of one format.
#[derive(Default)]
struct Format {
    tensors: usize,
    bytes: u64,
}

/// Everything `inspect` prints.
struct Description {
    files: ModelFiles,
    parameters: u64,
    formats: BTreeMap<&'static str, Format>,
    vocabulary: Result<Vocabulary, String>,
    recommended: Recommended,
    memory: Vec<(usize, Budget)>,
    experts: Option<ExpertReport>,
    available: Option<u64>,
    largest: Option<u64>,
    prefixes: Prefixes,
    program: Option<String>,
    unused: Vec<(String, usize)>,
}

/// How beginnings of prompts are kept.
struct Prefixes {
    said: String,
    on: bool,
    limit: Option<u64>,
    /// Bytes that windows and recurrent states take for them beside the running answer's, at the trained context.
    beside: u64,
}

/// What the tokenizer says of itself.
struct Vocabulary {
    tokens: usize,
    template: Template,
    stops: Vec<(u32, String)>,
}

enum Template {
    Absent,
    Usable,
    Refused(String),
}

/// Contexts whose memory is shown, as far as the model was trained for them.
const CONTEXTS: [usize; 6] = [2048, 4096, 8192, 32_768, 131_072, 1_048_576];

impl Inspect {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let path = self.store.models(self.json)?.locate(self.model.name()?)?;
        if models::is_scripted(&path) {
            return Err(Failure::message("a scripted model has no tensors to describe"));
        }
        let options = OpenOptions { prefixes: self.prefixes.prefixes(), ..self.place.options() };
        let files = ModelFiles::open_verified(Path::new(&path), options.verify)?;
        let description = Description::new(files, &options, self.plan)?;
        match self.json {
            true => print_json(&description.json()),
            false => output::write(&description.text()),
        }
    }
}

impl Description {
    fn new(files: ModelFiles, options: &OpenOptions, plan: bool) -> Result<Self, Failure> {
        let mut formats: BTreeMap<_, Format> = BTreeMap::new();
        for tensor in files.weights.iter() {
            let format = formats.entry(tensor.dtype().name()).or_default();
            format.tensors += 1;
            format.bytes += tensor.stored_bytes() as u64;
        }
        let program = files.program(options)?;
        let trained = files.spec.context;
        let mut contexts: Vec<usize> = CONTEXTS.into_iter().filter(|c| *c < trained).chain([trained]).collect();
        contexts.extend(options.context);
        contexts.sort_unstable();
        contexts.dedup();
        let memory: Vec<_> = contexts
            .into_iter()
            .map(|context| Ok((context, files.memory(options, context)?)))
            .collect::<Result<_, Failure>>()?;
        let available = options.memory.or_else(|| Machine::default().available_memory());
        let full = files.memory(options, trained)?;
        let without = OpenOptions { prefixes: PrefixOptions::off(), ..options.clone() };
        let prefixes = Prefixes {
            said: report::prefix_memory(options),
            on: options.keeps_prefixes(),
            limit: options.prefixes.memory,
            beside: full.total().saturating_sub(files.memory(&without, trained)?.total()),
        };
        let largest = available.map(|available| full.largest_context(available).min(trained as u64));
        Ok(Self {
            parameters: files.weights.iter().map(|t| t.elements() as u64).sum(),
            formats,
            vocabulary: vocabulary(&files),
            recommended: files.recommended(),
            memory,
            experts: files.experts(options)?,
            available,
            largest,
            prefixes,
            unused: files.unused(std::slice::from_ref(&program)),
            program: plan.then(|| program.to_string()),
            files,
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: &str| {
            let _ = writeln!(text, "{name:<14} {value}");
        };
        let spec = &self.files.spec;
        row("path", &self.files.path.display().to_string());
        row("architecture", &format!("{} (family {})", self.files.architecture, spec.family));
        row("parameters", &millions(self.parameters));
        row("layers", &format!("{} of width {}", spec.layers.len(), spec.hidden));
        for (layers, what) in self.layer_kinds() {
            row("", &format!("{layers} × {what}"));
        }
        let head = if spec.head.tied { "the embedding table" } else { "a matrix of its own" };
        row("vocabulary", &format!("{} rows of logits, head is {head}", spec.vocab));
        row("trained for", &format!("{} positions", spec.context));
        for (name, format) in &self.formats {
            row(name, &format!("{} tensors, {}", format.tensors, mebibytes(format.bytes)));
        }
        row("tokenizer", &self.files.vocabulary_kind());
        match &self.vocabulary {
            Ok(vocabulary) => {
                row("", &format!("{} tokens", vocabulary.tokens));
                row(
                    "chat template",
                    &match &vocabulary.template {
                        Template::Absent => "none: use `turbospark complete`".to_owned(),
                        Template::Usable => "yes".to_owned(),
                        Template::Refused(error) => format!("cannot be used: {error}"),
                    },
                );
                let stops: Vec<_> = vocabulary.stops.iter().map(|(id, piece)| format!("{id} {piece:?}")).collect();
                row("stop tokens", &stops.join(", "));
            }
            Err(error) => row("", &format!("cannot be used: {error}")),
        }
        if self.recommended != Recommended::default() {
            row("sampling", &self.recommended_json().to_string());
        }
        for (context, budget) in &self.memory {
            row(
                "memory",
                &format!(
                    "{} at context {context} = weights {} + cache {} + activations {}",
                    mebibytes(budget.total()),
                    mebibytes(budget.weights),
                    mebibytes(budget.states),
                    mebibytes(budget.slots)
                ),
            );
        }
        let in_memory = |experts: &ExpertReport| experts.layers.iter().all(|layer| layer.residency == Residency::Ram);
        let all = self.experts.as_ref().is_none_or(in_memory);
        if let (Some(available), Some(largest), true) = (self.available, self.largest, all) {
            row("fits", &format!("context {largest} in {}", mebibytes(available)));
        }
        if let Some(experts) = &self.experts {
            row("experts", &experts.to_string());
            for (layers, what) in expert_layers(experts) {
                row("", &format!("layers {layers}: {what}"));
            }
        }
        let beside = match self.prefixes.beside {
            0 => String::new(),
            bytes => format!("; windows and recurrent states take {} more for them", mebibytes(bytes)),
        };
        row("prefix cache", &format!("{}{beside}", self.prefixes.said));
        for note in &spec.notes {
            row("note", note);
        }
        if !self.unused.is_empty() {
            row("not read", &report::unused(&self.unused));
        }
        if let Some(program) = &self.program {
            let _ = write!(text, "\n{program}");
        }
        text
    }

    fn json(&self) -> Value {
        let spec = &self.files.spec;
        let formats = self
            .formats
            .iter()
            .map(|(name, f)| ((*name).to_owned(), json!({ "tensors": f.tensors, "bytes": f.bytes })));
        let memory = self.memory.iter().map(|(context, b)| {
            json!({
                "context": context, "total": b.total(), "weights": b.weights, "states": b.states, "slots": b.slots,
                "per_position": b.per_position,
            })
        });
        let vocabulary = self.vocabulary.as_ref().ok();
        json!({
            "path": self.files.path.to_string_lossy(),
            "architecture": self.files.architecture,
            "family": spec.family,
            "parameters": self.parameters,
            "layers": spec.layers.len(),
            "hidden": spec.hidden,
            "layer_kinds": self.layer_kinds().iter().map(|(n, what)| json!([n, what])).collect::<Vec<_>>(),
            "vocab": spec.vocab,
            "tied_head": spec.head.tied,
            "trained_context": spec.context,
            "formats": Value::Object(formats.collect()),
            "tokenizer": self.files.vocabulary_kind(),
            "tokens": vocabulary.map(|v| v.tokens),
            "tokenizer_error": self.vocabulary.as_ref().err(),
            "chat_template": vocabulary.map(|v| matches!(v.template, Template::Usable)),
            "stop_tokens": vocabulary.map(|v| v.stops.iter().map(|(id, p)| json!([id, p])).collect::<Vec<_>>()),
            "sampling": self.recommended_json(),
            "memory": memory.collect::<Vec<_>>(),
            "experts": self.experts.as_ref().map(experts_json),
            "available": self.available,
            "largest_context": self.largest,
            "prefix_cache": {
                "on": self.prefixes.on, "limit": self.prefixes.limit.filter(|_| self.prefixes.on),
                "beside": self.prefixes.beside,
            },
            "notes": spec.notes,
            "unused": self.unused.iter().map(|(name, count)| json!({"name": name, "count": count})).collect::<Vec<_>>(),
            "plan": self.program,
        })
    }

    fn recommended_json(&self) -> Value {
        let r = &self.recommended;
        let all = json!({
            "temperature": r.temperature, "top_k": r.top_k, "top_p": r.top_p, "min_p": r.min_p,
            "repetition_penalty": r.repetition_penalty,
        });
        let named = all.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        Value::Object(named.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// The distinct kinds of layers and how many there are of each.
    fn layer_kinds(&self) -> Vec<(usize, String)> {
        let mut kinds: Vec<(usize, String)> = Vec::new();
        for layer in &self.files.spec.layers {
            let kind = layer.to_string();
            match kinds.iter_mut().find(|(_, known)| *known == kind) {
                Some((count, _)) => *count += 1,
                None => kinds.push((1, kind)),
            }
        }
        kinds
    }
}

/// Layers whose experts are kept alike, as ranges, and how.
fn expert_layers(report: &ExpertReport) -> Vec<(String, String)> {
    let mut ranges: Vec<(usize, usize, String)> = Vec::new();
    for layer in &report.layers {
        let what = expert_layer(layer);
        match ranges.last_mut() {
            Some((_, last, known)) if *known == what && *last + 1 == layer.layer => *last = layer.layer,
            _ => ranges.push((layer.layer, layer.layer, what)),
        }
    }
    let range =
        |(first, last): (usize, usize)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    ranges.into_iter().map(|(first, last, what)| (range((first, last)), what)).collect()
}

fn expert_layer(layer: &ExpertLayerReport) -> String {
    let ExpertLayerReport { experts, residency, bytes, slot, .. } = layer;
    match residency {
        Residency::Ram => format!("{experts} experts in memory, {}", mebibytes(*bytes)),
        Residency::Mapped => format!("{experts} experts mapped, {}", mebibytes(*bytes)),
        Residency::Streamed { slots } => {
            format!("{} of {experts} experts in memory, {} each", slots.min(experts), mebibytes(*slot))
        }
    }
}

fn experts_json(report: &ExpertReport) -> Value {
    let layer = |layer: &ExpertLayerReport| {
        let (residency, slots) = match layer.residency {
            Residency::Ram => ("ram", None),
            Residency::Mapped => ("mapped", None),
            Residency::Streamed { slots } => ("streamed", Some(slots.min(layer.experts))),
        };
        json!({
            "layer": layer.layer, "experts": layer.experts, "residency": residency, "slots": slots, "bytes": layer.bytes,
            "slot_bytes": layer.slot,
        })
    };
    json!({
        "held": report.held,
        "arithmetic": report.arithmetic,
        "layers": report.layers.iter().map(layer).collect::<Vec<_>>(),
    })
}

fn vocabulary(files: &ModelFiles) -> Result<Vocabulary, String> {
    let tokenizer = files.tokenizer().map_err(|error| error.to_string())?;
    let template = match (tokenizer.chat_template(), tokenizer.chat_template_error()) {
        (None, _) => Template::Absent,
        (Some(_), None) => Template::Usable,
        (Some(_), Some(error)) => Template::Refused(error.to_string()),
    };
    let stops = tokenizer.stop_ids().iter().map(|id| (id.0, tokenizer.piece(*id).unwrap_or_default())).collect();
    Ok(Vocabulary { tokens: tokenizer.vocab_size(), template, stops })
}

fn millions(parameters: u64) -> String {
    match parameters {
        0..1_000_000 => format!("{parameters}"),
        1_000_000..1_000_000_000 => format!("{:.1} million", parameters as f64 / 1e6),
        _ => format!("{:.2} billion", parameters as f64 / 1e9),
    }
}
