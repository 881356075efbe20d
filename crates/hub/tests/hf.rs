//! Pulling from a hub that is a server on this machine.
#![cfg(feature = "hf")]

mod support;

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use support::server::{Request, Response, Server};
use support::{assert_monotone, content, files, quick, sha256};
use tempfile::TempDir;
use turbospark_hub::{Event, HfOptions, HfRef, HubError, Installed, ModelRef, PullOptions, Store, pull_hf};

const CHUNK: usize = 1000;
const LENGTH: usize = 9_500;
const PATH: &str = "/owner/repo/resolve/";

fn commit() -> String {
    "0123456789abcdef0123456789abcdef01234567".to_owned()
}

/// A listing of files with their content; those that end in `.json` are not in LFS.
fn listing(files: &[(&str, &[u8])]) -> Response {
    let siblings: Vec<_> = files
        .iter()
        .map(|(name, bytes)| {
            let lfs = serde_json::json!({ "sha256": sha256(bytes), "size": bytes.len() });
            match name.ends_with(".json") {
                true => serde_json::json!({ "rfilename": name, "size": bytes.len() }),
                false => serde_json::json!({ "rfilename": name, "size": bytes.len(), "lfs": lfs }),
            }
        })
        .collect();
    let body = serde_json::json!({
        "sha": commit(), "siblings": siblings, "tags": ["gguf", "license:apache-2.0"],
    });
    Response::new(200, body.to_string())
}

/// Serves a range if one is asked for and its validator holds.
fn serve(request: &Request, bytes: &[u8], etag: &str) -> Response {
    let current = request.headers.get("if-range").is_none_or(|validator| validator == etag);
    let response = match request.range().filter(|_| current) {
        Some((first, last)) => Response::new(206, &bytes[first..=last])
            .with("Content-Range", format!("bytes {first}-{last}/{}", bytes.len())),
        None => Response::new(200, bytes),
    };
    response.with("ETag", etag)
}

/// A hub with one model whose file is answered by `file`.
fn hub(file: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Server {
    Server::start(move |request| match request.path.starts_with("/api/") {
        true => listing(&[("m.gguf", &content(LENGTH))]),
        false => file(request),
    })
}

struct Bench {
    folder: TempDir,
    store: Store,
    options: PullOptions,
    hf: HfOptions,
}

impl Bench {
    fn new(endpoint: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().join("größe 张 модель 🙂/a b"));
        let hf =
            HfOptions { endpoint, chunk_bytes: CHUNK as u64, timeout: Duration::from_secs(20), ..HfOptions::default() };
        Self { folder, store, options: quick(), hf }
    }

    fn pull(&self, reference: &str) -> (Result<Installed, HubError>, Vec<Event>) {
        let mut events = Vec::new();
        let reference = reference_of(reference);
        let result = pull_hf(&self.store, &reference, &self.options, &self.hf, &mut |e| events.push(e));
        assert_monotone(&events);
        (result, events)
    }

    fn pull_good(&self) -> Installed {
        let installed = self.pull("hf:owner/repo").0.unwrap();
        assert_eq!(fs::read(&installed.path).unwrap(), content(LENGTH));
        installed
    }

    fn partial(&self) -> PathBuf {
        self.store.models_dir().join("owner--repo--m/.partial/m.gguf")
    }

    fn assert_not_installed(&self) {
        assert!(self.store.list().is_empty());
        assert!(!self.store.models_dir().join("owner--repo--m/m.gguf").exists());
    }
}

fn reference_of(text: &str) -> HfRef {
    match ModelRef::parse(text).unwrap() {
        ModelRef::Hf(reference) => reference,
        other => panic!("{other:?}"),
    }
}

/// The byte ranges of the GETs of the file; `None` asks for all of it.
fn ranges(server: &Server) -> Vec<Option<(usize, usize)>> {
    let requests = server.requests();
    let gets = requests.iter().filter(|r| r.method == "GET" && r.path.starts_with(PATH));
    gets.map(Request::range).collect()
}

