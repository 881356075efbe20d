//! How a model is opened: options, what is decided within the machine's memory, what is said of it.

use crate::capture::{CaptureKind, Recorder};
use crate::checkpoint::ModelFiles;
use crate::device::{DeviceKind, UseDevice};
use crate::experts::{self, ExpertChoice, ExpertReport};
use crate::kv::{self, KvChoice, KvReport};
use crate::machine::Machine;
use crate::prefix_cache::{PrefixCache, PrefixOptions, context_key, fingerprint};
use crate::producer::LogitProducer;
use crate::session_pool::{AsProducer, Sessions, block_bytes};
use crate::steering::{SteerFile, Steering};
use crate::{RuntimeError, scripted};
use plan::{
    Budget, Caps, Device, Exec, KV_BLOCK, KvPlan, KvType, KvTypes, Limits, Passes, Place, PlanError, PrefixTree,
    Program, WeightRole, lower_with,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};
use tokenizer::Tokenizer;
use weights::gturbo::Verify;
use weights::{DType, Weights};

/// How to open a model.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The device.
    pub device: DeviceKind,
    /// Threads; `None`: as many as the machine and the container give.
    pub threads: Option<usize>,
    /// Positions of the context; `None`: as trained, or as many as fit.
    pub context: Option<usize>,
    /// How keys and values are stored.
    pub kv: KvChoice,
    /// Bytes that may be used; `None`: what the machine has free.
    pub memory: Option<u64>,
    /// Where experts are kept.
    pub experts: ExpertChoice,
    /// A type that matrices stored as plain floats are rounded to while they are loaded.
    pub quantize: Option<DType>,
    /// What is checked of a packed model before it is used.
    pub verify: Verify,
    /// Directions that change the residual stream, in order.
    pub steer: Vec<SteerFile>,
    /// What of the inside is kept for [`LogitProducer::captured`], in memory: a residual stream takes
    /// layers × hidden × 4 bytes a position.
    pub capture: Vec<CaptureKind>,
    /// Prompt tokens fed at once.
    pub prefill_chunk: usize,
    /// Keep room for the logits of a whole chunk, not of one row.
    pub all_logits: bool,
    /// Sequences of a whole context each that memory is kept for; see [`crate::open_service`].
    pub sequences: usize,
    /// Conversations an [`crate::Engine`] keeps; a service takes none.
    pub sessions: Sessions,
    /// What is kept of prompts and answers for later ones.
    pub prefixes: PrefixOptions,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            device: DeviceKind::Cpu,
            threads: None,
            context: None,
            kv: KvTypes::both(KvType::F16).into(),
            memory: None,
            experts: ExpertChoice::Auto,
            quantize: None,
            verify: Verify::default(),
            steer: Vec::new(),
            capture: Vec::new(),
            prefill_chunk: 256,
            all_logits: false,
            sequences: 1,
            sessions: Sessions::default(),
            prefixes: PrefixOptions::default(),
        }
    }
}

impl OpenOptions {
    /// Sequences that memory is kept for.
    fn kept(&self) -> usize {
        self.sequences.max(self.sessions.slots).max(1)
    }

    /// Whether pasts are kept for later prompts. What is captured is of one past alone, and a pool keeps whole conversations.
    pub fn keeps_prefixes(&self) -> bool {
        self.prefixes.memory != Some(0) && self.capture.is_empty() && self.sessions.slots < 2
    }
}

/// What was decided when a model was opened.
#[derive(Clone, Debug)]
pub struct OpenReport {
    /// Memory, exactly; `None` for a scripted model.
    pub budget: Option<Budget>,
    /// What could have been used; `None` where the system does not say.
    pub available: Option<u64>,
    /// The cache's types; `None` for a scripted model.
    pub kv: Option<KvReport>,
    /// Where experts are kept; `None` if there are none.
    pub experts: Option<ExpertReport>,
    /// Positions of the context.
    pub context: usize,
    /// Positions the model was trained for.
    pub trained_context: usize,
    /// Threads in use.
    pub threads: usize,
    /// Time to open, tokenizer included.
    pub elapsed: Duration,
    /// Things the user should know.
    pub notes: Vec<String>,
    /// Tensors of the checkpoint that the model does not read, by name with numbers as `*`, and how many there are of each.
    pub unused: Vec<(String, usize)>,
}

