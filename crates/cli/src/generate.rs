//! One generation: streamed to standard output, stopped by Ctrl-C.

use crate::failure::Failure;
use crate::{interrupt, output, progress};
use foundation::TokenId;
use indicatif::ProgressBar;
use runtime::{Engine, ExpertStats, GenerationConfig, RawDecodeResult, TurnEvent, TurnOptions};
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
    /// Say how streamed experts served.
    pub(crate) stats: bool,
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
    /// What it says to the reader; all of it where reasoning was not told apart.
    pub(crate) content: String,
    /// What the model thought.
    pub(crate) reasoning: String,
    /// How streamed experts served it.
    pub(crate) experts: Option<ExpertStats>,
}

/// Generates after `prompt`.
pub(crate) fn generate(
    engine: &mut Engine,
    prompt: &[TokenId],
    config: &GenerationConfig,
    show: Show,
) -> Result<Answer, Failure> {
    let options = match show.reasoning {
        Reasoning::Plain => TurnOptions::default(),
        _ => TurnOptions::of(engine.tokenizer()),
    };
    let mut screen = Screen {
        quiet: show.quiet,
        writer: Writer {
            show,
            colour: output::stdout_has_colour(),
            dimmed: false,
            shown: String::new(),
            said: [String::new(), String::new()],
            failure: None,
        },
        bar: None,
    };
    let listening = interrupt::listen();
    let closed = Cell::new(false);
    let cancel = || closed.get() || listening.asked();
    let before = engine.expert_stats();
    let end = engine.turn(prompt, (config, &options), &cancel, &mut |event| {
        screen.take(event);
        closed.set(screen.writer.failure.is_some());
    });
    let writer = screen.finish();
    let experts = engine.expert_stats().zip(before).map(|(now, before)| now.since(&before));
    if let Some(failure) = writer.failure {
        return Err(failure);
    }
    let [content, reasoning] = writer.said;
    Ok(Answer { result: end?.record, interrupted: listening.asked(), shown: writer.shown, content, reasoning, experts })
}

struct Screen {
    quiet: bool,
    writer: Writer,
    bar: Option<ProgressBar>,
}

impl Screen {
    fn take(&mut self, event: TurnEvent) {
        match event {
            TurnEvent::Recompute { known, reused } if !self.quiet => output::aside(&format!(
                "{known} tokens of this prompt were read before, but the model's state cannot be put back to where it departs: \
                 {} of them are computed again",
                known - reused
            )),
            TurnEvent::Recompute { .. } => {}
            TurnEvent::Prefill { done, total } if done >= total => {
                self.bar.take().iter().for_each(ProgressBar::finish_and_clear);
            }
            TurnEvent::Prefill { done, total } => {
                // A prompt of one chunk is read before anyone could look.
                let bar = self.bar.get_or_insert_with(|| progress::bar("reading the prompt", total, self.quiet));
                bar.set_position(done as u64);
            }
            TurnEvent::Reasoning(text) => self.writer.write(Part::Reasoning, &text),
            // No tools are offered, so a call is content: it is shown as the model wrote it.
            TurnEvent::Content(text) | TurnEvent::ReleasedToolSpan { text, .. } => {
                self.writer.write(Part::Answer, &text);
            }
            TurnEvent::ToolCall(call) => self.writer.write(Part::Answer, &call.arguments),
            TurnEvent::Finished(_) => {}
        }
    }

    fn finish(mut self) -> Writer {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.writer.finish();
        self.writer
    }
}

/// What a piece of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Answer,
    Reasoning,
}

struct Writer {
    show: Show,
    colour: bool,
    dimmed: bool,
    shown: String,
    /// The answer and the reasoning.
    said: [String; 2],
    failure: Option<Failure>,
}

impl Writer {
    fn write(&mut self, part: Part, text: &str) {
        let reasoning = part == Part::Reasoning;
        let begins = self.said[usize::from(reasoning)].is_empty() && !self.shown.is_empty();
        self.said[usize::from(reasoning)].push_str(text);
        if reasoning && self.show.reasoning == Reasoning::Hidden {
            return;
        }
        // What separated the answer from hidden reasoning separates it from nothing.
        let hidden = self.show.reasoning == Reasoning::Hidden && self.shown.is_empty();
        let text = if hidden { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        // The markers that told the two apart are gone.
        let gap = if begins && !text.starts_with('\n') { "\n\n" } else { "" };
        self.shown.extend([gap, text]);
        let dim = reasoning && self.show.reasoning == Reasoning::Dimmed && self.colour;
        if dim != self.dimmed {
            self.dimmed = dim;
            self.out(if dim { output::DIM } else { output::PLAIN });
        }
        self.out(gap);
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
