//! One file, fetched in ranges into a partial file until its digest is right.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use ureq::http::StatusCode;

use super::client::{Answer, Client, bad_answer, failed, status_failure};
use super::listing::RemoteFile;
use super::record::Record;
use crate::digest::hex;
use crate::error::HubError;
use crate::names::check_sha256;
use crate::options::{Event, Failure, PullOptions, Sink};

/// Progress over the files of a pull; never goes back.
pub(super) struct Progress {
    total: Option<u64>,
    files: u64,
    reported: u64,
}

impl Progress {
    pub(super) fn new(total: Option<u64>) -> Self {
        Self { total, files: 0, reported: 0 }
    }

    /// `bytes` of the present file are there.
    fn at(&mut self, bytes: u64, events: Sink<'_>) {
        let done = self.files + bytes;
        if done > self.reported {
            self.reported = done;
            events(Event::Bytes { done, total: self.total });
        }
    }

    /// The present file is complete.
    pub(super) fn file_done(&mut self, bytes: u64, events: Sink<'_>) {
        self.at(bytes, events);
        self.files += bytes;
    }
}

/// A file on its way.
pub(super) struct Download<'a> {
    client: &'a Client,
    options: &'a PullOptions,
    url: String,
    file: &'a RemoteFile,
    partial: &'a Path,
    /// Whether a complete file of the wrong digest was already thrown away.
    discarded: bool,
}

impl<'a> Download<'a> {
    pub(super) fn new(
        client: &'a Client,
        options: &'a PullOptions,
        url: String,
        file: &'a RemoteFile,
        partial: &'a Path,
    ) -> Self {
        Self { client, options, url, file, partial, discarded: false }
    }

    /// Leaves the verified file under the partial name; gives its length and SHA-256.
    pub(super) fn run(
        &mut self,
        chunk_bytes: u64,
        progress: &mut Progress,
        events: Sink<'_>,
    ) -> Result<(u64, String), HubError> {
        let options = self.options;
        options.retry(events, |_, events| {
            loop {
                let before = self.recorded();
                match self.attempt(chunk_bytes, progress, events) {
                    // An attempt that brought a chunk does not count as failed.
                    Err(Failure::Passing(_)) if self.recorded() > before => {}
                    other => return other,
                }
            }
        })
    }

    fn attempt(
        &mut self,
        chunk_bytes: u64,
        progress: &mut Progress,
        events: Sink<'_>,
    ) -> Result<(u64, String), Failure> {
        let (bytes, sha256) = self.announced()?;
        let identity = sha256.clone().unwrap_or_else(|| self.url.clone());
        let mut record = match Record::load(self.partial, &identity, bytes) {
            Some(mut record) if self.partial.exists() => {
                record.check(self.partial, self.options)?;
                record
            }
            _ => Record::new(&identity, bytes, chunk_bytes),
        };
        let write = |source| HubError::io("write", self.partial, source);
        let mut out = File::options().create(true).truncate(false).write(true).open(self.partial).map_err(write)?;
        out.set_len(bytes).map_err(write)?;
        record.save(self.partial)?;
        progress.at(record.present(), events);
        while let Some(run) = record.missing() {
            self.fetch(run, &mut record, &mut out, (progress, events))?;
        }
        out.sync_all().map_err(write)?;
        events(Event::Verifying);
        let (found, forgotten) = record.check(self.partial, self.options)?;
        match sha256 {
            Some(expected) if found != expected => {
                let what = self.file.name.clone();
                let error = HubError::WrongDigest { what, expected, found };
                // Chunks that changed on disk are fetched again; otherwise they came wrong, and
                // nobody can say which.
                if forgotten == 0 {
                    record.reset();
                }
                record.save(self.partial)?;
                if forgotten == 0 && self.discarded {
                    let _ = fs::remove_file(self.partial);
                    let _ = super::record::remove(self.partial);
                    return Err(Failure::Final(error));
                }
                self.discarded |= forgotten == 0;
                Err(Failure::Passing(error))
            }
            _ if forgotten > 0 => {
                record.save(self.partial)?;
                let what = format!("{} on disk", self.file.name);
                let expected = "the digest recorded when it arrived".to_owned();
                Err(Failure::Passing(HubError::WrongDigest { what, expected, found }))
            }
            _ => Ok((bytes, found)),
        }
    }

