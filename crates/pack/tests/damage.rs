//! Interruptions cost no more than a chunk, and damage is named and repaired.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::{families, smollm2};
use turbospark_pack::{Checked, Event, PackError, PackOptions, export, pack, verify};
use weights::DType;
use weights::gturbo::{CHUNK_BYTES, GturboFile, Manifest, RESIDENT, Verify};

fn golden(model: &str, file: &str) -> PathBuf {
    families().into_iter().find(|g| (g.model, g.file) == (model, file)).expect("a golden model").path()
}

fn check(folder: &Path, repair: Option<&Path>) -> Result<Checked, PackError> {
    verify(folder, repair, &PackOptions::default(), &mut |_| {})
}

/// Packs until `stop` says so of the bytes done; gives the bytes an earlier run had written, or nothing if stopped.
fn pack_until(source: &Path, out: &Path, mut stop: impl FnMut(u64) -> bool) -> Option<u64> {
    let cancel = Arc::new(AtomicBool::new(false));
    let options = PackOptions {
        keep: vec!["token_embd.weight=q8_0".parse().expect("a choice")],
        requantize: true,
        cancel: cancel.clone(),
        ..PackOptions::default()
    };
    let packed = pack(source, out, &options, &mut |event| {
        if let Event::Bytes { done } = event {
            cancel.store(stop(done), Ordering::Relaxed);
        }
    });
    match packed {
        Ok(packed) => Some(packed.resumed),
        Err(PackError::Cancelled { path }) if path == out => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_stopped_job_goes_on_and_ends_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, whole, out) = (smollm2(), folder.path().join("whole.gturbo"), folder.path().join("out.gturbo"));
    assert_eq!(pack_until(&source, &whole, |_| false), Some(0));
    let partial = folder.path().join("out.gturbo.partial");
    assert_eq!(pack_until(&source, &out, |done| done >= 3 * CHUNK_BYTES), None);
    assert!(!out.exists() && !partial.join("manifest.json").exists());
    assert!(GturboFile::open(&partial, Verify::Size).is_err(), "half a model");
    // What was written is taken as far as it still has its hash: the third chunk is damaged here.
    let growing = partial.join(RESIDENT);
    let mut bytes = fs::read(&growing).expect("a growing file");
    assert_eq!(bytes.len() as u64, 3 * CHUNK_BYTES);
    bytes[2 * CHUNK_BYTES as usize + 77] ^= 1;
    fs::write(&growing, bytes).expect("written");
    // A line that was cut off is no line.
    let mut journal = fs::read(partial.join("journal")).expect("a journal");
    journal.extend(b"3 0123");
    fs::write(partial.join("journal"), journal).expect("written");
    assert_eq!(pack_until(&source, &out, |done| done >= 9 * CHUNK_BYTES), None);
    let text = fs::read_to_string(partial.join("journal")).expect("a journal");
    assert!(text.lines().count() >= 9, "{text}");
    let resumed = pack_until(&source, &out, |_| false).expect("to the end");
    assert!(resumed >= 8 * CHUNK_BYTES, "{resumed}");
    assert_eq!(Manifest::read(&out).expect("a manifest"), Manifest::read(&whole).expect("a manifest"));
    assert_eq!(check(&out, None).expect("is checked").damaged, []);
    assert!(!partial.exists());
    // Another job at the same place begins anew.
    let other = folder.path().join("other.gguf");
    let options = PackOptions { available_bytes: Some(0), ..PackOptions::default() };
    assert!(matches!(export(&source, &other, &options, &mut |_| {}), Err(PackError::NotEnoughSpace { .. })));
    let packed = export(&source, &other, &PackOptions::default(), &mut |_| {}).expect("exports");
    assert_eq!(packed.resumed, 0);
    let same = weights::gguf::GgufFile::open(&other).expect("opens");
    assert!(
        same.weights()
            .iter()
            .zip(weights::gguf::GgufFile::open(&source).expect("opens").weights().iter())
            .all(|(a, b)| a.bytes() == b.bytes())
    );
}

#[test]
fn one_process_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.gturbo");
    let partial = folder.path().join("out.gturbo.partial");
    fs::create_dir(&partial).expect("a folder");
    let held = fs::File::create(partial.join("journal")).expect("a journal");
    held.lock().expect("locked");
    let busy = pack(&golden("llama", "model.safetensors"), &out, &PackOptions::default(), &mut |_| {});
    assert!(matches!(busy, Err(PackError::Busy { .. })), "{busy:?}");
    drop(held);
    // Whatever lies there that is not of this job goes.
    fs::write(partial.join("journal"), b"\xff\xfe nonsense").expect("written");
    fs::write(partial.join("stray.bin"), b"x").expect("written");
    pack(&golden("llama", "model.safetensors"), &out, &PackOptions::default(), &mut |_| {}).expect("packs");
    assert!(!out.join("stray.bin").exists() && !out.join("journal").exists());
}

#[test]
fn damage_is_named_and_repaired() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = golden("qwen3_moe", "model.safetensors");
    let out = folder.path().join("a.gturbo");
    let options = PackOptions { quantize: Some(DType::Q5_0), ..PackOptions::default() };
    pack(&source, &out, &options, &mut |_| {}).expect("packs");
    let before = Manifest::read(&out).expect("a manifest");
    let experts = before.experts[1].file.clone();
    let flip = |name: &str, at: usize| {
        let mut bytes = fs::read(out.join(name)).expect("a file");
        bytes[at] ^= 0x40;
        fs::write(out.join(name), bytes).expect("written");
    };
    type Harm<'a> = (&'a str, &'a str, &'a dyn Fn());
    let harms: [Harm<'_>; 6] = [
        (RESIDENT, "other bytes", &|| flip(RESIDENT, 5000)),
        (&experts, "other bytes", &|| flip(&experts, 100)),
        ("tokenizer.json", "other bytes", &|| flip("tokenizer.json", 10)),
        (&experts, "missing", &|| fs::remove_file(out.join(&experts)).expect("removed")),
        (RESIDENT, "bytes there", &|| {
            let file = fs::File::options().write(true).open(out.join(RESIDENT)).expect("a file");
            file.set_len(1000).expect("cut");
        }),
        (RESIDENT, "bytes there", &|| {
            let longer = [fs::read(out.join(RESIDENT)).expect("a file"), vec![0; 9]].concat();
            fs::write(out.join(RESIDENT), longer).expect("written");
        }),
    ];
    for (file, why, harm) in harms.into_iter().filter(|(file, ..)| before.files.contains_key(*file)) {
        harm();
        let found = check(&out, None).expect("is checked");
        assert!(!found.repaired && found.damaged.len() == 1, "{found:?}");
        assert!(found.damaged[0].file == file && found.damaged[0].why.contains(why), "{found:?}");
        assert_eq!(
            found.damaged[0].tensors.is_empty(),
            file == "tokenizer.json" || why == "bytes there" && found.damaged[0].bytes.start > 1000,
            "{found:?}"
        );
        let refused = GturboFile::open(&out, Verify::Full).expect_err("is damaged").to_string();
        assert!(refused.contains(file) && refused.contains("--repair"), "{refused}");
        assert_eq!(GturboFile::open(&out, Verify::Size).is_ok(), why == "other bytes");
        let other = check(&out, Some(&golden("mixtral", "model.safetensors")));
        assert!(matches!(other, Err(PackError::OtherSource { .. })), "{other:?}");
        let mended = check(&out, Some(&source)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(mended.repaired, "{mended:?}");
        assert_eq!(check(&out, None).expect("is checked").damaged, []);
    }
    assert_eq!(Manifest::read(&out).expect("a manifest"), before);
}
