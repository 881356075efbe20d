//! The file of a tree: numbers are little-endian, lists begin with their length.
//!
//! `MAGIC`, the fingerprint, the SHA-256 of all that follows; then the blocks (group and bytes), the copies of recurrent
//! state (bytes), and the states, the most recently used first: key, tokens, a table a group, copy. Tables and copies
//! name blocks and copies by their place in the file.

use foundation::TokenId;
use sha2::{Digest, Sha256};

pub(super) const MAGIC: [u8; 8] = *b"TSPREFX1";

/// Bytes before the part that is checksummed.
pub(super) const HEAD: usize = MAGIC.len() + 64;

/// No block, or no copy.
pub(super) const NONE: u32 = u32::MAX;

/// A file's content; bytes of pieces are borrowed from it when read.
#[derive(Debug, Default)]
pub(super) struct Content<B> {
    pub(super) blocks: Vec<(u32, B)>,
    pub(super) slots: Vec<B>,
    pub(super) states: Vec<SavedState>,
}

/// A state by the places of its pieces.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SavedState {
    pub(super) key: Vec<u8>,
    pub(super) tokens: Vec<TokenId>,
    pub(super) tables: Vec<Vec<u32>>,
    pub(super) slot: u32,
}

impl SavedState {
    /// Bytes it takes in a file, without its pieces.
    pub(super) fn bytes(&self) -> u64 {
        let tables: usize = self.tables.iter().map(|table| 8 + 4 * table.len()).sum();
        (8 + self.key.len() + 8 + 4 * self.tokens.len() + 8 + tables + 4) as u64
    }
}

pub(super) fn write(fingerprint: &[u8; 32], content: &Content<Vec<u8>>) -> Vec<u8> {
    let mut file = [&MAGIC[..], fingerprint, &[0; 32]].concat();
    let number = |file: &mut Vec<u8>, n: usize| file.extend_from_slice(&(n as u64).to_le_bytes());
    let word = |file: &mut Vec<u8>, n: u32| file.extend_from_slice(&n.to_le_bytes());
    let list = |file: &mut Vec<u8>, bytes: &[u8]| {
        number(file, bytes.len());
        file.extend_from_slice(bytes);
    };
    number(&mut file, content.blocks.len());
    for (group, bytes) in &content.blocks {
        word(&mut file, *group);
        list(&mut file, bytes);
    }
    number(&mut file, content.slots.len());
    content.slots.iter().for_each(|bytes| list(&mut file, bytes));
    number(&mut file, content.states.len());
    for state in &content.states {
        list(&mut file, &state.key);
        number(&mut file, state.tokens.len());
        state.tokens.iter().for_each(|token| word(&mut file, token.0));
        number(&mut file, state.tables.len());
        for table in &state.tables {
            number(&mut file, table.len());
            table.iter().for_each(|block| word(&mut file, *block));
        }
        word(&mut file, state.slot);
    }
    let sum = Sha256::digest(&file[HEAD..]);
    file[HEAD - 32..HEAD].copy_from_slice(&sum);
    file
}

/// Reads a file that was written for this fingerprint; else says why not.
pub(super) fn read<'a>(fingerprint: &[u8; 32], file: &'a [u8]) -> Result<Content<&'a [u8]>, &'static str> {
    let Some((head, body)) = file.split_at_checked(HEAD) else { return Err("it is cut short") };
    if head[..MAGIC.len()] != MAGIC {
        return Err("it is no file of this version");
    }
    if head[MAGIC.len()..HEAD - 32] != *fingerprint {
        return Err("it belongs to another model, program or cache type");
    }
    if head[HEAD - 32..] != Sha256::digest(body)[..] {
        return Err("its checksum is wrong");
    }
    let mut rest = Reader(body);
    content(&mut rest).filter(|_| rest.0.is_empty()).ok_or("its parts do not fit together")
}

fn content<'a>(rest: &mut Reader<'a>) -> Option<Content<&'a [u8]>> {
    let blocks = rest.many(12, |rest| Some((rest.word()?, rest.list()?)))?;
    let slots = rest.many(8, Reader::list)?;
    let states = rest.many(28, |rest| {
        Some(SavedState {
            key: rest.list()?.to_vec(),
            tokens: rest.many(4, |rest| rest.word().map(TokenId))?,
            tables: rest.many(8, |rest| rest.many(4, Reader::word))?,
            slot: rest.word()?,
        })
    })?;
    Some(Content { blocks, slots, states })
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (now, later) = self.0.split_at_checked(count)?;
        self.0 = later;
        Some(now)
    }

    fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn number(&mut self) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.take(8)?.try_into().ok()?)).ok()
    }

    fn list(&mut self) -> Option<&'a [u8]> {
        let count = self.number()?;
        self.take(count)
    }

    /// A list of things of at least `least` bytes each.
    fn many<T>(&mut self, least: usize, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        if count > self.0.len() / least {
            return None;
        }
        (0..count).map(|_| one(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Content, HEAD, NONE, SavedState, read, write};
    use foundation::TokenId;
    use sha2::{Digest, Sha256};

    fn file() -> Vec<u8> {
        let state =
            SavedState { key: vec![7], tokens: vec![TokenId(3), TokenId(9)], tables: vec![vec![NONE, 0]], slot: 0 };
        write(&[5; 32], &Content { blocks: vec![(0, vec![1, 2, 3])], slots: vec![vec![4]], states: vec![state] })
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let file = file();
        let content = read(&[5; 32], &file).expect("is whole");
        assert_eq!((content.blocks, content.slots), (vec![(0, &[1u8, 2, 3][..])], vec![&[4u8][..]]));
        assert_eq!(content.states[0].tables, [[NONE, 0]]);
        let lists = HEAD as u64 + 3 * 8;
        assert_eq!(file.len() as u64, lists + (4 + 8 + 3) + (8 + 1) + content.states[0].bytes());
        assert!(read(&[6; 32], &file).is_err());
    }

    /// With a checksum that is right, lengths still decide nothing by themselves.
    #[test]
    fn lengths_beyond_the_file_are_refused() {
        for at in 0..file().len() - HEAD {
            let mut file = file();
            file[HEAD + at] = 0xff;
            let sum = Sha256::digest(&file[HEAD..]);
            file[HEAD - 32..HEAD].copy_from_slice(&sum);
            // Content may be anything; a length may not.
            let length = [(0, 8), (12, 20), (23, 31), (31, 39), (40, 48), (48, 56), (57, 65), (73, 81), (81, 89)];
            let is_length = length.iter().any(|(from, to)| (*from..*to).contains(&at));
            assert_eq!(read(&[5; 32], &file).is_err(), is_length, "byte {at}");
        }
    }
}
