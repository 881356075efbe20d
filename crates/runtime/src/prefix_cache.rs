//! Beginnings of conversations that are kept, so that no prompt is computed twice: one mechanism for one sequence and for
//! many, in memory and, if asked for, on disk.
//!
//! The tree itself is [`plan::PrefixTree`]. This module decides what identifies a state beside its tokens, where states
//! are kept while a prompt is read, and what becomes of them when the process ends.

mod identity;

use crate::RuntimeError;
use crate::open::OpenOptions;
use foundation::{LogitValue, TokenId};
use plan::{
    ContextKey, Exec, ExecError, Feed, Fingerprint, Opened, PrefixTree, ProgramId, Prompt, Reuse, Saved, SequenceId,
    Sequences,
};
use std::path::PathBuf;
use tokenizer::Tokenizer;

pub(crate) use identity::{context_key, fingerprint};

/// What is kept of the prompts and answers that a model has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixOptions {
    /// Most bytes of kept states; `None`: whatever of the cache no sequence needs. 0 keeps nothing.
    pub memory: Option<u64>,
    /// Where they outlive the process.
    pub disk: Option<PrefixDisk>,
}

/// A folder of kept states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixDisk {
    /// The folder; it is made when it is needed.
    pub folder: PathBuf,
    /// Most bytes of all files there: a model's own, and what remains of it for those written last.
    pub bytes: u64,
}

impl PrefixOptions {
    /// Nothing is kept.
    pub fn off() -> Self {
        Self { memory: Some(0), disk: None }
    }

    /// Whether these options turn away from what is done anyway, by asking for something.
    fn asked(&self) -> bool {
        self.disk.is_some() || self.memory.is_some_and(|bytes| bytes > 0)
    }

    /// Refuses what does not go together.
    pub(crate) fn check(&self, options: &OpenOptions) -> Result<(), RuntimeError> {
        let refused = |reason| Err(RuntimeError::PrefixOptions { reason });
        if self.memory == Some(0) && self.disk.is_some() {
            return refused(
                "nothing is kept that a folder could hold; leave --prefix-memory off or --prefix-cache out",
            );
        }
        if self.asked() && options.sessions.slots > 1 {
            return refused(
                "a session pool parks whole conversations instead; leave --session-slots or the --prefix- flags out",
            );
        }
        if self.asked() && !options.capture.is_empty() {
            return refused("a capture needs every position computed; leave --capture or the --prefix- flags out");
        }
        Ok(())
    }

    /// [`PrefixOptions::check`] of a scripted model.
    pub(crate) fn check_scripted(&self) -> Result<(), RuntimeError> {
        if self.asked() {
            let reason = "a scripted model has no states that could be kept; leave the --prefix- flags out";
            return Err(RuntimeError::PrefixOptions { reason });
        }
        Ok(())
    }
}

/// How a [`PrefixCache`] stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixStatus {
    /// States kept.
    pub states: usize,
    /// Bytes they hold, shared pieces once.
    pub bytes: u64,
    /// What they have been good for.
    pub reuse: Reuse,
}

/// Where a prompt begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// Tokens of the prompt that need not be fed.
    pub reused: usize,
    /// Tokens of the prompt that were fed before. Where it is more than `reused`, the model cannot go on from there.
    pub known: usize,
    /// Positions where a feed should end so that the state can be kept, ascending.
    pub stops: Vec<usize>,
}

/// Tokens that must be computed again, although they are known, before that is worth telling.
const WORTH_TELLING: usize = 32;

impl Begun {
    /// Whether more of what is known must be computed again than need not.
    pub(crate) fn recomputes(&self) -> bool {
        let again = self.known - self.reused;
        again >= WORTH_TELLING && again > self.reused
    }
}

/// Kept beginnings over the sequences of one device. Without a tree it keeps nothing, and all it is asked works.
#[derive(Debug, Default)]
pub struct PrefixCache {
    kept: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    tree: PrefixTree,
    key: ContextKey,
    disk: Option<(PrefixDisk, Fingerprint)>,
}

impl Kept {
    fn prompt<'a>(&'a self, tokens: &'a [TokenId], marks: &'a [usize]) -> Prompt<'a> {
        Prompt { key: &self.key, tokens, marks, tainted_from: None }
    }
}

impl PrefixCache {
    /// A cache over a tree. `key` is what else than tokens decides the states of all sequences it will be asked about.
    pub fn new(tree: PrefixTree, key: ContextKey) -> Self {
        Self { kept: Some(Kept { tree, key, disk: None }) }
    }

    /// Lets the states outlive the process, for processes with the same fingerprint.
    pub fn on_disk(mut self, disk: PrefixDisk, fingerprint: Fingerprint) -> Self {
        self.kept.iter_mut().for_each(|kept| kept.disk = Some((disk.clone(), fingerprint)));
        self
    }

    /// Whether anything is ever kept.
    pub fn keeps(&self) -> bool {
        self.kept.is_some()
    }

    /// How it stands.
    pub fn status(&self) -> PrefixStatus {
        let status =
            |Kept { tree, .. }: &Kept| PrefixStatus { states: tree.len(), bytes: tree.bytes(), reuse: tree.reuse() };
        self.kept.as_ref().map(status).unwrap_or_default()
    }

    /// Tokens of a prompt that would not be fed again, and how many are known; changes nothing.
    pub fn look<E: Exec>(&self, sequences: &Sequences<E>, prompt: &[TokenId]) -> (usize, usize) {
        self.kept.as_ref().map_or((0, 0), |kept| kept.tree.look(sequences, &kept.prompt(prompt, &[])))
    }

