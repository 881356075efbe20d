//! Progress of pulls and of long prompts: bars on a terminal, plain lines elsewhere.

use crate::output;
use hub::Event;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

/// Shows a pull on standard error.
#[derive(Debug)]
pub(crate) struct PullProgress {
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl PullProgress {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { bar: None, quiet }
    }

    pub(crate) fn event(&mut self, event: Event) {
        if self.quiet {
            return;
        }
        match event {
            Event::Waiting { lock } => {
                output::note(&format!("another process is pulling this model; waiting for {}", lock.display()));
            }
            Event::Started { what, total } if output::stderr_is_terminal() => {
                self.bar = Some(bar_of_bytes(what, total));
            }
            Event::Started { what, total } => {
                let size = total.map_or(String::new(), |total| format!(", {}", HumanBytes(total)));
                output::note(&format!("fetching {what}{size}"));
            }
            Event::Bytes { done, total } => {
                if let Some(bar) = &self.bar {
                    if let Some(total) = total {
                        bar.set_length(total);
                    }
                    bar.set_position(done);
                }
            }
            Event::Retry { attempt, of, wait, why } => {
                self.line(&format!("{why}; attempt {attempt} of {of} in {} s", wait.as_secs()));
            }
            Event::Verifying => self.line("verifying the digest"),
            Event::Done => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
            }
        }
    }

    fn line(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::note(line)),
            None => output::note(line),
        }
    }
}

impl Drop for PullProgress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar_of_bytes(what: String, total: Option<u64>) -> ProgressBar {
    const TEMPLATE: &str = "{msg} [{wide_bar:.dim}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what);
    bar
}

/// Shows how far packing or checking is, on a terminal only.
#[derive(Debug)]
pub(crate) struct PackProgress {
    what: &'static str,
    bar: Option<ProgressBar>,
}

impl PackProgress {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, bar: None }
    }

    pub(crate) fn event(&mut self, event: pack::Event) {
        match event {
            pack::Event::Started { total } if output::stderr_is_terminal() => {
                self.bar = Some(bar_of_bytes(self.what.to_owned(), Some(total)));
            }
            pack::Event::Started { .. } => {}
            pack::Event::Bytes { done } => {
                if let Some(bar) = &self.bar {
                    bar.set_position(done);
                }
            }
        }
    }
}

impl Drop for PackProgress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// A bar for work of known length, visible on a terminal only.
pub(crate) fn bar(what: &'static str, total: usize, quiet: bool) -> ProgressBar {
    if quiet || !output::stderr_is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30.dim}] {pos}/{len}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what);
    bar
}
