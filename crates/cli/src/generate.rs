//! One generation: streamed to standard output, stopped by Ctrl-C.

use crate::failure::Failure;
use crate::reasoning::{Part, Splitter};
use crate::{interrupt, output, progress};
use foundation::TokenId;
use indicatif::ProgressBar;
use runtime::{Engine, GenerationConfig, Progress, RawDecodeResult};
use std::cell::Cell;

/// How an answer is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Show {
    /// Print the text as it arrives.
    pub(crate) stream: bool,
    /// Tell reasoning from the answer.
    pub(crate) reasoning: Reasoning,
    /// No progress.
    pub(crate) quiet: bool,
}

/// What becomes of reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reasoning {
    /// Text like any other.
    Plain,
    /// Dimmed on a terminal.
    Dimmed,
    /// Left out.
    Hidden,
}

/// A finished generation.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The runtime's record.
    pub(crate) result: RawDecodeResult,
    /// Whether Ctrl-C ended it.
    pub(crate) interrupted: bool,
    /// The text that was shown, or would have been.
    pub(crate) shown: String,
}

/// Generates after `prompt`.
pub(crate) fn generate(
    engine: &mut Engine,
    prompt: &[TokenId],
    config: &GenerationConfig,
    show: Show,
) -> Result<Answer, Failure> {
    let tokenizer = engine.tokenizer().clone();
    let tail = tokenizer.decode(&prompt[prompt.len().saturating_sub(8)..], false);
    let tags = ["<think>", "</think>"].map(|tag| tokenizer.id_of(tag).filter(|id| tokenizer.is_special(*id)));
    let mut screen = Screen {
        show,
        splitter: Splitter::after(if show.reasoning == Reasoning::Plain { "" } else { &tail }),
        tags,
        writer: Writer {
            show,
            colour: output::stdout_has_colour(),
            dimmed: false,
            shown: String::new(),
            failure: None,
        },
        bar: None,
    };
    let listening = interrupt::listen();
    let closed = Cell::new(false);
    let result = engine.generate(prompt, config, &|| closed.get() || listening.asked(), &mut |progress| {
        screen.take(progress);
        closed.set(screen.writer.failure.is_some());
    });
    let writer = screen.finish();
    if let Some(failure) = writer.failure {
        return Err(failure);
    }
    Ok(Answer { result: result?, interrupted: listening.asked(), shown: writer.shown })
}

struct Screen {
    show: Show,
    splitter: Splitter,
    tags: [Option<TokenId>; 2],
    writer: Writer,
    bar: Option<ProgressBar>,
}

impl Screen {
    fn take(&mut self, progress: Progress) {
        match progress {
            Progress::Prefill { done, total } => {
                if done >= total {
                    self.bar.take().iter().for_each(ProgressBar::finish_and_clear);
                    return;
                }
                // A prompt of one chunk is read before anyone could look.
                let quiet = self.show.quiet;
                let bar = self.bar.get_or_insert_with(|| progress::bar("reading the prompt", total, quiet));
                bar.set_position(done as u64);
            }
            Progress::Token { id, delta, .. } => {
                self.text(&delta);
                if self.show.reasoning == Reasoning::Plain {
                    return;
                }
                if self.tags[0] == Some(id) {
                    self.splitter.opened();
                } else if self.tags[1] == Some(id) {
                    self.splitter.closed(&mut |part, text| self.writer.write(part, text));
                }
            }
            Progress::Tail(text) => self.text(&text),
        }
    }

    fn text(&mut self, text: &str) {
        match self.show.reasoning {
            Reasoning::Plain => self.writer.write(Part::Answer, text),
            _ => self.splitter.push(text, &mut |part, text| self.writer.write(part, text)),
        }
    }

    fn finish(mut self) -> Writer {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.splitter.finish(&mut |part, text| self.writer.write(part, text));
        self.writer.finish();
        self.writer
    }
}

struct Writer {
    show: Show,
    colour: bool,
    dimmed: bool,
    shown: String,
    failure: Option<Failure>,
}

impl Writer {
    fn write(&mut self, part: Part, text: &str) {
        let reasoning = part == Part::Reasoning;
        if reasoning && self.show.reasoning == Reasoning::Hidden {
            return;
        }
        // What separated the answer from hidden reasoning separates it from nothing.
        let hidden = self.show.reasoning == Reasoning::Hidden && self.shown.is_empty();
        let text = if hidden { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        self.shown.push_str(text);
        let dim = reasoning && self.show.reasoning == Reasoning::Dimmed && self.colour;
        if dim != self.dimmed {
            self.dimmed = dim;
            self.out(if dim { output::DIM } else { output::PLAIN });
        }
        self.out(text);
    }

    /// Leaves the cursor at the beginning of a line.
    fn finish(&mut self) {
        if self.dimmed {
            self.out(output::PLAIN);
        }
        if !self.shown.is_empty() && !self.shown.ends_with('\n') {
            self.out("\n");
        }
    }

    fn out(&mut self, text: &str) {
        if self.show.stream && self.failure.is_none() {
            self.failure = output::write(text).err();
        }
    }
}
