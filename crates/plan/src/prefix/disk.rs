//! A tree that outlives its process: written whole and in one step, and taken back only if it is what was written.

use super::format::{self, Content, HEAD, NONE, SavedState};
use super::{ContextKey, PrefixTree, folder, tree};
use crate::device::{Exec, Limits, StatePiece};
use crate::program::{KV_BLOCK, Program};
use crate::sequences::{Sequences, Stored};
use crate::{BlockId, StateSlot};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Says that two processes would compute the same states from the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of the model's content, as the caller identifies it, the device's name, the programs made of the model, and how
    /// keys and values are stored.
    pub fn new(model: &[u8], device: &str, programs: &[Program], limits: &Limits) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let made = format!("{version} {KV_BLOCK} {} {device} {programs:?}", limits.kv);
        let mut hash = Sha256::new();
        hash.update((model.len() as u64).to_le_bytes());
        hash.update(model);
        hash.update(made);
        Self(hash.finalize().into())
    }
}

/// A tree could not be written.
#[derive(Debug, thiserror::Error)]
pub enum PrefixFileError {
    /// The file system refused.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The device does not show its states.
    #[error("this device cannot save its states")]
    Device,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The file.
    pub path: PathBuf,
    /// States in it.
    pub states: usize,
    /// Its size.
    pub bytes: u64,
}

/// What was taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// States that are known again.
    pub states: usize,
    /// Why a file, or a part of it, was not taken.
    pub note: Option<String>,
}

impl PrefixTree {
    /// Writes the most recently used states that fit into `limit` bytes to a file of a folder, which takes the place of
    /// an earlier one of the same fingerprint all at once. Files of other fingerprints go, from the oldest on, where all would
    /// have more than `limit` bytes together.
    pub fn save<E: Exec>(
        &self,
        sequences: &Sequences<E>,
        folder: &Path,
        fingerprint: &Fingerprint,
        limit: u64,
    ) -> Result<Saved, PrefixFileError> {
        let exec = sequences.exec();
        let mut content = Content::default();
        let (mut blocks, mut slots) = (HashMap::new(), HashMap::new());
        let mut nodes: Vec<_> = self.tree.held().collect();
        nodes.sort_unstable_by_key(|(_, held)| std::cmp::Reverse(held.used));
        // The head and the lengths of three lists.
        let mut bytes = HEAD as u64 + 24;
        for (at, held) in nodes {
            let stored = held.snapshot.stored();
            let pieces = held.snapshot.held();
            let new_blocks = pieces.blocks.iter().filter(|block| !blocks.contains_key(*block));
            let new_slots = pieces.slots.iter().filter(|slot| !slots.contains_key(*slot));
            let sizes = new_blocks.map(|(group, _)| 12 + self.sizes.blocks[*group]);
            let (key, tokens) = self.tree.path(at);
            let tables = stored.tables.iter().map(|table| vec![NONE; table.len()]).collect();
            let mut state = SavedState { key: key.0, tokens, tables, slot: NONE };
            let size = state.bytes() + sizes.sum::<u64>() + new_slots.count() as u64 * (8 + self.sizes.slot);
            if bytes + size > limit {
                break;
            }
            bytes += size;
            for (group, (table, saved)) in stored.tables.iter().zip(&mut state.tables).enumerate() {
                for (block, saved) in table.iter().zip(saved).filter(|(block, _)| **block != BlockId::HOLE) {
                    if let std::collections::hash_map::Entry::Vacant(new) = blocks.entry((group, *block)) {
                        let mut content_of = Vec::new();
                        let piece = StatePiece::Block { window: exec.windows()[group], block: *block };
                        show(exec, piece, &mut content_of)?;
                        new.insert(content.blocks.len() as u32);
                        content.blocks.push((group as u32, content_of));
                    }
                    *saved = blocks[&(group, *block)];
                }
            }
            if let Some(slot) = stored.slot {
                if let std::collections::hash_map::Entry::Vacant(new) = slots.entry(slot) {
                    let mut content_of = Vec::new();
                    show(exec, StatePiece::Slot(slot), &mut content_of)?;
                    new.insert(content.slots.len() as u32);
                    content.slots.push(content_of);
                }
                state.slot = slots[&slot];
            }
            content.states.push(state);
        }
        let file = format::write(&fingerprint.0, &content);
        let path = folder::file(folder, &fingerprint.0);
        folder::publish(folder, &path, &file, limit)?;
        Ok(Saved { path, states: content.states.len(), bytes: file.len() as u64 })
    }

