//! Which files of a repository make a model.

use super::listing::RemoteFile;
use crate::error::{HubError, Offered};
use crate::model_ref::HfRef;

/// Other files a set of safetensors is used with, by extension.
const COMPANIONS: [&str; 4] = [".json", ".model", ".txt", ".jinja"];

/// The files a reference stands for.
pub(super) fn choose(reference: &HfRef, files: &[RemoteFile]) -> Result<Vec<RemoteFile>, HubError> {
    if let Some(name) = &reference.file {
        let Some(file) = files.iter().find(|file| file.name == *name) else {
            return Err(HubError::FileMissing {
                repository: reference.repository(),
                wanted: name.clone(),
                files: offered(files.iter().filter(|file| is_weights(&file.name))),
            });
        };
        return parts_of(reference, file, files);
    }
    let models: Vec<&RemoteFile> = files
        .iter()
        .filter(|file| is_gguf(&file.name) && !is_projector(&file.name))
        .filter(|file| split(&file.name).is_none_or(|(_, part, _)| part == 1))
        .collect();
    match models.as_slice() {
        [model] => parts_of(reference, model, files),
        [] => safetensors(reference, files),
        several => {
            Err(HubError::SeveralFiles { repository: reference.repository(), files: offered(several.iter().copied()) })
        }
    }
}

/// The file itself, or every part of the split GGUF it belongs to.
fn parts_of(reference: &HfRef, file: &RemoteFile, files: &[RemoteFile]) -> Result<Vec<RemoteFile>, HubError> {
    let Some((stem, _, count)) = split(&file.name) else { return Ok(vec![file.clone()]) };
    (1..=count)
        .map(|part| {
            let name = format!("{stem}-{part:05}-of-{count:05}.gguf");
            files.iter().find(|file| file.name == name).cloned().ok_or_else(|| {
                let parts = files.iter().filter(|file| is_gguf(&file.name));
                let repository = reference.repository();
                HubError::FileMissing { repository, wanted: name, files: offered(parts) }
            })
        })
        .collect()
}

fn safetensors(reference: &HfRef, files: &[RemoteFile]) -> Result<Vec<RemoteFile>, HubError> {
    let at_root = |file: &&RemoteFile| !file.name.contains('/');
    let weights: Vec<&RemoteFile> = files
        .iter()
        .filter(at_root)
        .filter(|file| file.name.ends_with(".safetensors") && !file.name.starts_with("consolidated"))
        .collect();
    if weights.is_empty() || !files.iter().any(|file| file.name == "config.json") {
        return Err(HubError::FileMissing {
            repository: reference.repository(),
            wanted: "GGUF file, nor safetensors with a config.json".to_owned(),
            files: offered(files.iter()),
        });
    }
    let companions =
        files.iter().filter(at_root).filter(|file| COMPANIONS.iter().any(|extension| file.name.ends_with(extension)));
    Ok(weights.into_iter().chain(companions).cloned().collect())
}

/// Stem, part and count of `stem-00001-of-00003.gguf`.
fn split(name: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let five_digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    if !five_digits(part) || !five_digits(count) {
        return None;
    }
    let (part, count) = (part.parse().ok()?, count.parse().ok()?);
    (1..=count).contains(&part).then_some((stem, part, count))
}

fn is_gguf(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(".gguf")
}

/// The vision part of a model, used beside it and not alone.
fn is_projector(name: &str) -> bool {
    name.to_ascii_lowercase().contains("mmproj")
}

fn is_weights(name: &str) -> bool {
    is_gguf(name) || name.ends_with(".safetensors")
}

fn offered<'a>(files: impl Iterator<Item = &'a RemoteFile>) -> Vec<Offered> {
    files.map(|file| Offered { name: file.name.clone(), bytes: file.bytes }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(file: Option<&str>, names: &[&str]) -> Result<Vec<String>, String> {
        let reference =
            HfRef { owner: "o".to_owned(), repo: "r".to_owned(), revision: None, file: file.map(str::to_owned) };
        let files: Vec<_> = names
            .iter()
            .map(|name| RemoteFile { name: (*name).to_owned(), bytes: Some(2_000), sha256: None })
            .collect();
        match choose(&reference, &files) {
            Ok(files) => Ok(files.into_iter().map(|file| file.name).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_only_model_is_taken() {
        let parts = ["q-00001-of-00002.gguf", "q-00002-of-00002.gguf"];
        assert_eq!(choice(None, &["README.md", "a.gguf", "mmproj-a.gguf"]).unwrap(), ["a.gguf"]);
        assert_eq!(choice(None, &parts).unwrap(), parts);
        assert_eq!(choice(Some(parts[1]), &parts).unwrap(), parts);
        let set = ["config.json", "model.safetensors", "tokenizer.json", "x.bin", "onnx/model.safetensors"];
        assert_eq!(choice(None, &set).unwrap(), ["model.safetensors", "config.json", "tokenizer.json"]);
    }

    #[test]
    fn what_cannot_be_chosen_is_listed_with_sizes() {
        let error = choice(None, &["a.gguf", "b.gguf"]).unwrap_err();
        assert!(error.contains("a.gguf (2.0 kB), b.gguf (2.0 kB)"), "{error}");
        let error = choice(Some("c.gguf"), &["a.gguf", "README.md"]).unwrap_err();
        assert!(error.contains("no c.gguf") && error.contains("a.gguf"), "{error}");
        let error = choice(None, &["README.md"]).unwrap_err();
        assert!(error.contains("README.md"), "{error}");
        let error = choice(None, &["q-00001-of-00002.gguf"]).unwrap_err();
        assert!(error.contains("q-00002-of-00002.gguf"), "{error}");
    }
}
