//! What a user may type, and how the store answers.

use std::path::PathBuf;

use turbospark_hub::{HfRef, HubError, ModelRef, Store, catalogue_entry};

fn hf(revision: Option<&str>, file: Option<&str>) -> ModelRef {
    ModelRef::Hf(HfRef {
        owner: "owner".to_owned(),
        repo: "repo".to_owned(),
        revision: revision.map(str::to_owned),
        file: file.map(str::to_owned),
    })
}

#[test]
fn references_are_read() {
    let path = |text: &str| ModelRef::Path(PathBuf::from(text));
    for (text, expected) in [
        ("smollm2", ModelRef::Alias("smollm2".to_owned())),
        ("qwen2.5-coder", ModelRef::Alias("qwen2.5-coder".to_owned())),
        ("./x", path("./x")),
        ("x.gguf", path("x.gguf")),
        ("X.GGUF", path("X.GGUF")),
        ("folder/x", path("folder/x")),
        ("C:\\models\\x", path("C:\\models\\x")),
        ("hf:owner/repo", hf(None, None)),
        ("hf:owner/repo@v1", hf(Some("v1"), None)),
        ("hf:owner/repo@refs%2Fpr%2F1/a/b.gguf", hf(Some("refs/pr/1"), Some("a/b.gguf"))),
        ("hf:owner/repo/b.gguf", hf(None, Some("b.gguf"))),
    ] {
        let found = ModelRef::parse(text).unwrap();
        assert_eq!(found, expected, "{text}");
        assert_eq!(found.to_string(), text);
    }
}

#[test]
fn d56_references_that_must_not_become_paths_are_refused() {
    for text in [
        "",
        "hf:",
        "hf:owner",
        "hf:owner/",
        "hf:/repo",
        "hf:../repo",
        "hf:owner/..",
        "hf:owner/repo@",
        "hf:owner/repo@../x",
        "hf:owner/repo@%2F..%2Fx",
        "hf:owner/repo/../x",
        "hf:owner/repo//x",
        "hf:owner/repo/%2e%2e/x",
        "hf:owner/repo/a\0b",
        "hf:owner/repo/C:\\x",
        "hf:owner/repo/",
        "a:b",
        "a?b",
    ] {
        assert!(ModelRef::parse(text).is_err(), "{text:?} was accepted");
    }
}

#[cfg(unix)]
#[test]
fn d58_a_path_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff");
    assert_eq!(ModelRef::parse(odd).unwrap(), ModelRef::Path(odd.into()));
}

#[test]
fn what_is_not_there_is_explained() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::new(home.path().join("new"));
    assert!(store.list().is_empty() && !store.home().exists());
    let resolve = |text: &str| store.resolve(&ModelRef::parse(text).unwrap()).unwrap_err();
    let error = resolve("smollm2");
    assert!(error.to_string().ends_with("fetch it with: turbospark pull smollm2"), "{error}");
    assert!(matches!(resolve("hf:owner/repo"), HubError::NotInstalled { .. }));
    assert!(matches!(resolve("./missing.gguf"), HubError::NoSuchPath { .. }));
    let error = resolve("smollm").to_string();
    assert!(error.contains("Did you mean smollm2?") && error.contains("Known: smollm2"), "{error}");
    assert_eq!(catalogue_entry("smollm2").unwrap().licence, "Apache-2.0");
}
