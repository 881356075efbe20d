//! Every environment variable this program reads.

use std::env;
use std::path::PathBuf;

/// The folder of models and history: `TURBOSPARK_HOME`, else `.turbospark` in the user's home.
pub(crate) fn home() -> Option<PathBuf> {
    path("TURBOSPARK_HOME").or_else(|| Some(env::home_dir()?.join(".turbospark")))
}

/// Whether control codes may be used: `NO_COLOR` is absent or empty and `TERM` is not `dumb`.
pub(crate) fn colour_allowed() -> bool {
    env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) && env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// How the Hugging Face hub is reached: `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_CACHE`, `HF_HOME` and the proxy variables.
#[cfg(feature = "hf")]
pub(crate) fn hf_options() -> hub::HfOptions {
    let default = hub::HfOptions::default();
    let cache = path("HF_HUB_CACHE").or_else(|| {
        let home = path("HF_HOME").or_else(|| Some(env::home_dir()?.join(".cache").join("huggingface")))?;
        Some(home.join("hub"))
    });
    let endpoint = text("HF_ENDPOINT").unwrap_or(default.endpoint);
    hub::HfOptions { token: text("HF_TOKEN"), proxy: proxy(&endpoint), cache, endpoint, ..default }
}

/// The proxy for an address, unless `NO_PROXY` names its host or a domain above it.
#[cfg(feature = "hf")]
fn proxy(endpoint: &str) -> Option<String> {
    let either = |name: &str| text(name).or_else(|| text(&name.to_ascii_lowercase()));
    let (scheme, rest) = endpoint.split_once("://")?;
    let host = rest.split(['/', ':']).next()?;
    let direct = either("NO_PROXY").unwrap_or_default();
    let named = |name: &str| {
        let name = name.trim().trim_start_matches('.');
        name == "*" || (!name.is_empty() && (host == name || host.ends_with(&format!(".{name}"))))
    };
    if direct.split(',').any(named) {
        return None;
    }
    // Servers set HTTP_PROXY from a request's header, so only the lower-case form counts.
    let own = if scheme == "https" { either("HTTPS_PROXY") } else { text("http_proxy") };
    own.or_else(|| either("ALL_PROXY"))
}

fn path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

#[cfg(feature = "hf")]
fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|v| !v.is_empty())
}