/// The prefix of a scripted model's name.
const SCRIPTED: &str = "scripted:";

/// The file of a scripted model, if the name is one.
pub(crate) fn scripted_script(model: &OsStr) -> Option<&Path> {
    model.to_str().and_then(|m| m.strip_prefix(SCRIPTED)).map(Path::new)
}

/// Refuses what a scripted model, having neither weights nor layers, cannot do.
pub(crate) fn check_scripted(options: &OpenOptions) -> Result<(), RuntimeError> {
    options.sessions.check(options)?;
    options.prefixes.check(options)?;
    options.prefixes.check_scripted()?;
    if let Some(to) = options.quantize {
        let reason = "a scripted model has no weights".to_owned();
        return Err(PlanError::CannotQuantise { to: to.name(), reason }.into());
    }
    if options.experts != ExpertChoice::Auto {
        return Err(RuntimeError::NoExperts);
    }
    if let Some(SteerFile { file, .. }) = options.steer.first() {
        let reason = "a scripted model has no residual stream".to_owned();
        return Err(RuntimeError::Steering { file: file.clone(), reason });
    }
    if options.sessions.bytes.is_some() {
        return Err(RuntimeError::Sessions { reason: "a scripted model's cache takes no bytes that could be bounded" });
    }
    if let Some(kind) = options.capture.first() {
        let reason = "a scripted model has no inside".to_owned();
        return Err(RuntimeError::NothingToCapture { what: kind.name(), reason });
    }
    Ok(())
}

/// What there is to say of a scripted model.
pub(crate) fn scripted_report(context: usize) -> OpenReport {
    OpenReport {
        budget: None,
        kv: None,
        experts: None,
        available: None,
        context,
        trained_context: context,
        threads: 1,
        elapsed: Duration::ZERO,
        notes: Vec::new(),
        unused: Vec::new(),
    }
}

type Producer = Box<dyn LogitProducer + Send>;
type Opened = (Producer, OpenReport);

/// Opens a scripted model for one sequence, with its vocabulary.
pub(crate) fn open_scripted(
    script: &Path,
    options: &OpenOptions,
) -> Result<(Producer, OpenReport, Tokenizer), RuntimeError> {
    check_scripted(options)?;
    let (exec, context, tokenizer) = scripted::open(script, options.sessions.slots)?;
    let report = scripted_report(context);
    let prefixes = PrefixCache::default();
    let (producer, report) = AsProducer(options.sessions).with(Compiled { exec, recorder: None, prefixes, report });
    Ok((producer, report, tokenizer))
}

/// Opens a model for its logits alone; it needs no tokenizer.
pub fn open_logits(model: impl AsRef<OsStr>, options: &OpenOptions) -> Result<Opened, RuntimeError> {
    let started = Instant::now();
    let model = model.as_ref();
    let (producer, mut report) = match scripted_script(model) {
        Some(script) => {
            let (producer, report, _) = open_scripted(script, options)?;
            (producer, report)
        }
        None => open_producer(&ModelFiles::open_verified(Path::new(model), options.verify)?, options)?,
    };
    report.elapsed = started.elapsed();
    Ok((producer, report))
}

impl ModelFiles {
    /// The program that the options' device would run.
    pub fn program(&self, options: &OpenOptions) -> Result<Program, RuntimeError> {
        options.device.open(options.threads, Lower { files: self, options })
    }

    /// The program and the weights it refers to.
    fn lower(&self, caps: &Caps, options: &OpenOptions) -> Result<(Program, Weights), RuntimeError> {
        let steering = Steering::load(&options.steer, &self.spec)?;
        let tapped = |place: Place| options.capture.iter().any(|kind| kind.point() == place.point);
        let passes = Passes { steering: &steering.steer, tapped: Some(&tapped), quantise: options.quantize };
        let program = lower_with(caps, &self.spec, &self.index, &passes)?;
        let found = |kind: &&CaptureKind| program.taps.iter().any(|tap| tap.place.point == kind.point());
        if let Some(kind) = options.capture.iter().find(|kind| !found(kind)) {
            let reason = format!("a {} model of this shape has no place for it", self.spec.family);
            return Err(RuntimeError::NothingToCapture { what: kind.name(), reason });
        }
        Ok((program, steering.beside(&self.weights)))
    }

