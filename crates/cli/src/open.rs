//! Flags to the options a model is opened with, and the opening itself.

use crate::arguments::{CaptureFlags, GenerationFlags, OpenFlags, PlaceFlags};
use crate::failure::Failure;
use crate::{output, report};
use runtime::{
    Engine, GenerationConfig, LogitProducer, OpenOptions, OpenReport, Pace, PrefixOptions, SteerFile, mebibytes,
    open_logits,
};
use std::ffi::OsStr;

impl PlaceFlags {
    /// The options of the runtime; the rest as it defaults, but that nothing is kept for later prompts where nobody asks.
    pub(crate) fn options(&self) -> OpenOptions {
        let steer = |file: &SteerFile| {
            let mut file = file.clone();
            file.edit.threshold = self.steering.steer_threshold;
            file
        };
        OpenOptions {
            device: self.device,
            context: self.ctx,
            kv: self.kv.clone(),
            memory: self.memory,
            experts: self.experts,
            quantize: self.quantize,
            verify: self.verify,
            steer: self.steering.steer.iter().map(steer).collect(),
            prefixes: PrefixOptions::off(),
            ..OpenOptions::default()
        }
    }
}

impl OpenFlags {
    /// The options of the runtime.
    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions { threads: self.speed.threads, prefill_chunk: self.speed.prefill_chunk, ..self.place.options() }
    }
}

impl CaptureFlags {
    /// Fails if a file cannot be written; adds what is captured to the options a model is opened with.
    pub(crate) fn prepare(&self, options: OpenOptions) -> Result<OpenOptions, Failure> {
        for (at, capture) in self.capture.iter().enumerate() {
            if self.capture[..at].iter().any(|other| other.file == capture.file) {
                let file = capture.file.display();
                return Err(Failure::message(format!("two captures go to {file}; give each a file of its own")));
            }
            capture.check_writable()?;
        }
        Ok(OpenOptions { capture: self.capture.iter().map(|c| c.kind).collect(), ..options })
    }

    /// Writes what was captured and says so.
    pub(crate) fn write(&self, model: &str, producer: &dyn LogitProducer, quiet: bool) -> Result<(), Failure> {
        for capture in &self.capture {
            match capture.write(model, producer)? {
                0 => output::warn(&format!("nothing was captured, and {} was not written", capture.file.display())),
                positions if !quiet => output::aside(&format!("captured {capture}, {positions} positions")),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Opens a model for text; prints its notes, and with `verbose` what was decided.
pub(crate) fn engine(model: &OsStr, options: &OpenOptions, verbose: bool) -> Result<Engine, Failure> {
    let engine = Engine::open(model, options)?;
    tell(engine.report(), options, verbose);
    if let (true, Some(disk)) = (verbose, &options.prefixes.disk) {
        let (states, folder) = (engine.prefix_status().states, disk.folder.display());
        output::aside(&format!("{states} kept beginnings restored from {folder}"));
    }
    Ok(engine)
}

/// Keeps what was read and answered for the next call, where that was asked for. The answer stands whatever becomes of it.
pub(crate) fn keep_prefixes(engine: &mut Engine, verbose: bool) {
    if verbose {
        report::prefixes(&engine.prefix_status());
    }
    match engine.save_prefixes() {
        Ok(Some(saved)) if verbose => {
            let (states, bytes, path) = (saved.states, mebibytes(saved.bytes), saved.path.display());
            output::aside(&format!("{states} kept beginnings, {bytes}, saved to {path}"));
        }
        Ok(_) => {}
        Err(error) => output::warn(&error.to_string()),
    }
}

/// Opens a model for its logits alone; says what [`engine`] says.
pub(crate) fn logits(
    model: &OsStr,
    options: &OpenOptions,
    verbose: bool,
) -> Result<(Box<dyn LogitProducer + Send>, OpenReport), Failure> {
    let (producer, report) = open_logits(model, options)?;
    tell(&report, options, verbose);
    Ok((producer, report))
}

fn tell(opened: &OpenReport, options: &OpenOptions, verbose: bool) {
    opened.notes.iter().for_each(|text| output::warn(text));
    report::chosen_kv(opened, options);
    if verbose {
        report::opened(opened, options);
    }
}

impl GenerationFlags {
    /// The settings of a generation: flags first, then what the model's makers recommend.
    pub(crate) fn config(&self, engine: &Engine) -> Result<GenerationConfig, Failure> {
        Ok(GenerationConfig {
            shaping: self.sampling.shaping(engine.recommended(), engine.tokenizer())?,
            max_new_tokens: self.max_new,
            stop_strings: self.stop.clone(),
            logprobs: self.sampling.logprobs(),
            constraint: self.constraint.compile(engine.tokenizer())?,
            pace: Pace { rate: self.rate, profile: self.power },
            ..GenerationConfig::default()
        })
    }
}