    /// Takes back what [`PrefixTree::save`] wrote to a folder for the same fingerprint, as much as blocks and this tree's
    /// bound allow. A file that is missing is nothing; one that is larger than `limit`, damaged or another model's is
    /// left alone with a note.
    pub fn restore<E: Exec>(
        &mut self,
        sequences: &mut Sequences<E>,
        folder: &Path,
        fingerprint: &Fingerprint,
        limit: u64,
    ) -> Restored {
        let path = folder::file(folder, &fingerprint.0);
        let ignored = |why: String| Restored { states: 0, note: Some(format!("{} is ignored: {why}", path.display())) };
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Restored::default(),
            Err(error) => return ignored(error.to_string()),
            Ok(found) if found.len() > limit => {
                return ignored(format!("it has {} bytes and {limit} are allowed", found.len()));
            }
            Ok(found) if !found.is_file() => return ignored("it is no file".to_owned()),
            Ok(_) => {}
        }
        let file = match fs::read(&path) {
            Ok(file) => file,
            Err(error) => return ignored(error.to_string()),
        };
        match format::read(&fingerprint.0, &file) {
            Err(why) => ignored(why.to_owned()),
            Ok(content) => match self.load(sequences, &content) {
                Ok(restored) => restored,
                Err(why) => ignored(why.to_owned()),
            },
        }
    }

    fn load<E: Exec>(
        &mut self,
        sequences: &mut Sequences<E>,
        content: &Content<&[u8]>,
    ) -> Result<Restored, &'static str> {
        check(sequences, &self.sizes, content)?;
        let mut blocks: Vec<Option<BlockId>> = vec![None; content.blocks.len()];
        let mut slots: Vec<Option<StateSlot>> = vec![None; content.slots.len()];
        let mut snapshots = Vec::new();
        for state in &content.states {
            let Some(stored) = place(sequences, content, state, &mut blocks, &mut slots) else { break };
            snapshots.push((state, sequences.adopt(stored)));
        }
        let held =
            blocks.iter().zip(&content.blocks).filter_map(|(block, (group, _))| Some((*group as usize, (*block)?)));
        sequences.unload(held, slots.into_iter().flatten());
        let missing = content.states.len() - snapshots.len();
        let mut taken = 0;
        // The one used last is the last to be entered.
        for (state, snapshot) in snapshots.into_iter().rev() {
            let at = self.tree.insert(&ContextKey(state.key.clone()), &state.tokens);
            if self.tree.node(at).held.is_some() {
                sequences.release(snapshot);
                continue;
            }
            self.clock += 1;
            self.count(&snapshot.held());
            self.tree.node_mut(at).held = Some(tree::Held { snapshot, used: self.clock });
            taken += 1;
        }
        let mut dropped = 0;
        while self.bytes > self.limit && self.evict(sequences) {
            dropped += 1;
        }
        let left = missing + dropped;
        let note = (left > 0).then(|| format!("{left} of {} saved states had no room", content.states.len()));
        Ok(Restored { states: taken - dropped.min(taken), note })
    }
}

fn show<E: Exec>(exec: &E, piece: StatePiece, to: &mut Vec<u8>) -> Result<(), PrefixFileError> {
    if exec.save_state(piece, to) { Ok(()) } else { Err(PrefixFileError::Device) }
}

/// Whether all numbers of a file make sense for these sequences; their content is then taken as it is.
fn check<E: Exec>(
    sequences: &Sequences<E>,
    sizes: &super::Sizes,
    content: &Content<&[u8]>,
) -> Result<(), &'static str> {
    const WRONG: &str = "its parts do not fit the model";
    let (windows, recurrent) = (sequences.exec().windows(), sequences.exec().has_fixed_states());
    let block = |(group, bytes): &(u32, &[u8])| sizes.blocks.get(*group as usize) == Some(&(bytes.len() as u64));
    let slot = |bytes: &&[u8]| bytes.len() as u64 == sizes.slot;
    let state = |state: &SavedState| {
        let table = |(group, table): (usize, &Vec<u32>)| {
            let first = windows[group].map_or(0, |w| (state.tokens.len() + 1).saturating_sub(w) / KV_BLOCK);
            let holes = table.iter().take_while(|block| **block == NONE).count();
            let of_group = |block: &u32| content.blocks.get(*block as usize).is_some_and(|b| b.0 as usize == group);
            table.len() == state.tokens.len().div_ceil(KV_BLOCK)
                && holes <= first
                && table[holes..].iter().all(of_group)
        };
        let slot = if recurrent { (state.slot as usize) < content.slots.len() } else { state.slot == NONE };
        !state.tokens.is_empty()
            && slot
            && state.tables.len() == windows.len()
            && state.tables.iter().enumerate().all(table)
    };
    let fits = content.blocks.iter().all(block) && content.slots.iter().all(slot) && content.states.iter().all(state);
    if fits { Ok(()) } else { Err(WRONG) }
}

/// A state with its pieces on the device, those loaded that were not yet; `None` if there is no room.
fn place<E: Exec>(
    sequences: &mut Sequences<E>,
    content: &Content<&[u8]>,
    state: &SavedState,
    blocks: &mut [Option<BlockId>],
    slots: &mut [Option<StateSlot>],
) -> Option<Stored> {
    let mut tables = Vec::new();
    for (group, saved) in state.tables.iter().enumerate() {
        let mut table = Vec::new();
        for block in saved {
            if *block == NONE {
                table.push(BlockId::HOLE);
                continue;
            }
            let at = *block as usize;
            if blocks[at].is_none() {
                blocks[at] = Some(sequences.load_block(group, content.blocks[at].1)?);
            }
            table.extend(blocks[at]);
        }
        tables.push(table);
    }
    let mut slot = None;
    if state.slot != NONE {
        let at = state.slot as usize;
        if slots[at].is_none() {
            slots[at] = Some(sequences.load_slot(content.slots[at])?);
        }
        slot = slots[at];
    }
    Some(Stored { position: state.tokens.len(), tables, slot })
}
