//! One generation: streamed to standard output, stopped by Ctrl-C.

use crate::failure::Failure;
use crate::{interrupt, output, progress};
use foundation::TokenId;
use indicatif::ProgressBar;
use runtime::{Engine, GenerationConfig, Progress, RawDecodeResult};
use std::cell::Cell;
use tokenizer::{ReplyEvent, ReplyParser};

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
    /// What it says to the reader; all of it where reasoning was not told apart.
    pub(crate) content: String,
    /// What the model thought.
    pub(crate) reasoning: String,
}

/// Generates after `prompt`.
pub(crate) fn generate(
    engine: &mut Engine,
    prompt: &[TokenId],
    config: &GenerationConfig,
    show: Show,
) -> Result<Answer, Failure> {
    let tokenizer = engine.tokenizer().clone();
    let parser = match show.reasoning {
        Reasoning::Plain => None,
        _ => Some(ReplyParser::new(&tokenizer, tokenizer.dialect(), prompt, None)?),
    };
    let mut screen = Screen {
        show,
        parser,
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
    let result = engine.generate(prompt, config, &|| closed.get() || listening.asked(), &mut |progress| {
        screen.take(progress);
        closed.set(screen.writer.failure.is_some());
    });
    let writer = screen.finish();
    if let Some(failure) = writer.failure {
        return Err(failure);
    }
    let [content, reasoning] = writer.said;
    Ok(Answer { result: result?, interrupted: listening.asked(), shown: writer.shown, content, reasoning })
}

struct Screen {
    show: Show,
    parser: Option<ReplyParser>,
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
            Progress::Token { id, delta, .. } => match &mut self.parser {
                Some(parser) => self.writer.events(parser.push(id, &delta)),
                None => self.writer.write(Part::Answer, &delta),
            },
            Progress::Tail(text) => match &mut self.parser {
                Some(parser) => self.writer.events(parser.push_text(&text)),
                None => self.writer.write(Part::Answer, &text),
            },
        }
    }

    fn finish(mut self) -> Writer {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some(parser) = &mut self.parser {
            self.writer.events(parser.finish());
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
    fn events(&mut self, events: Vec<ReplyEvent>) {
        for event in events {
            match event {
                ReplyEvent::Reasoning(text) => self.write(Part::Reasoning, &text),
                ReplyEvent::Content(text) | ReplyEvent::ReleasedToolSpan { text, .. } => {
                    self.write(Part::Answer, &text);
                }
                // No tools were offered, so what looks like a call was released as text.
                ReplyEvent::ToolCall(call) => self.write(Part::Answer, &call.arguments),
            }
        }
    }

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