#[test]
fn the_token_stays_with_the_hub_when_it_redirects() {
    let store = Server::start(|request| serve(request, &content(LENGTH), "\"cdn\""));
    let location = format!("{}/blob?signature=secret", store.url());
    let server = hub(move |_| {
        Response::new(302, "moved")
            .with("Location", location.clone())
            .with("X-Linked-Etag", format!("\"{}\"", sha256(&content(LENGTH))))
            .with("X-Linked-Size", LENGTH.to_string())
            .with("X-Repo-Commit", commit())
    });
    let mut bench = Bench::new(server.url());
    bench.hf.token = Some("secret token".to_owned());
    let installed = bench.pull_good();
    assert_eq!(installed.alias, "owner--repo--m");
    assert_eq!(installed.licence, "apache-2.0");
    assert_eq!(installed.source, format!("hf:owner/repo@{}/m.gguf", commit()));
    assert_eq!(installed.sha256, Some(sha256(&content(LENGTH))));
    let sent = |r: &Request| r.headers.get("authorization").cloned();
    assert!(server.requests().iter().all(|r| sent(r).as_deref() == Some("Bearer secret token")));
    assert!(!store.requests().is_empty() && store.requests().iter().all(|r| sent(r).is_none()));
    assert!(!format!("{:?}", bench.hf).contains("secret"));

    for text in ["hf:owner/repo", "hf:owner/repo/m.gguf"] {
        let reference = ModelRef::parse(text).unwrap();
        assert_eq!(bench.store.resolve(&reference).unwrap(), installed.path);
    }
    let before = store.requests().len();
    assert_eq!(bench.pull("hf:owner/repo").1, [Event::Done]);
    assert_eq!(store.requests().len(), before);
}

#[test]
fn d59_a_cut_connection_is_resumed_behind_the_last_chunk() {
    let count = AtomicUsize::new(0);
    let server = hub(move |request| {
        let mut response = serve(request, &content(LENGTH), "\"v1\"");
        if request.method == "GET" && count.fetch_add(1, Ordering::SeqCst) == 0 {
            response.cut = Some(3_400);
        }
        response
    });
    Bench::new(server.url()).pull_good();
    assert_eq!(ranges(&server), [None, Some((3_000, LENGTH - 1))]);
    let requests = server.requests();
    assert_eq!(requests.last().unwrap().headers["if-range"], "\"v1\"");
}

#[test]
fn d59_only_a_chunk_that_changed_on_disk_is_fetched_again() {
    let count = AtomicUsize::new(0);
    let server = hub(move |request| {
        let mut response = serve(request, &content(LENGTH), "\"v1\"");
        if request.method == "GET" && count.fetch_add(1, Ordering::SeqCst) == 0 {
            response.cut = Some(8_200);
        }
        response
    });
    let mut bench = Bench::new(server.url());
    // A process that ends after its first attempt: a reset sets the flag between two attempts.
    bench.options.backoff = Vec::new();
    let cancel = bench.options.cancel.clone();
    let reference = reference_of("hf:owner/repo");
    let interrupted = pull_hf(&bench.store, &reference, &bench.options, &bench.hf, &mut |event| {
        if let Event::Bytes { done: 8_000.., .. } = event {
            cancel.store(true, Ordering::Relaxed);
        }
    });
    assert!(matches!(interrupted, Err(HubError::Cancelled)));
    bench.assert_not_installed();

    let mut bytes = fs::read(bench.partial()).unwrap();
    bytes[3_500] ^= 1;
    fs::write(bench.partial(), bytes).unwrap();
    bench.options.cancel.store(false, Ordering::Relaxed);
    bench.pull_good();
    let asked = ranges(&server);
    assert_eq!(asked[..2], [None, Some((3_000, 3_999))]);
    assert!(asked.len() == 3 && asked[2].unwrap().0 >= 7_000, "{asked:?}");
    let folder = bench.store.models_dir().join("owner--repo--m");
    assert_eq!(files(&folder), ["m.gguf", "model.json"].map(PathBuf::from));
}

#[test]
fn d59_a_server_without_ranges_sends_all_again() {
    let count = AtomicUsize::new(0);
    let server = hub(move |request| {
        let mut response = Response::new(200, content(LENGTH));
        if request.method == "GET" && count.fetch_add(1, Ordering::SeqCst) == 0 {
            response.cut = Some(2_500);
        }
        response
    });
    Bench::new(server.url()).pull_good();
    assert_eq!(ranges(&server), [None, Some((2_000, LENGTH - 1))]);
}

