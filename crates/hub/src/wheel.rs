//! One member out of a wheel, which is a zip archive of stored or deflated files.
//!
//! The archive is untrusted: every offset is checked against the file before it is used, and no
//! more bytes come out than its directory announced. Names in it never become paths. Not read:
//! encryption, zip64 (a wheel stays below 4 GiB) and archives in several volumes.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::Crc;
use flate2::read::DeflateDecoder;

use crate::error::HubError;
use crate::options::PullOptions;

const END: [u8; 4] = *b"PK\x05\x06";
const END_BYTES: u64 = 22;
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const CENTRAL_BYTES: usize = 46;
const LOCAL: [u8; 4] = *b"PK\x03\x04";
const LOCAL_BYTES: usize = 30;
/// A directory of some hundred thousand files; a wheel with a model has a handful.
const DIRECTORY_LIMIT: u64 = 32 << 20;

/// An open wheel.
pub(crate) struct Wheel {
    file: File,
    path: PathBuf,
    directory: Vec<u8>,
    /// Where the directory begins, and the files' data must end.
    directory_at: u64,
}

/// What the directory says about the member.
struct Member {
    flags: u16,
    method: u16,
    crc: u32,
    packed: u64,
    unpacked: u64,
    header_at: u64,
}

impl Wheel {
    pub(crate) fn open(path: &Path) -> Result<Self, HubError> {
        let read = |source| HubError::io("read", path, source);
        let mut file = File::open(path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let bad = |why: &str| Err(bad(path, why));
        if length < END_BYTES {
            return bad(&format!("it has {length} bytes; an archive has at least {END_BYTES}"));
        }
        let tail_at = length.saturating_sub(END_BYTES + u64::from(u16::MAX));
        let tail = read_at(&mut file, path, tail_at, (length - tail_at) as usize)?;
        let end_at = (0..=tail.len() - END_BYTES as usize).rev().find(|&at| {
            let comment = END_BYTES as usize + usize::from(u16_at(&tail, at + 20));
            tail[at..].starts_with(&END) && at + comment == tail.len()
        });
        let Some(end_at) = end_at else { return bad("it has no end record of a zip archive") };
        let end = &tail[end_at..];
        if u16_at(end, 4) != 0 || u16_at(end, 6) != 0 || u16_at(end, 8) != u16_at(end, 10) {
            return bad("it is one volume of several");
        }
        let (size, at) = (u64::from(u32_at(end, 12)), u64::from(u32_at(end, 16)));
        if size == u64::from(u32::MAX) || at == u64::from(u32::MAX) {
            return bad("it is a zip64 archive, which is not supported");
        }
        if at + size > tail_at + end_at as u64 {
            return bad(&format!("its directory, {size} bytes at {at}, passes its end record"));
        }
        if size > DIRECTORY_LIMIT {
            return bad(&format!("its directory has {size} bytes; at most {DIRECTORY_LIMIT} are read"));
        }
        let directory = read_at(&mut file, path, at, size as usize)?;
        Ok(Self { file, path: path.to_path_buf(), directory, directory_at: at })
    }

    /// Writes the member `name` to `out`, `at_most` bytes of it, and gives its length.
    pub(crate) fn extract(
        &mut self,
        name: &str,
        at_most: u64,
        out: (&mut dyn Write, &Path),
        options: &PullOptions,
    ) -> Result<u64, HubError> {
        let member = self.member(name)?;
        let path = self.path.clone();
        let bad = |why: String| bad(&path, &format!("member {name}: {why}"));
        if member.flags & 1 != 0 {
            return Err(bad("it is encrypted".to_owned()));
        }
        if member.unpacked > at_most {
            let found = member.unpacked;
            return Err(bad(format!("it has {found} bytes; at most {at_most} are expected")));
        }
        let data_at = self.data_at(name, &member)?;
        let seek = self.file.seek(SeekFrom::Start(data_at));
        seek.map_err(|source| HubError::io("read", &path, source))?;
        let packed = BufReader::with_capacity(1 << 16, (&mut self.file).take(member.packed));
        let mut data: Box<dyn Read> = match member.method {
            0 => Box::new(packed),
            8 => Box::new(DeflateDecoder::new(packed)),
            other => return Err(bad(format!("it uses compression method {other}; 0 and 8 are read"))),
        };
        let mut crc = Crc::new();
        let mut unpacked = 0;
        let mut buffer = vec![0; 1 << 16];
        loop {
            options.check_cancelled()?;
            let count = data.read(&mut buffer).map_err(|error| bad(error.to_string()))?;
            if count == 0 {
                break;
            }
            unpacked += count as u64;
            if unpacked > member.unpacked {
                return Err(bad(format!("it unpacks to more than the {} bytes announced", member.unpacked)));
            }
            crc.update(&buffer[..count]);
            out.0.write_all(&buffer[..count]).map_err(|e| HubError::io("write", out.1, e))?;
        }
        if unpacked != member.unpacked {
            return Err(bad(format!("it unpacks to {unpacked} bytes; {} announced", member.unpacked)));
        }
        if crc.sum() != member.crc {
            return Err(bad(format!("its CRC-32 is {:08x}; {:08x} announced", crc.sum(), member.crc)));
        }
        Ok(unpacked)
    }

    /// The one directory entry of this name.
    fn member(&self, name: &str) -> Result<Member, HubError> {
        let bad = |why: String| bad(&self.path, &why);
        let mut rest = self.directory.as_slice();
        let mut found = None;
        while !rest.is_empty() {
            if rest.len() < CENTRAL_BYTES || !rest.starts_with(&CENTRAL) {
                return Err(bad("its directory is damaged".to_owned()));
            }
            let name_bytes = usize::from(u16_at(rest, 28));
            let whole = CENTRAL_BYTES + name_bytes + usize::from(u16_at(rest, 30)) + usize::from(u16_at(rest, 32));
            if rest.len() < whole {
                return Err(bad("its directory is cut short".to_owned()));
            }
            if &rest[CENTRAL_BYTES..CENTRAL_BYTES + name_bytes] == name.as_bytes() {
                let member = Member {
                    flags: u16_at(rest, 8),
                    method: u16_at(rest, 10),
                    crc: u32_at(rest, 16),
                    packed: u64::from(u32_at(rest, 20)),
                    unpacked: u64::from(u32_at(rest, 24)),
                    header_at: u64::from(u32_at(rest, 42)),
                };
                if found.replace(member).is_some() {
                    return Err(bad(format!("it holds two members called {name}")));
                }
            }
            rest = &rest[whole..];
        }
        found.ok_or_else(|| bad(format!("it holds no member {name}")))
    }

    /// Where the member's data begins; it ends before the directory.
    fn data_at(&mut self, name: &str, member: &Member) -> Result<u64, HubError> {
        let outside = || bad(&self.path, &format!("member {name} lies outside its data"));
        if member.header_at + LOCAL_BYTES as u64 > self.directory_at {
            return Err(outside());
        }
        let header = read_at(&mut self.file, &self.path, member.header_at, LOCAL_BYTES)?;
        if !header.starts_with(&LOCAL) {
            return Err(bad(&self.path, &format!("member {name} has no local header")));
        }
        let data_at =
            member.header_at + LOCAL_BYTES as u64 + u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
        if data_at + member.packed > self.directory_at { Err(outside()) } else { Ok(data_at) }
    }
}

fn bad(path: &Path, why: &str) -> HubError {
    HubError::BadArchive { path: path.to_path_buf(), why: why.to_owned() }
}

fn read_at(file: &mut File, path: &Path, at: u64, count: usize) -> Result<Vec<u8>, HubError> {
    let mut bytes = vec![0; count];
    file.seek(SeekFrom::Start(at))
        .and_then(|_| file.read_exact(&mut bytes))
        .map_err(|source| HubError::io("read", path, source))?;
    Ok(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests;