    /// Length and digest as the listing and the file's own address give them; they must agree.
    fn announced(&self) -> Result<(u64, Option<String>), Failure> {
        let answer = self.client.head(&self.url)?;
        let status = answer.response.status();
        if !status.is_success() && !status.is_redirection() {
            return Err(status_failure(&answer.url, status));
        }
        let unquoted = |text: &str| text.trim_start_matches("W/").trim_matches('"').to_owned();
        let etag = answer.header("x-linked-etag").or(answer.header("etag")).map(unquoted);
        let served = etag.filter(|etag| check_sha256("digest", etag).is_ok());
        // The length of a redirect is that of its own text.
        let own_length = answer.header("content-length").filter(|_| status.is_success());
        let length = answer.header("x-linked-size").or(own_length).and_then(|n| n.parse().ok());
        let changed = |expected: String, found: String| {
            let what = self.file.name.clone();
            Err(Failure::Final(HubError::RemoteChanged { what, expected, found }))
        };
        if let (Some(listed), Some(served)) = (&self.file.sha256, &served)
            && listed != served
        {
            return changed(listed.clone(), served.clone());
        }
        let bytes = match (self.file.bytes, length) {
            (Some(listed), Some(served)) if listed != served => {
                return changed(format!("{listed} bytes"), format!("{served} bytes"));
            }
            (Some(bytes), _) | (None, Some(bytes)) => bytes,
            (None, None) => {
                return Err(bad_answer(&answer.url, "it does not say how long the file is").into());
            }
        };
        Ok((bytes, self.file.sha256.clone().or(served)))
    }

    /// Fetches the chunks `from..to`, or the whole file where the server sends nothing less.
    fn fetch(
        &self,
        (from, to): (usize, usize),
        record: &mut Record,
        out: &mut File,
        (progress, events): (&mut Progress, Sink<'_>),
    ) -> Result<(), Failure> {
        let (start, end) = (record.range(from).0, record.range(to - 1).1);
        let range = format!("bytes={start}-{}", end - 1);
        let whole = start == 0 && end == record.bytes;
        let etag = record.etag.clone();
        let mut headers = Vec::new();
        if !whole {
            headers.push(("Range", range.as_str()));
            headers.extend(etag.as_deref().map(|etag| ("If-Range", etag)));
        }
        let answer = self.client.get(&self.url, &headers)?;
        let (from, to) = self.accept(&answer, (from, to), record)?;
        let url = answer.url;
        let mut body = answer.response.into_body().into_reader();
        out.seek(SeekFrom::Start(record.range(from).0))
            .map_err(|source| HubError::io("write", self.partial, source))?;
        let mut buffer = vec![0; 1 << 16];
        for index in from..to {
            let (start, end) = record.range(index);
            let (mut at, mut hasher) = (start, Sha256::new());
            while at < end {
                self.options.check_cancelled()?;
                let wanted = (end - at).min(buffer.len() as u64) as usize;
                let count = body.read(&mut buffer[..wanted]).map_err(|error| failed(&url, ureq::Error::Io(error)))?;
                if count == 0 {
                    let why = format!("the connection ended after {at} of {} bytes", record.bytes);
                    return Err(Failure::Passing(bad_answer(&url, &why)));
                }
                out.write_all(&buffer[..count]).map_err(|source| HubError::io("write", self.partial, source))?;
                hasher.update(&buffer[..count]);
                at += count as u64;
                progress.at(record.present() + (at - start), events);
            }
            record.chunks[index] = Some(hex(&hasher.finalize()));
            record.save(self.partial)?;
        }
        Ok(())
    }

    /// Checks that the answer is the range asked for, or the whole file; gives the chunks it
    /// brings.
    fn accept(
        &self,
        answer: &Answer,
        (from, to): (usize, usize),
        record: &mut Record,
    ) -> Result<(usize, usize), Failure> {
        let etag = answer.header("etag").filter(|etag| !etag.starts_with("W/")).map(str::to_owned);
        if let (Some(before), Some(now)) = (&record.etag, &etag)
            && before != now
        {
            let what = self.file.name.clone();
            let (expected, found) = (before.clone(), now.clone());
            record.reset();
            record.save(self.partial)?;
            return Err(Failure::Passing(HubError::RemoteChanged { what, expected, found }));
        }
        let what = || self.file.name.clone();
        match answer.response.status() {
            StatusCode::OK => {
                if let Some(found) = answer.header("content-length").and_then(|n| n.parse().ok())
                    && found != record.bytes
                {
                    let expected = record.bytes;
                    return Err(Failure::Passing(HubError::WrongLength { what: what(), expected, found }));
                }
                record.reset();
                record.etag = etag;
                Ok((0, record.chunks.len()))
            }
            StatusCode::PARTIAL_CONTENT => {
                let (start, end) = (record.range(from).0, record.range(to - 1).1);
                let expected = format!("bytes {start}-{}/{}", end - 1, record.bytes);
                let found = answer.header("content-range").unwrap_or("no Content-Range");
                if found != expected {
                    let why = format!("it sent {found}; asked for {expected}");
                    return Err(Failure::Passing(bad_answer(&answer.url, &why)));
                }
                record.etag = etag;
                Ok((from, to))
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                record.reset();
                record.save(self.partial)?;
                let why = format!("it has no byte {}", record.range(from).0);
                Err(Failure::Passing(bad_answer(&answer.url, &why)))
            }
            status => Err(status_failure(&answer.url, status)),
        }
    }

    /// Bytes recorded so far.
    fn recorded(&self) -> u64 {
        super::record::bytes_recorded(self.partial)
    }
}