#[test]
fn d59_bytes_that_arrive_wrong_are_fetched_once_more_and_then_refused() {
    for bad_answers in [1, usize::MAX] {
        let count = AtomicUsize::new(0);
        let server = hub(move |request| {
            let mut bytes = content(LENGTH);
            let get = request.method == "GET";
            if get && count.fetch_add(1, Ordering::SeqCst) < bad_answers {
                bytes[3_500] ^= 1;
            }
            serve(request, &bytes, "\"v1\"")
        });
        let bench = Bench::new(server.url());
        if bad_answers == 1 {
            bench.pull_good();
        } else {
            let error = bench.pull("hf:owner/repo").0.unwrap_err();
            assert!(matches!(error, HubError::WrongDigest { .. }), "{error}");
            bench.assert_not_installed();
            assert!(!bench.partial().exists());
        }
        assert_eq!(ranges(&server), [None, None]);
    }
}

#[test]
fn d59_an_empty_or_short_answer_is_a_wrong_length() {
    for length in [0, 4_000, LENGTH + 1] {
        let server = hub(move |request| match request.method.as_str() {
            "HEAD" => Response::new(200, content(LENGTH)),
            _ => Response::new(200, content(length)),
        });
        let bench = Bench::new(server.url());
        let error = bench.pull("hf:owner/repo").0.unwrap_err();
        let HubError::WrongLength { expected, found, .. } = error else { panic!("{error}") };
        assert_eq!((expected, found), (LENGTH as u64, length as u64));
        assert_eq!(ranges(&server).len(), 4);
        bench.assert_not_installed();
    }
}

#[test]
fn d59_a_validator_that_changes_midway_starts_over() {
    for same_content in [true, false] {
        let count = AtomicUsize::new(0);
        let server = hub(move |request| {
            let first = request.method == "HEAD" || count.fetch_add(1, Ordering::SeqCst) == 0;
            let mut bytes = content(LENGTH);
            if !first && !same_content {
                bytes[0] ^= 1;
            }
            let mut response = serve(request, &bytes, if first { "\"v1\"" } else { "\"v2\"" });
            response.cut = first.then_some(5_000);
            response
        });
        let bench = Bench::new(server.url());
        if same_content {
            bench.pull_good();
        } else {
            let error = bench.pull("hf:owner/repo").0.unwrap_err();
            assert!(matches!(error, HubError::WrongDigest { .. }), "{error}");
            bench.assert_not_installed();
        }
    }
    // A file the hub itself announces differently than it lists.
    let server = hub(|_| {
        Response::new(302, "")
            .with("Location", "http://127.0.0.1:9/x")
            .with("X-Linked-Etag", format!("\"{}\"", "0".repeat(64)))
    });
    let error = Bench::new(server.url()).pull("hf:owner/repo").0.unwrap_err();
    assert!(matches!(error, HubError::RemoteChanged { .. }), "{error}");
}

#[test]
fn d59_two_pulls_at_once_fetch_once() {
    let server = hub(|request| {
        std::thread::sleep(Duration::from_millis(50));
        serve(request, &content(LENGTH), "\"v1\"")
    });
    let bench = Bench::new(server.url());
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..2).map(|_| scope.spawn(|| bench.pull_good())).collect();
        pulls.into_iter().for_each(|pull| drop(pull.join().unwrap()));
    });
    assert_eq!(ranges(&server), [None]);
}

#[test]
fn d59_a_disk_without_room_is_not_written_to() {
    let server = hub(|request| serve(request, &content(LENGTH), "\"v1\""));
    let mut bench = Bench::new(server.url());
    bench.options.available_bytes = Some(5_000);
    let error = bench.pull("hf:owner/repo").0.unwrap_err();
    assert!(matches!(error, HubError::NotEnoughSpace { .. }), "{error}");
    assert_eq!(ranges(&server), []);
    bench.assert_not_installed();
}

