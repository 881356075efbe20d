//! What a repository holds at a revision.

use serde::Deserialize;

use super::client::{Client, bad_answer, failed, status_failure};
use crate::model_ref::HfRef;
use crate::names::{check_relative, check_sha256};
use crate::options::{Failure, PullOptions};

/// Longest listing read.
const LIMIT: u64 = 64 << 20;

/// A repository at one commit.
pub(super) struct Repository {
    /// The commit, 40 hexadecimal digits.
    pub(super) commit: String,
    pub(super) files: Vec<RemoteFile>,
    pub(super) licence: String,
}

/// A file of a repository; its name has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteFile {
    pub(super) name: String,
    pub(super) bytes: Option<u64>,
    pub(super) sha256: Option<String>,
}

#[derive(Deserialize)]
struct Listing {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
    size: Option<u64>,
}

/// Asks the hub. Hidden files are left out; any other name that must not become a path is
/// refused.
pub(super) fn list(client: &Client, reference: &HfRef, options: &PullOptions) -> Result<Repository, Failure> {
    options.check_cancelled()?;
    let HfRef { owner, repo, revision, .. } = reference;
    let revision = revision.as_deref().unwrap_or("main");
    let base = client.address(&format!("/api/models/{owner}/{repo}/revision/"));
    let revision = client.address(revision).split_off(client.address("").len());
    let url = format!("{base}{}?blobs=true", revision.replace('/', "%2F"));
    let mut answer = client.get(&url, &[])?;
    if !answer.response.status().is_success() {
        return Err(status_failure(&answer.url, answer.response.status()));
    }
    let url = answer.url.clone();
    let body = answer.response.body_mut().with_config().limit(LIMIT).read_to_vec();
    let body = body.map_err(|error| failed(&url, error))?;
    parse(&url, &body)
}

fn parse(url: &str, body: &[u8]) -> Result<Repository, Failure> {
    let listing: Listing = serde_json::from_slice(body).map_err(|error| bad_answer(url, &error.to_string()))?;
    let commit = listing.sha;
    if commit.len() != 40 || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(bad_answer(url, &format!("{commit:?} is no commit")).into());
    }
    let mut files = Vec::new();
    for Sibling { rfilename: name, size, lfs } in listing.siblings {
        let hidden = name.split('/').any(|part| part.starts_with('.') && !part.trim_matches('.').is_empty());
        if hidden && !name.contains("..") && !name.starts_with('/') {
            continue;
        }
        check_relative("file name", &name)?;
        let (bytes, sha256) = match lfs {
            Some(lfs) => (lfs.size.or(size), lfs.sha256),
            None => (size, None),
        };
        if let Some(digest) = &sha256 {
            check_sha256("digest", digest)?;
        }
        files.push(RemoteFile { name, bytes, sha256 });
    }
    let licence = listing
        .tags
        .iter()
        .find_map(|tag| tag.strip_prefix("license:"))
        .unwrap_or("not stated by the repository")
        .to_owned();
    Ok(Repository { commit, files, licence })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(name: &str, digest: &str) -> String {
        serde_json::json!({
            "sha": "a".repeat(40),
            "siblings": [
                { "rfilename": ".gitattributes", "size": 3 },
                { "rfilename": name, "size": 7, "lfs": { "sha256": digest, "size": 7 } },
            ],
        })
        .to_string()
    }

    #[test]
    fn d56_hostile_listings_are_refused() {
        let good = "0".repeat(64);
        let repository = parse("u", body("a/b.gguf", &good).as_bytes()).ok().unwrap();
        assert_eq!(repository.files.len(), 1);
        for name in ["../a", "/a", "a/../../b", "C:\\a", "a\0b", "%2e%2e/a", "..", "a/..", "/.x"] {
            assert!(parse("u", body(name, &good).as_bytes()).is_err(), "{name:?} was accepted");
        }
        for digest in [&good[1..], "sha256:../../x"] {
            assert!(parse("u", body("a", digest).as_bytes()).is_err(), "{digest:?} was accepted");
        }
        for text in ["", "[]", r#"{"sha":"main"}"#, r#"{"sha":"../../../../../../../../../../../../../x"}"#] {
            assert!(parse("u", text.as_bytes()).is_err(), "{text:?} was accepted");
        }
    }
}
