//! Models under the home folder, without fetching any.

use crate::support::Desk;
use serde_json::json;
use testkit::golden;

/// Installs a golden model as if it had been pulled.
fn install(desk: &Desk, alias: &str) {
    let folder = desk.path().join("home/models").join(alias);
    std::fs::create_dir_all(&folder).expect("made");
    let bytes = std::fs::copy(golden("llama").join("model.gguf"), folder.join("tiny.gguf")).expect("copied");
    let receipt = json!({
        "alias": alias, "source": "test", "licence": "MIT", "date": "2026-01-31T12:00:00Z", "bytes": bytes,
        "files": [{"name": "tiny.gguf", "bytes": bytes}],
    });
    std::fs::write(folder.join("model.json"), receipt.to_string()).expect("written");
}

#[test]
fn list_path_use_and_remove() {
    let desk = Desk::new();
    let before = desk.run(&["list"]).success();
    assert!(before.contains("smollm2") && before.contains("not pulled"), "{before}");
    install(&desk, "tiny");
    let list = desk.run(&["list"]).success();
    assert!(list.lines().any(|l| l.starts_with("tiny ") && l.contains("MIT") && l.contains("tiny.gguf")), "{list}");
    let path = desk.run(&["path", "tiny"]).success();
    assert!(path.ends_with("home/models/tiny/tiny.gguf\n"), "{path}");
    assert_eq!(desk.run(&["path", "--model", "tiny"]).success(), path);
    desk.run(&["complete", "tiny", "--prompt", "the", "--max-new", "1"]).success();
    desk.run(&["run", "tiny", "hi"]).fails(1, &["no chat template"]);
    let removed = desk.run(&["rm", "tiny"]);
    assert_eq!((removed.code, removed.out.as_str(), removed.err.as_str()), (Some(0), "", "removed tiny\n"));
    desk.run(&["path", "tiny"]).fails(1, &["tiny"]);
}

#[test]
fn the_home_is_where_the_flag_or_the_variable_says() {
    let desk = Desk::new();
    install(&desk, "tiny");
    desk.run(&["path", "tiny", "--home", "elsewhere"]).fails(1, &["tiny"]);
    let mut command = desk.turbospark();
    command.env_remove("TURBOSPARK_HOME").env("HOME", desk.path()).args(["list"]);
    let out = String::from_utf8(command.output().expect("it runs").stdout).expect("UTF-8");
    assert!(!out.contains("tiny"), "{out}");
    assert!(desk.run(&["list", "--home", "home"]).success().contains("tiny"));
}

#[test]
fn version_and_completions() {
    let desk = Desk::new();
    let version = desk.run(&["--version"]).success();
    assert_eq!(version, concat!("turbospark ", env!("CARGO_PKG_VERSION"), "\n"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(desk.run(&["completions", shell]).success().contains("perplexity"), "{shell}");
    }
}

#[test]
fn a_file_of_an_alias_shape_is_found_where_no_alias_is() {
    let desk = Desk::new();
    let folder = desk.path().join("mymodel");
    std::fs::create_dir(&folder).expect("made");
    std::fs::copy(golden("llama").join("model.gguf"), folder.join("model.gguf")).expect("copied");
    desk.run(&["complete", "mymodel", "--prompt", "the", "--max-new", "1"]).success();
}