    /// Tensors that none of the programs reads, by name with numbers as `*`, and how many there are of each.
    pub fn unused(&self, programs: &[Program]) -> Vec<(String, usize)> {
        let read: BTreeSet<_> = programs.iter().flat_map(|p| &p.weights).flat_map(|w| w.source.tensors()).collect();
        let mut unused = BTreeMap::new();
        for name in self.index.names().filter(|name| !read.contains(name)) {
            let parts = name.split('.').map(|part| if part.parse::<usize>().is_ok() { "*" } else { part });
            *unused.entry(parts.collect::<Vec<_>>().join(".")).or_insert(0) += 1;
        }
        unused.into_iter().collect()
    }

    /// The memory that a context would take on the options' device, exactly; loads nothing.
    pub fn memory(&self, options: &OpenOptions, context: usize) -> Result<Budget, RuntimeError> {
        let KvChoice::Plan(kv) = &options.kv else { return Err(RuntimeError::KvNotMeasured) };
        options.device.open(options.threads, Sum { files: self, options, kv, context })
    }
}

/// Lowers for a device.
struct Lower<'a> {
    files: &'a ModelFiles,
    options: &'a OpenOptions,
}

impl UseDevice for Lower<'_> {
    type Output = Program;

    fn with<D: Device>(self, device: &D, _: usize) -> Result<Program, RuntimeError> {
        Ok(self.files.lower(&device.caps(), self.options)?.0)
    }
}

/// Adds up a device's memory.
struct Sum<'a> {
    files: &'a ModelFiles,
    options: &'a OpenOptions,
    kv: &'a KvPlan,
    context: usize,
}

impl UseDevice for Sum<'_> {
    type Output = Budget;

    fn with<D: Device>(self, device: &D, _: usize) -> Result<Budget, RuntimeError> {
        let Self { files, options, kv, context } = self;
        let (mut program, weights) = files.lower(&device.caps(), options)?;
        program.keep_kv(kv)?;
        if options.experts != ExpertChoice::Auto {
            files.place(device, &mut program, &weights, options)?;
        }
        let programs = [program];
        let budget = |limits: &Limits| device.memory(&programs, &weights, limits);
        let block = block_bytes(&budget(&limits(options, kv, KV_BLOCK))?);
        Ok(budget(&options.sessions.bound(limits(options, kv, context), context, block))?)
    }
}

impl ModelFiles {
    /// Where opening the model would keep its experts; `None` if there are none. Loads nothing.
    pub fn experts(&self, options: &OpenOptions) -> Result<Option<ExpertReport>, RuntimeError> {
        options.device.open(options.threads, PlaceExperts { files: self, options })
    }

    fn place<D: Device>(
        &self,
        device: &D,
        program: &mut Program,
        weights: &Weights,
        options: &OpenOptions,
    ) -> Result<Option<ExpertReport>, RuntimeError> {
        let plain = KvPlan::from(KvTypes::both(KvType::F16));
        let kv = if let KvChoice::Plan(kv) = &options.kv { kv } else { &plain };
        let budget = |program: &Program, context| {
            device.memory(std::slice::from_ref(program), weights, &limits(options, kv, context))
        };
        let available = available(device, options);
        let context = (self.spec.context, available);
        Ok(experts::place((program, weights), &device.caps(), options, context, &budget)?.report)
    }
}

/// Places a model's experts.
struct PlaceExperts<'a> {
    files: &'a ModelFiles,
    options: &'a OpenOptions,
}

impl UseDevice for PlaceExperts<'_> {
    type Output = Option<ExpertReport>;

    fn with<D: Device>(self, device: &D, _: usize) -> Result<Self::Output, RuntimeError> {
        let Self { files, options } = self;
        let (mut program, weights) = files.lower(&device.caps(), options)?;
        if let KvChoice::Plan(kv) = &options.kv {
            program.keep_kv(kv)?;
        }
        files.place(device, &mut program, &weights, options)
    }
}

/// Bytes that may be used: those asked for, else what the device has free, else what the machine has.
fn available<D: Device>(device: &D, options: &OpenOptions) -> Option<u64> {
    options.memory.or_else(|| device.available()).or_else(|| Machine::default().available_memory())
}

