//! Names from outside that become paths or digests.

use crate::error::HubError;

/// Windows opens a device for these, whatever the extension.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];

/// Accepts one plain path component on every system.
pub(crate) fn check_component(what: &'static str, name: &str) -> Result<(), HubError> {
    let refuse = |why| Err(HubError::UnsafeName { what, name: name.to_owned(), why });
    let stem = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let numbered = stem.len() == 4
        && (stem.starts_with("com") || stem.starts_with("lpt"))
        && stem.ends_with(|c: char| c.is_ascii_digit());
    if name.is_empty() {
        refuse("it is empty")
    } else if name.starts_with('.') {
        refuse("it starts with a dot")
    } else if name.ends_with(['.', ' ']) {
        refuse("it ends with a dot or a space")
    } else if name.contains(['/', '\\']) {
        refuse("it contains a path separator")
    } else if name.contains(['<', '>', ':', '"', '|', '?', '*']) {
        refuse("it contains a character reserved in file names, such as a drive letter's colon")
    } else if name.contains('%') {
        refuse("it contains a percent sign, which can hide a separator or dots")
    } else if name.chars().any(char::is_control) {
        refuse("it contains a control character")
    } else if numbered || DEVICES.contains(&stem.as_str()) {
        refuse("it names a device")
    } else if name.len() > 200 {
        refuse("it is longer than 200 bytes")
    } else {
        Ok(())
    }
}

/// Accepts a relative path of plain components separated by `/`.
pub(crate) fn check_relative(what: &'static str, name: &str) -> Result<(), HubError> {
    for component in name.split('/') {
        check_component(what, component).map_err(|error| match error {
            HubError::UnsafeName { why, .. } => HubError::UnsafeName { what, name: name.to_owned(), why },
            other => other,
        })?;
    }
    Ok(())
}

/// Accepts a SHA-256 as 64 lower-case hexadecimal digits, after an optional `sha256:` or
/// `sha256-`, and gives the digits.
pub(crate) fn check_sha256<'a>(what: &'static str, digest: &'a str) -> Result<&'a str, HubError> {
    let digits = digest.strip_prefix("sha256:").or_else(|| digest.strip_prefix("sha256-")).unwrap_or(digest);
    if digits.len() == 64 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(digits);
    }
    Err(HubError::UnsafeName { what, name: digest.to_owned(), why: "a SHA-256 has 64 lower-case hexadecimal digits" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d56_hostile_names_are_refused() {
        let hostile = [
            "",
            ".",
            "..",
            "../a",
            "/a",
            "a/../../b",
            "a//b",
            "a/",
            "C:\\a",
            "C:a",
            "a\\b",
            "a\0b",
            "%2e%2e/a",
            "a%2fb",
            "a\nb",
            "nul",
            "NUL.gguf",
            "com1.json",
            "a.",
            "a ",
            ".git/config",
            "//server/share",
            "a/./b",
            "~/..",
        ];
        for name in hostile {
            assert!(check_relative("file name", name).is_err(), "{name:?} was accepted");
        }
        for name in ["model.gguf", "a/b/c-00001-of-00002.safetensors", "größe 张 🙂.gguf", "common.x"] {
            assert!(check_relative("file name", name).is_ok(), "{name:?} was refused");
        }
        assert!(check_component("alias", "a/b").is_err());
        assert!(check_component("alias", &"a".repeat(201)).is_err());
    }

    #[test]
    fn d56_digests_have_64_digits() {
        let good = "0123456789abcdef".repeat(4);
        for text in [good.clone(), format!("sha256:{good}"), format!("sha256-{good}")] {
            assert_eq!(check_sha256("digest", &text).unwrap(), good);
        }
        let upper = good.to_uppercase();
        for text in ["", "sha256:../../x", &good[1..], &upper, &format!("md5:{good}"), &format!("{good}0")] {
            assert!(check_sha256("digest", text).is_err(), "{text:?} was accepted");
        }
    }
}