#[test]
fn safetensors_come_with_their_companions() {
    let all: Vec<(&str, Vec<u8>)> = vec![
        (".gitattributes", content(10)),
        ("config.json", content(700)),
        ("model-00001-of-00002.safetensors", content(2_000)),
        ("model-00002-of-00002.safetensors", content(1_500)),
        ("README.md", content(40)),
        ("tokenizer.json", content(1_100)),
    ];
    let served = all.clone();
    let server = Server::start(move |request| {
        let listed: Vec<_> = served.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
        if request.path.starts_with("/api/models/owner/repo/revision/v1%2Fx?") {
            return listing(&listed);
        }
        let name = request.path.rsplit('/').next().unwrap();
        match served.iter().find(|(known, _)| *known == name) {
            Some((_, bytes)) => serve(request, bytes, "\"v1\""),
            None => Response::new(404, ""),
        }
    });
    let bench = Bench::new(server.url());
    let (installed, events) = bench.pull("hf:owner/repo@v1%2Fx");
    let installed = installed.unwrap();
    assert_eq!(installed.path, bench.store.models_dir().join("owner--repo@v1-x"));
    assert_eq!(installed.bytes, 5_300);
    assert!(events.contains(&Event::Bytes { done: 5_300, total: Some(5_300) }));
    for (name, bytes) in &all {
        let path = installed.path.join(name);
        match *name {
            ".gitattributes" | "README.md" => assert!(!path.exists()),
            _ => assert_eq!(fs::read(path).unwrap(), *bytes),
        }
    }
    let reference = ModelRef::parse("hf:owner/repo@v1%2Fx").unwrap();
    assert_eq!(bench.store.resolve(&reference).unwrap(), installed.path);
}

#[test]
fn a_file_in_the_cache_of_other_programs_is_reused() {
    let server = hub(|_| Response::new(500, ""));
    let mut bench = Bench::new(server.url());
    let cache = bench.folder.path().join("cache");
    let snapshot = cache.join("models--owner--repo/snapshots").join(commit());
    fs::create_dir_all(&snapshot).unwrap();
    fs::write(snapshot.join("m.gguf"), content(LENGTH)).unwrap();
    bench.hf.cache = Some(cache);
    bench.pull_good();
    assert_eq!(ranges(&server), []);
}

#[test]
fn refusals_of_the_hub_say_what_to_do() {
    for (status, hint, requests) in [(401, "token", 1), (404, "no such", 1), (503, "later", 4)] {
        let server = Server::start(move |_| Response::new(status, ""));
        let bench = Bench::new(server.url());
        let error = bench.pull("hf:owner/repo").0.unwrap_err();
        assert!(matches!(error, HubError::HttpStatus { .. }), "{error}");
        assert!(error.to_string().contains(hint), "{error}");
        assert_eq!(server.requests().len(), requests);
    }
    let server = Server::start(|_| listing(&[("a.gguf", b"a"), ("b.gguf", b"b")]));
    let error = Bench::new(server.url()).pull("hf:owner/repo").0.unwrap_err().to_string();
    assert!(error.contains("hf:owner/repo/FILE: a.gguf (1 bytes), b.gguf"), "{error}");
}

#[test]
fn d56_hostile_listings_create_nothing() {
    for name in ["../a.gguf", "/a.gguf", "a/../../b.gguf", "C:\\a.gguf", "a\0b.gguf", "%2e%2e/a.gguf"] {
        let server = Server::start(move |_| listing(&[(name, b"x")]));
        let bench = Bench::new(server.url());
        let error = bench.pull("hf:owner/repo").0.unwrap_err();
        assert!(matches!(error, HubError::UnsafeName { .. }), "{error}");
        assert!(files(bench.folder.path()).is_empty());
    }
}

#[test]
fn a_hub_that_does_not_answer_is_reported_after_the_last_attempt() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let bench = Bench::new(closed.clone());
    let (result, events) = bench.pull("hf:owner/repo");
    let error = result.unwrap_err();
    assert!(matches!(error, HubError::Http { .. }), "{error}");
    assert!(error.to_string().contains(&closed) && error.to_string().contains("connection"));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Retry { .. })).count(), 3);
    for endpoint in ["", "host", "ftp://host"] {
        assert!(Bench::new(endpoint.to_owned()).pull("hf:owner/repo").0.is_err());
    }
}

#[test]
fn redirects_that_lead_nowhere_good_are_refused() {
    static HOPS: Mutex<usize> = Mutex::new(0);
    for location in ["/again", "file:///etc/passwd", "http://user:secret@127.0.0.1/"] {
        let server = hub(move |_| {
            *HOPS.lock().unwrap() += 1;
            Response::new(302, "").with("Location", location)
        });
        let error = Bench::new(server.url()).pull("hf:owner/repo").0.unwrap_err();
        assert!(matches!(error, HubError::BadAnswer { .. }), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    assert!(*HOPS.lock().unwrap() < 20);
}