/// Compiles the model for its device within the memory there is.
pub(crate) fn open_producer(files: &ModelFiles, options: &OpenOptions) -> Result<Opened, RuntimeError> {
    options.sessions.check(options)?;
    options.prefixes.check(options)?;
    with_exec(files, options, AsProducer(options.sessions))
}

/// What to make of a compiled model, whatever its device.
pub(crate) trait UseExec {
    /// The thing made.
    type Output;

    /// Makes it of a model; what the user should know of it joins the report.
    fn with<E: Exec + Send + 'static>(self, model: Compiled<E>) -> (Self::Output, OpenReport);
}

/// Compiles the model for its device and hands it over.
pub(crate) fn with_exec<U: UseExec>(
    files: &ModelFiles,
    options: &OpenOptions,
    user: U,
) -> Result<(U::Output, OpenReport), RuntimeError> {
    options.device.open(options.threads, Compile { files, options, user })
}

/// Compiles a model on a device and hands it over.
struct Compile<'a, U> {
    files: &'a ModelFiles,
    options: &'a OpenOptions,
    user: U,
}

impl<U: UseExec> UseDevice for Compile<'_, U> {
    type Output = (U::Output, OpenReport);

    fn with<D: Device>(self, device: &D, threads: usize) -> Result<Self::Output, RuntimeError>
    where
        D::Exec: Send + 'static,
    {
        Ok(self.user.with(compile(device, self.files, self.options, threads)?))
    }
}

/// A compiled model.
pub(crate) struct Compiled<E> {
    pub(crate) exec: E,
    /// Where something is captured.
    pub(crate) recorder: Option<Recorder>,
    pub(crate) prefixes: PrefixCache,
    pub(crate) report: OpenReport,
}

/// What a program must be able to do at once for the options' sequences of `context` positions each.
fn limits(options: &OpenOptions, kv: &KvPlan, context: usize) -> Limits {
    let sequences = options.sequences.max(1);
    // Beside the share of prompts, every other sequence may add a row; parked conversations do not.
    let rows = options.prefill_chunk.clamp(1, context.max(1)) + sequences - 1;
    let wanted = if options.all_logits { rows } else { sequences };
    let one = Limits::for_context(context, rows, kv.all);
    let sequences = options.kept();
    let blocks = one.blocks.saturating_mul(sequences);
    // Kept states share the blocks that no sequence needs; windows and recurrent states have as much room again.
    let sequences = if options.keeps_prefixes() { sequences.saturating_mul(2) } else { sequences };
    Limits { wanted, sequences, blocks, state_slots: one.state_slots.saturating_mul(sequences), ..one }
}

