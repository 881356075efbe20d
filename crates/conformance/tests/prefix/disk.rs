//! The tree on disk: the same bits after a restart, and nothing from a file that is not what was written.

use super::{Cached, F32, cold, hybrid, ids, kinds, roomy, same, tiny};
use cpu::CpuDevice;
use foundation::TokenId;
use plan::{Device, Fingerprint, KvType, KvTypes, Limits, PrefixFileError, lower_for};
use std::fs;
use std::path::Path;
use testkit::Model;

/// Nobody minds how large the file is.
const ANY: u64 = u64::MAX;

fn fingerprint(model: &Model, kv: KvTypes) -> Fingerprint {
    let program = lower_for(&CpuDevice::new(Some(2)).caps(), &model.spec, &model.index).expect("lowers");
    Fingerprint::new(b"content of the model", "cpu", &[program], &Limits { kv, ..roomy(16) })
}

/// A tree that knows two prompts, and those prompts.
fn with_two_prompts(model: &Model) -> (Cached, [Vec<TokenId>; 2]) {
    let mut cached = Cached::new(model, roomy(16), u64::MAX);
    let prompts = [ids(51, 150, model), [ids(51, 70, model), ids(52, 33, model)].concat()];
    prompts.iter().for_each(|prompt| drop(cached.ask(prompt)));
    (cached, prompts)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("is there");
    entries.map(|entry| entry.expect("is readable").file_name().into_string().expect("plain")).collect()
}

#[test]
fn a_restarted_tree_reuses_as_much_with_the_same_bits() {
    for (name, model) in kinds().into_iter().chain([("tiny", tiny())]) {
        let folder = tempfile::tempdir().expect("is made");
        let own = fingerprint(&model, F32);
        let (mut before, prompts) = with_two_prompts(&model);
        let saved = before.tree.save(&before.sequences, folder.path(), &own, ANY).expect("is written");
        assert_eq!(
            (saved.states, saved.bytes),
            (before.tree.len(), fs::metadata(&saved.path).expect("is there").len())
        );
        assert_eq!(names(folder.path()).len(), 1, "nothing is left beside it");

        let mut after = Cached::new(&model, roomy(16), u64::MAX);
        let restored = after.tree.restore(&mut after.sequences, folder.path(), &own, ANY);
        assert_eq!((restored.states, restored.note), (saved.states, None), "{name}");
        assert_eq!(after.tree.bytes(), before.tree.bytes());
        for prompt in &prompts {
            let longer = [prompt, ids(53, 9, &model).as_slice()].concat();
            let ((reused, found), (expected, _)) = (after.ask(&longer), before.ask(&longer));
            assert!(reused == expected && reused >= prompt.len(), "{name}: {reused} of {expected}");
            same(&found, &cold(&model, &longer), name);
        }
        after.check_all_is_free_when_cleared();
    }
}

#[test]
fn the_file_stays_within_its_bound_and_keeps_what_was_used_last() {
    let model = hybrid();
    let own = fingerprint(&model, F32);
    let (before, prompts) = with_two_prompts(&model);
    let folder = tempfile::tempdir().expect("is made");
    let whole = before.tree.save(&before.sequences, folder.path(), &own, ANY).expect("is written");
    let mut last = whole.states;
    for limit in [whole.bytes, whole.bytes - 1, whole.bytes / 2, 200, 0] {
        let saved = before.tree.save(&before.sequences, folder.path(), &own, limit).expect("is written");
        assert!(saved.bytes <= limit.max(104 + 24) && saved.states <= last, "{saved:?} in {limit}");
        assert_eq!(saved.states == whole.states, limit >= whole.bytes);
        last = saved.states;
        let mut after = Cached::new(&model, roomy(16), u64::MAX);
        assert_eq!(after.tree.restore(&mut after.sequences, folder.path(), &own, ANY).states, saved.states);
        assert!(saved.states == 0 || after.ask(&prompts[1]).0 > 64, "the second prompt was used last");
    }
    // What is too large is not even read, and blocks that are not there are not filled.
    let saved = before.tree.save(&before.sequences, folder.path(), &own, ANY).expect("is written");
    let mut after = Cached::new(&model, roomy(16), u64::MAX);
    let refused = after.tree.restore(&mut after.sequences, folder.path(), &own, saved.bytes - 1);
    assert!(refused.states == 0 && refused.note.is_some_and(|note| note.contains("are allowed")));
    let mut small = Cached::new(&model, Limits { state_slots: 3, ..roomy(16) }, u64::MAX);
    let some = small.tree.restore(&mut small.sequences, folder.path(), &own, ANY);
    assert_eq!(some.states, 3);
    assert!(some.note.is_some_and(|note| note.contains("had no room")));
    small.check_all_is_free_when_cleared();
}

