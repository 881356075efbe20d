//! A model to a `.gturbo` folder.

use crate::choose::choose;
use crate::content::Content;
use crate::layout::{self, contents, sides};
use crate::write::Partial;
use crate::{Event, PackError, PackOptions, Packed};
use runtime::ModelFiles;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::UNIX_EPOCH;
use weights::gturbo::{FileEntry, Manifest, Quantisation};

/// Packs the model at `source` (whatever [`ModelFiles::open`] takes) as the folder `out`, which must not exist yet.
///
/// Until everything is written and synced, it grows in `OUT.partial`; the same call goes on there after an interruption.
pub fn pack(
    source: &Path,
    out: &Path,
    options: &PackOptions,
    events: &mut dyn FnMut(Event),
) -> Result<Packed, PackError> {
    let files = ModelFiles::open(source)?;
    let program = plan::lower(&files.spec, &files.index)?;
    let choice = choose(&files, &program, options)?;
    let mut manifest = layout::plan(&files, &program, &choice)?;
    manifest.quantisation = Quantisation {
        matrices: options.quantize.map(|to| to.name().to_owned()),
        experts: options.experts.map(|to| to.name().to_owned()),
        keep: options.keep.iter().map(|k| format!("{}={}", k.pattern, k.to.map_or("stored", |t| t.name()))).collect(),
        importance: options.importance.is_some(),
    };
    let mut all = contents(&manifest, &files, options.importance.as_ref())?;
    all.extend(sides(&files)?);
    manifest.files = all.iter().map(|(name, content)| (name.clone(), unhashed(content))).collect();
    let identity = identity(&files, &manifest.to_json(), options);
    let total = all.values().map(|content| content.bytes).sum();
    let mut partial = Partial::open(out, &identity, options, events)?;
    partial.begin(total)?;
    for (name, content) in &all {
        let entry = partial.write(name, content)?;
        manifest.files.insert(name.clone(), entry);
    }
    let types = types(&manifest);
    let resumed = partial.publish_folder(&manifest)?;
    Ok(Packed { path: out.to_owned(), bytes: total, resumed, types, notes: choice.notes })
}

fn unhashed(content: &Content) -> FileEntry {
    FileEntry { bytes: content.bytes, ..FileEntry::default() }
}

fn types(manifest: &Manifest) -> Vec<(&'static str, usize)> {
    let mut types = BTreeMap::new();
    for dtype in manifest.tensors.values().filter_map(|entry| entry.dtype()) {
        *types.entry(dtype.name()).or_insert(0) += 1;
    }
    types.into_iter().collect()
}

/// What must be the same for an interrupted job to be gone on with: the result's plan and the source's files.
pub(crate) fn identity(files: &ModelFiles, plan: &[u8], options: &PackOptions) -> Vec<u8> {
    let mut text = String::from_utf8_lossy(plan).into_owned();
    let about = |path: &Path| {
        let about = std::fs::metadata(path).ok()?;
        let age = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(format!("{} {} {}\n", path.display(), about.len(), age.as_nanos()))
    };
    let inside = std::fs::read_dir(&files.path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<_> = inside.chain([files.path.clone()]).collect();
    paths.sort();
    text.extend(paths.iter().filter_map(|path| about(path)));
    text.push_str(&format!("{:?}", options.importance));
    text.into_bytes()
}