fn compile<D: Device>(
    device: &D,
    files: &ModelFiles,
    options: &OpenOptions,
    threads: usize,
) -> Result<Compiled<D::Exec>, RuntimeError> {
    let caps = device.caps();
    let (program, weights) = files.lower(&caps, options)?;
    let recorder = (!program.taps.is_empty()).then(|| Recorder::new(&program));
    let mut programs = vec![program];
    let measured = match &options.kv {
        KvChoice::Plan(_) => None,
        KvChoice::Auto(bytes) => {
            let context = options.context.unwrap_or(files.spec.context).min(files.spec.context).max(1);
            let limits = |context| limits(options, &KvTypes::both(KvType::F16).into(), context);
            Some(kv::choose(device, (files, &weights), &programs, (*bytes, context), &limits)?)
        }
    };
    let kv = match (&options.kv, &measured) {
        (_, Some(report)) => report.plan.clone(),
        (KvChoice::Plan(plan), None) => plan.clone(),
        (KvChoice::Auto(_), None) => unreachable!("types are chosen above"),
    };
    programs.iter_mut().try_for_each(|program| program.keep_kv(&kv))?;
    let unused = files.unused(&programs);
    let mut notes = files.spec.notes.clone();
    notes.extend(options.quantize.and_then(|to| kept_as_stored(&programs, to)));
    let available = available(device, options);
    let one = |program: &Program, context| {
        device.memory(std::slice::from_ref(program), &weights, &limits(options, &kv, context))
    };
    let trained = files.spec.context;
    let placed = experts::place((&mut programs[0], &weights), &caps, options, (trained, available), &one)?;
    let trained = placed.context.unwrap_or(trained);
    let block = block_bytes(&device.memory(&programs, &weights, &limits(options, &kv, KV_BLOCK))?);
    let limits = |context| options.sessions.bound(limits(options, &kv, context), context, block);
    let budget = |context| device.memory(&programs, &weights, &limits(context));
    let context = choose_context(trained, options, available, &budget)?;
    let budget = budget(context)?;
    let kv_report = match measured {
        Some(report) => report,
        None if kv.packed() => {
            let (report, warning) = kv::check(device, (files, &weights), &programs, (&kv, context))?;
            notes.extend(warning);
            report
        }
        None => KvReport { plan: kv.clone(), divergence: None, tokens: 0, layers: Vec::new() },
    };
    let limits = limits(context);
    let mut prefixes = PrefixCache::default();
    if options.keeps_prefixes() {
        let tree = PrefixTree::new(options.prefixes.memory.unwrap_or(u64::MAX), &budget);
        prefixes = PrefixCache::new(tree, context_key(files, &weights, &programs, &kv));
        if let Some(disk) = &options.prefixes.disk {
            let fingerprint = fingerprint(files, &weights, caps.device, &programs, &limits);
            prefixes = prefixes.on_disk(disk.clone(), fingerprint);
        }
    }
    let exec = device.compile(programs, &weights, limits)?;
    let report = OpenReport {
        budget: Some(budget),
        kv: Some(kv_report),
        experts: placed.report,
        available,
        context,
        trained_context: files.spec.context,
        threads,
        elapsed: Duration::ZERO,
        notes,
        unused,
    };
    Ok(Compiled { exec, recorder, prefixes, report })
}

/// Says which matrices could not be rounded, if there are any.
fn kept_as_stored(programs: &[Program], to: DType) -> Option<String> {
    let matrices = programs.iter().flat_map(|p| &p.weights).filter(|w| w.role != WeightRole::Vector);
    let narrow =
        matrices.filter(|w| w.role != WeightRole::Table && w.to.is_none() && to.bytes_for(w.shape[1]).is_none());
    let names: Vec<_> = narrow.map(|w| w.source.to_string()).collect();
    let (first, count) = (names.first()?, names.len());
    let others = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
    let block = to.block_len();
    Some(format!("{first}{others} stay as they are stored: their rows are no multiple of {block} values"))
}

/// The context asked for if it fits, else the trained one or as much of it as fits.
fn choose_context(
    trained: usize,
    options: &OpenOptions,
    available: Option<u64>,
    budget: &dyn Fn(usize) -> Result<Budget, PlanError>,
) -> Result<usize, RuntimeError> {
    let (asked, sequences) = (options.context, options.kept());
    if let Some(0) = asked {
        return Err(RuntimeError::Context { asked: 0, reason: "it must hold at least one token".to_owned() });
    }
    if let Some(asked) = asked.filter(|asked| *asked > trained) {
        let reason = format!("the model was trained for {trained}; ask for at most that");
        return Err(RuntimeError::Context { asked, reason });
    }
    let wanted = asked.unwrap_or(trained);
    let full = budget(wanted)?;
    let Some(available) = available else { return Ok(wanted) };
    if full.total() <= available {
        return Ok(wanted);
    }
    // A whole number of blocks for each sequence.
    let fits = full.largest_context(available) as usize / KV_BLOCK / sequences * KV_BLOCK;
    if asked.is_none() && fits >= KV_BLOCK {
        return Ok(fits);
    }
    let parked = options.sessions.bytes.map(|bytes| format!(" and {} of parked conversations", mebibytes(bytes)));
    let sequences = if parked.is_some() { 1 } else { sequences };
    Err(RuntimeError::Memory {
        needed: mebibytes(full.total()),
        available: mebibytes(available),
        arithmetic: format!(
            "weights {} + cache of {sequences} × {wanted} positions × {} B{} = {} + activations {}; a context of {fits} would fit",
            mebibytes(full.weights),
            full.per_position,
            parked.unwrap_or_default(),
            mebibytes(full.states),
            mebibytes(full.slots),
        ),
    })
}

/// Bytes for people.
pub fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1024.0 * 1024.0))
}