#[test]
fn a_file_of_something_else_or_a_damaged_one_is_never_taken() {
    let model = hybrid();
    let own = fingerprint(&model, F32);
    let folder = tempfile::tempdir().expect("is made");
    let mut cached = Cached::new(&model, roomy(16), u64::MAX);
    assert_eq!(cached.tree.restore(&mut cached.sequences, folder.path(), &own, ANY), plan::Restored::default());

    let (before, prompts) = with_two_prompts(&model);
    let saved = before.tree.save(&before.sequences, folder.path(), &own, ANY).expect("is written");
    // Another cache type, another program, another model's content: another name.
    let program = lower_for(&CpuDevice::new(Some(2)).caps(), &model.spec, &model.index).expect("lowers");
    let others = [
        fingerprint(&model, KvTypes::both(KvType::F16)),
        fingerprint(&tiny(), F32),
        Fingerprint::new(b"another model", "cpu", std::slice::from_ref(&program), &roomy(16)),
        Fingerprint::new(b"content of the model", "another device", &[program], &roomy(16)),
    ];
    for other in others {
        assert_ne!(other, own);
        assert_eq!(cached.tree.restore(&mut cached.sequences, folder.path(), &other, ANY).states, 0);
        // Even under that name, it is told apart by what it says itself.
        let renamed = cached.tree.save(&cached.sequences, folder.path(), &other, ANY).expect("is written").path;
        fs::copy(&saved.path, &renamed).expect("is copied");
        let refused = cached.tree.restore(&mut cached.sequences, folder.path(), &other, ANY);
        assert!(refused.states == 0 && refused.note.is_some_and(|note| note.contains("belongs to another")));
    }
    let whole = fs::read(&saved.path).expect("is read");
    let flips = (0..whole.len()).step_by(whole.len() / 40).chain([0, 8, 40, 71, 72, whole.len() - 1]);
    let damaged = flips.map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    });
    let cut = [0, 7, 71, 72, whole.len() / 2, whole.len() - 1].map(|end| whole[..end].to_vec());
    for (case, bytes) in damaged.chain(cut).enumerate() {
        fs::write(&saved.path, bytes).expect("is written");
        let refused = cached.tree.restore(&mut cached.sequences, folder.path(), &own, ANY);
        assert!(refused.states == 0 && refused.note.is_some_and(|note| note.contains("is ignored")), "case {case}");
    }
    assert_eq!((cached.tree.len(), cached.tree.bytes()), (0, 0));
    assert_eq!(cached.ask(&prompts[0]).0, 0);
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let model = tiny();
    let (before, _) = with_two_prompts(&model);
    let folder = tempfile::tempdir().expect("is made");
    let file = folder.path().join("file");
    fs::write(&file, b"").expect("is written");
    let error = before.tree.save(&before.sequences, &file, &fingerprint(&model, F32), ANY).expect_err("is a file");
    assert!(matches!(&error, PrefixFileError::Io { path, .. } if *path == file), "{error}");
}

#[test]
fn the_files_of_a_folder_have_one_bound_and_the_oldest_make_way() {
    let model = tiny();
    let (cached, _) = with_two_prompts(&model);
    let folder = tempfile::tempdir().expect("is made");
    let program = lower_for(&CpuDevice::new(Some(2)).caps(), &model.spec, &model.index).expect("lowers");
    let own = |at: u8| Fingerprint::new(&[at], "cpu", std::slice::from_ref(&program), &roomy(16));
    let save =
        |at: u8, limit: u64| cached.tree.save(&cached.sequences, folder.path(), &own(at), limit).expect("is written");
    let size = save(0, ANY).bytes;
    let elsewhere = tempfile::tempdir().expect("is made");
    let paths = [0, 1, 2, 3].map(|at| {
        let saved = cached.tree.save(&cached.sequences, elsewhere.path(), &own(at), ANY).expect("is written");
        folder.path().join(saved.path.file_name().expect("a name"))
    });
    let there = || (0..4).filter(|at| paths[*at].exists()).collect::<Vec<_>>();
    let old = |at: usize, seconds: u64| {
        let file = fs::File::options().append(true).open(&paths[at]).expect("is there");
        file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(seconds)).expect("is set");
    };
    old(0, 100);
    save(1, 3 * size);
    old(1, 200);
    save(2, 3 * size);
    assert_eq!(there(), [0, 1, 2]);
    // The one written longest ago goes; one's own is replaced and does not count twice.
    save(2, 3 * size);
    assert_eq!(there(), [0, 1, 2]);
    save(3, 3 * size);
    assert_eq!(there(), [0, 2, 3]);
    // What is not one of these files stays, and so does what another process is writing; what a dead one left goes.
    fs::write(folder.path().join("notes.bin"), [0; 4096]).expect("is written");
    let part = |id: u32| paths[0].with_extension(format!("part{id}"));
    fs::write(part(1), "left").expect("is written");
    let writing = fs::File::create(part(2)).expect("is made");
    writing.lock().expect("is locked");
    save(3, size);
    assert_eq!(there(), [3]);
    assert!(folder.path().join("notes.bin").exists() && part(2).exists() && !part(1).exists());
}