    /// A sequence at the longest beginning of a prompt that the model can go on from. It may be closed before it is fed;
    /// [`PrefixCache::begun`] says that it stays.
    pub fn fork<E: Exec>(&mut self, sequences: &mut Sequences<E>, prompt: &[TokenId]) -> Opened {
        match &mut self.kept {
            Some(Kept { tree, key, .. }) => {
                tree.fork(sequences, &Prompt { key, tokens: prompt, marks: &[], tainted_from: None })
            }
            None => Opened { sequence: sequences.open(), reused: 0, known: 0 },
        }
    }

    /// Counts a prompt that begins where `opened` says, and tells where its states are to be kept: at `marks` and at
    /// distances from its end that double; nowhere if the model can forget its end at any position by itself.
    pub fn begun<E: Exec>(
        &mut self,
        sequences: &Sequences<E>,
        opened: &Opened,
        prompt: &[TokenId],
        marks: &[usize],
    ) -> Begun {
        let (reused, known) = (opened.reused, opened.known);
        let Some(Kept { tree, key, .. }) = &mut self.kept else { return Begun { reused, known, stops: Vec::new() } };
        let prompt = Prompt { key, tokens: prompt, marks, tainted_from: None };
        tree.record(opened, &prompt);
        let mut stops = tree.stops(sequences, &prompt, reused);
        if !sequences.forgets_anywhere() {
            stops.push(prompt.tokens.len());
        }
        Begun { reused, known, stops }
    }

    /// Keeps a sequence's present state under the tokens it has been fed.
    pub fn keep<E: Exec>(&mut self, sequences: &mut Sequences<E>, sequence: SequenceId, tokens: &[TokenId]) {
        let Some(Kept { tree, key, .. }) = &mut self.kept else { return };
        let past = Prompt { key, tokens, marks: &[], tainted_from: None };
        if let Err(error) = tree.keep(sequences, sequence, &past) {
            unreachable!("a sequence is kept under the tokens it was fed: {error}");
        }
    }

    /// [`Sequences::run`]; kept states make way when memory runs out.
    pub fn run<E: Exec>(
        &mut self,
        sequences: &mut Sequences<E>,
        program: ProgramId,
        feeds: &[Feed<'_>],
        logits: &mut [LogitValue],
    ) -> Result<(), ExecError> {
        match &mut self.kept {
            Some(kept) => kept.tree.run(sequences, program, feeds, logits),
            None => sequences.run(program, feeds, logits),
        }
    }

    /// Gives everything up.
    pub fn clear<E: Exec>(&mut self, sequences: &mut Sequences<E>) {
        self.kept.iter_mut().for_each(|kept| kept.tree.clear(sequences));
    }

    /// Takes back what an earlier process saved; what was not taken, and why.
    pub fn restore<E: Exec>(&mut self, sequences: &mut Sequences<E>) -> Option<String> {
        let Kept { tree, disk, .. } = self.kept.as_mut()?;
        let (disk, fingerprint) = disk.as_ref()?;
        tree.restore(sequences, &disk.folder, fingerprint, disk.bytes).note
    }

    /// Saves what is kept, if that was asked for.
    ///
    /// # Errors
    /// If the folder cannot be written; what was there before is still there then.
    pub fn save<E: Exec>(&self, sequences: &Sequences<E>) -> Result<Option<Saved>, RuntimeError> {
        let Some(Kept { tree, disk: Some((disk, fingerprint)), .. }) = &self.kept else { return Ok(None) };
        Ok(Some(tree.save(sequences, &disk.folder, fingerprint, disk.bytes)?))
    }
}

/// Turns of a prompt, from the last on, before whose texts a state is kept.
const TURNS: usize = 8;

/// Where later prompts are likely to depart from this one: after each of the last turns' ends, and after as much of what
/// leads to an answer as follows there, so that it is also before each of the assistant's texts.
pub(crate) fn marks(tokenizer: &Tokenizer, prompt: &[TokenId]) -> Vec<usize> {
    let ends = |id: &TokenId| tokenizer.stop_ids().contains(id);
    let after = |tokens: &[TokenId]| tokens.iter().rposition(ends).map(|at| at + 1);
    let Some(last) = after(prompt) else { return Vec::new() };
    let leads = &prompt[last..];
    let turns = (0..last).rev().filter(|at| ends(&prompt[*at])).map(|at| at + 1).take(TURNS);
    let led = |end: usize| end + prompt[end..].iter().zip(leads).take_while(|(a, b)| a == b).count();
    let mut marks: Vec<_> = turns.flat_map(|end| [end, led(end)]).filter(|mark| *mark < prompt.len()).collect();
    marks.sort_unstable();
    // What differs by a few tokens is one place; the earlier serves both.
    marks.dedup_by(|later, earlier| *later - *earlier < 4);
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_tokenizer;
    use tokenizer::Encode;

    #[test]
    fn marks_stand_at_ends_of_turns_and_before_the_assistants_texts() {
        let tokenizer = byte_tokenizer().expect("builds");
        let text = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nhi there<|im_end|>\n<|im_start|>user\nso?\
                    <|im_end|>\n<|im_start|>assistant\n";
        let prompt = tokenizer.encode(text, Encode { special: true, bos: false }).expect("encodes");
        let shown: Vec<_> =
            marks(&tokenizer, &prompt).iter().map(|mark| tokenizer.decode(&prompt[*mark..], false)).collect();
        let rest = "\n<|im_start|>user\nso?<|im_end|>\n<|im_start|>assistant\n";
        let expected = [
            format!("\n<|im_start|>assistant\nhi there<|im_end|>{rest}"),
            format!("hi there<|im_end|>{rest}"),
            rest.to_owned(),
            "\n<|im_start|>assistant\n".to_owned(),
        ];
        assert_eq!(shown, expected);
        assert!(marks(&tokenizer, &[]).is_empty() && marks(&tokenizer, &prompt[..4]).is_empty());
    }
}
