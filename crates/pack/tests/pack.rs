//! Packed models give what their sources give, and say what was done to them.

use runtime::{ModelFiles, OpenOptions, all_logits, open_logits};
use std::path::{Path, PathBuf};
use testkit::{GoldenFile, families, golden, nmse, with_whole};
use tokenizer::Encode;
use turbospark_pack::{Event, Keep, PackError, PackOptions, Packed, export, pack};
use weights::gturbo::{GturboFile, PAGE, RESIDENT, Verify};
use weights::{DType, WeightsError};

fn options() -> PackOptions {
    PackOptions::default()
}

fn keep(texts: &[&str]) -> Vec<Keep> {
    texts.iter().map(|text| text.parse().unwrap_or_else(|e| panic!("{e}"))).collect()
}

fn packed(source: &Path, out: &Path, options: &PackOptions) -> Packed {
    pack(source, out, options, &mut |_| {}).unwrap_or_else(|e| panic!("{}: {e}", source.display()))
}

/// The bits of the logits of all the golden prompt's positions.
fn bits(model: &Path, golden: &GoldenFile, options: &OpenOptions) -> Vec<u32> {
    let tokens: Vec<_> = golden.expected().tokens.iter().map(|id| foundation::TokenId(*id)).collect();
    let options = OpenOptions { context: Some(tokens.len()), all_logits: true, ..options.clone() };
    let (mut producer, _) = open_logits(model, &options).unwrap_or_else(|e| panic!("{}: {e}", model.display()));
    let logits = all_logits(&mut *producer, &tokens, 7).unwrap_or_else(|e| panic!("{}: {e}", model.display()));
    logits.iter().map(|x| x.to_bits()).collect()
}

fn find(model: &str, file: &str) -> GoldenFile {
    families().into_iter().find(|g| (g.model, g.file) == (model, file)).expect("a golden model")
}

#[test]
fn every_family_keeps_its_bits() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut banks = 0;
    for (index, golden) in families().into_iter().enumerate() {
        let (first, out) =
            (folder.path().join(format!("{index}.gturbo")), folder.path().join(format!("{index} moved.gturbo")));
        with_whole(&golden.path(), |source| {
            packed(source, &first, &options());
            // A folder that is moved is still all there.
            std::fs::rename(&first, &out).expect("renamed");
            let [a, b] =
                [source, &out].map(|path| ModelFiles::open(path).unwrap_or_else(|e| panic!("{golden:?}: {e}")));
            assert_eq!(a.spec, b.spec, "{golden:?}");
            assert_eq!(a.weights.len(), b.weights.len(), "{golden:?}");
            for (a, b) in a.weights.iter().zip(b.weights.iter()) {
                assert_eq!((a.name(), a.dtype(), a.shape()), (b.name(), b.dtype(), b.shape()), "{golden:?}");
                assert!(a.bytes() == b.bytes(), "{golden:?}: {}", a.name());
            }
            let verified = OpenOptions { verify: Verify::Full, ..OpenOptions::default() };
            assert_eq!(bits(source, &golden, &OpenOptions::default()), bits(&out, &golden, &verified), "{golden:?}");
            let [a, b] = [&a, &b].map(|files| {
                let of = |t: std::sync::Arc<tokenizer::Tokenizer>| {
                    (t.encode("a mat", Encode::default()).ok(), t.eos(), t.vocab_size())
                };
                files.tokenizer().ok().map(of)
            });
            assert_eq!(a, b, "{golden:?}");
        });
        let manifest = GturboFile::open(&out, Verify::Full).expect("opens").manifest().clone();
        assert!(manifest.experts.iter().all(|layer| layer.stride % PAGE == 0), "{golden:?}");
        banks += manifest.experts.len();
        std::fs::remove_dir_all(&out).expect("removed");
    }
    assert!(banks > 40, "{banks} layers of experts");
}

/// Every matrix of an expert is in its blob, whether the checkpoint has one tensor a bank or one an expert.
#[test]
fn an_expert_is_one_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for (at, (model, file)) in [
        ("qwen3_moe", "model.gguf"),
        ("qwen3_moe", "model.safetensors"),
        ("mixtral", "model.safetensors"),
        ("gpt_oss", "model-mxfp4.safetensors"),
    ]
    .into_iter()
    .enumerate()
    {
        let out = folder.path().join(format!("{at}.gturbo"));
        with_whole(&find(model, file).path(), |source| packed(source, &out, &options()));
        let packed = GturboFile::open(&out, Verify::Size).expect("opens");
        let manifest = packed.manifest();
        assert!(!manifest.experts.is_empty(), "{model}");
        let files = ModelFiles::open(&out).expect("opens");
        for name in manifest.tensors.iter().filter(|(_, t)| t.file == RESIDENT).map(|(name, _)| name) {
            assert!(!files.canonical_name(name).contains(".experts."), "{model}: {name} is not with its expert");
        }
        for (name, entry) in manifest.tensors.iter().filter(|(_, t)| t.file != RESIDENT) {
            let layer = manifest.experts.iter().find(|layer| layer.file == entry.file).expect("a layer's file");
            let (part, count) = entry.parts().expect("sizes");
            assert!(entry.stride.is_none_or(|s| s == layer.stride && count == layer.experts as u64), "{name}");
            assert!(entry.offset % layer.stride + part <= layer.stride, "{name} leaves its blob");
            let tensor = packed.weights().require(name).expect("is there");
            if entry.stride.is_some() {
                // One expert's rows are where they are in the file; all of them together are a copy.
                let rows = tensor.rows() / layer.experts;
                let one = tensor.row_range(rows..2 * rows).expect("rows");
                let next = tensor.row_range(2 * rows..3 * rows).expect("rows");
                let apart = next.bytes().as_ptr() as usize - one.bytes().as_ptr() as usize;
                assert_eq!(apart as u64, layer.stride, "{name}");
                assert!(tensor.bytes()[rows * one.stored_bytes() / rows..].starts_with(one.bytes()), "{name}");
                let across = tensor.row_range(rows - 1..rows + 1).expect("rows of two experts");
                let row = part as usize / rows;
                assert!(across.bytes() == &tensor.bytes()[(rows - 1) * row..(rows + 1) * row], "{name}");
            }
        }
    }
}

#[test]
fn rounding_is_what_was_asked_for_and_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let golden = find("qwen3_moe", "model.safetensors");
    let (source, at) = (golden.path(), |name: &str| folder.path().join(name));
    // Rounding while packing and rounding while loading are the same; only the latter leaves tables alone.
    let only = PackOptions { quantize: Some(DType::Q8_0), keep: keep(&["*embed_tokens*=stored"]), ..options() };
    packed(&source, &at("q8.gturbo"), &only);
    let loading = OpenOptions { quantize: Some(DType::Q8_0), ..OpenOptions::default() };
    assert_eq!(bits(&at("q8.gturbo"), &golden, &OpenOptions::default()), bits(&source, &golden, &loading));
    // Experts apart, one tensor apart, types whose blocks do not fit replaced.
    let mixed = PackOptions {
        quantize: Some(DType::Q8_0),
        experts: Some(DType::Q4K),
        keep: keep(&["model.layers.*.self_attn.v_proj.weight=q5_1", "model.layers.1.self_attn.v_proj.weight=stored"]),
        ..options()
    };
    let told = packed(&source, &at("mixed.gturbo"), &mixed);
    let file = GturboFile::open(&at("mixed.gturbo"), Verify::Full).expect("opens");
    let plain = ModelFiles::open(&source).expect("opens");
    for tensor in file.weights().iter() {
        let stored = plain.stored.require(tensor.name()).expect("is there").dtype();
        let expected = match tensor.name() {
            name if name.contains("layers.1.self_attn.v_proj") => stored,
            name if name.contains("v_proj") => DType::Q5_1,
            name if name.contains(".experts.") && tensor.cols() % 32 == 0 => DType::Q5_0,
            name if name.contains(".experts.") => stored,
            name if name.contains("norm") || name.ends_with("mlp.gate.weight") => stored,
            _ => DType::Q8_0,
        };
        assert_eq!(tensor.dtype(), expected, "{}", tensor.name());
    }
    assert!(told.notes.iter().any(|note| note.contains("become Q5_0") && note.contains("256")), "{:?}", told.notes);
    let about = &file.manifest().quantisation;
    assert_eq!((about.matrices.as_deref(), about.experts.as_deref()), (Some("Q8_0"), Some("Q4_K")));
    let again = PackOptions { quantize: Some(DType::Q4_0), ..options() };
    let refused = pack(&at("q8.gturbo"), &at("x.gturbo"), &again, &mut |_| {});
    // The head is stored plainly there still, as it is the table; everything else is rounded already.
    match refused {
        Ok(packed) => assert!(packed.notes.iter().any(|n| n.contains("--requantize")), "{:?}", packed.notes),
        Err(error) => assert!(error.to_string().contains("--requantize"), "{error}"),
    }
    let requantize = PackOptions { requantize: true, ..again };
    let told = packed(&at("q8.gturbo"), &at("again.gturbo"), &requantize);
    assert!(told.types.iter().any(|(name, count)| *name == "Q4_0" && *count > 10), "{:?}", told.types);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.gturbo");
    let source = find("llama", "model.gguf").path();
    let refused = |options: &PackOptions| {
        with_whole(&source, |source| pack(source, &out, options, &mut |_| {})).expect_err("is refused").to_string()
    };
    let message = refused(&PackOptions { keep: keep(&["blk.0.attn_w.weight=q8_0"]), ..options() });
    assert!(message.contains("blk.0.attn_w.weight") && message.contains("blk.0.attn_q.weight"), "{message}");
    let message = refused(&PackOptions { available_bytes: Some(1000), ..options() });
    assert!(message.contains("1000 are available") && message.contains("not enough room"), "{message}");
    std::fs::remove_dir_all(folder.path().join("out.gturbo.partial")).expect("nothing but the journal");
    let quantised = golden("llama_k256").join("model-Q4_0.gguf");
    let message = pack(&quantised, &out, &PackOptions { quantize: Some(DType::Q4K), ..options() }, &mut |_| {});
    let message = message.expect_err("rounded already").to_string();
    assert!(message.contains("Q4_K") && message.contains("--requantize"), "{message}");
    std::fs::create_dir(&out).expect("a folder");
    assert!(refused(&options()).contains("exists already"));
    // Half a pack is no model.
    assert!(!folder.path().join("out.gturbo.partial").exists());
    let message = ModelFiles::open(&out).expect_err("empty").to_string();
    assert!(message.contains("manifest.json") && message.contains("no finished pack"), "{message}");
    let message = ModelFiles::open_verified(&quantised, Verify::Full).expect_err("no hashes").to_string();
    assert!(message.contains("has no hashes"), "{message}");
}

#[test]
fn a_gguf_file_comes_back_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let golden = find("gemma4_moe", "model.gguf");
    with_whole(&golden.path(), |source| {
        packed(source, &at("a.gturbo"), &options());
        export(&at("a.gturbo"), &at("back.gguf"), &options(), &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
        let [a, b] = [source, &at("back.gguf")].map(|path| weights::gguf::GgufFile::open(path).expect("opens"));
        assert!(a.metadata().iter().eq(b.metadata().iter()));
        assert!(
            a.weights().iter().zip(b.weights().iter()).all(|(a, b)| a.shape() == b.shape() && a.bytes() == b.bytes())
        );
        assert_eq!(
            bits(source, &golden, &OpenOptions::default()),
            bits(&at("back.gguf"), &golden, &OpenOptions::default())
        );
    });
    assert!(!at("back.gguf.partial").exists());
    let refused = export(&find("llama", "model.safetensors").path(), &at("x.gguf"), &options(), &mut |_| {});
    assert!(matches!(refused, Err(PackError::CannotExport { .. })), "{refused:?}");
    // Our rounding of the F16 file is as near to it as llama.cpp's.
    let (f16, name) = (golden_of("F16"), |dtype: DType| format!("{}.gguf", dtype.name()));
    let expected = f16.expected().logits;
    for (to, theirs) in [(DType::Q4K, "Q4_K_S"), (DType::Q6K, "Q6_K"), (DType::IQ4XS, "IQ4_XS"), (DType::Q3K, "Q3_K_S")]
    {
        let quantize = PackOptions { quantize: Some(to), ..options() };
        export(&f16.path(), &at(&name(to)), &quantize, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
        let ours: Vec<_> =
            bits(&at(&name(to)), &f16, &OpenOptions::default()).into_iter().map(f32::from_bits).collect();
        let (ours, theirs) = (nmse(&ours, &expected), nmse(&golden_of(theirs).expected().logits, &expected));
        println!("{to}: NMSE {ours:.2e}, llama.cpp's file {theirs:.2e}");
        assert!(ours < 1.5 * theirs, "{to}: {ours} {theirs}");
    }
}

fn golden_of(name: &str) -> GoldenFile {
    let file = format!("model-{name}.gguf");
    testkit::quantised().into_iter().find(|g| g.file == file).expect("a golden model")
}

#[test]
fn importance_is_read_and_used() {
    use weights::Tensor;
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let source = golden_of("F16").path();
    let files = ModelFiles::open(&source).expect("opens");
    let mut writer = weights::gguf::write::GgufWriter::new();
    for tensor in files.stored.iter().filter(|t| t.name().starts_with("blk.0.ffn")) {
        // The first columns count a hundred times as much.
        let sums: Vec<f32> = (0..tensor.cols()).map(|c| if c < 32 { 800.0 } else { 8.0 }).collect();
        writer.tensor(Tensor::from_f32(format!("{}.in_sum2", tensor.name()), vec![1, tensor.cols()], &sums));
        writer.tensor(Tensor::from_f32(format!("{}.counts", tensor.name()), vec![1, 1], &[8.0]));
    }
    writer.write(&at("imatrix.gguf")).expect("written");
    let plain = PackOptions { quantize: Some(DType::Q3K), ..options() };
    let importance = turbospark_pack::Importance::read(&at("imatrix.gguf")).unwrap_or_else(|e| panic!("{e}"));
    packed(&source, &at("plain.gturbo"), &plain);
    packed(&source, &at("weighted.gturbo"), &PackOptions { importance: Some(importance), ..plain });
    let [plain, weighted] = ["plain.gturbo", "weighted.gturbo"].map(|name| ModelFiles::open(&at(name)).expect("opens"));
    for tensor in files.stored.iter() {
        let bytes = |files: &ModelFiles| files.stored.require(tensor.name()).expect("is there").bytes().to_vec();
        let touched = tensor.name().starts_with("blk.0.ffn") && tensor.shape().len() > 1;
        assert_eq!(bytes(&plain) != bytes(&weighted), touched, "{}", tensor.name());
        if touched {
            let error = |files: &ModelFiles| {
                let rounded = files.stored.require(tensor.name()).expect("is there").to_f32().expect("expands");
                let exact = tensor.to_f32().expect("expands");
                let first = rounded.chunks(tensor.cols()).zip(exact.chunks(tensor.cols()));
                first.map(|(a, b)| nmse(&a[..32], &b[..32])).sum::<f64>()
            };
            assert!(error(&weighted) < error(&plain), "{}", tensor.name());
        }
    }
    let message = turbospark_pack::Importance::read(&source).expect_err("a model").to_string();
    assert!(message.contains("in_sum2"), "{message}");
}

#[test]
fn a_manifest_is_not_trusted() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("a.gturbo");
    packed(&find("qwen3_moe", "model.safetensors").path(), &out, &options());
    let manifest = out.join("manifest.json");
    let good = std::fs::read_to_string(&manifest).expect("text");
    let open = |text: &str| {
        std::fs::write(&manifest, text).expect("written");
        GturboFile::open(&out, Verify::Off)
    };
    open(&good).expect("as it was");
    for (from, to, said) in [
        ("\"version\": 2", "\"version\": 3", "version 3"),
        ("\"format\": \"gturbo\"", "\"format\": \"x\"", "\"x\""),
        ("resident.bin", "../resident.bin", "plain relative path"),
        ("\"chunk_bytes\": 4194304", "\"chunk_bytes\": 0", "chunk_bytes"),
        ("\"BF16\"", "\"Q9_9\"", "known type"),
        ("\"offset\": 0", "\"offset\": 18446744073709551615", "bytes within"),
        ("\"written_by\"", "\"written\"", "keys of version 2"),
        ("{", "[", "JSON object"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = open(&good.replace(from, to)).expect_err("is refused");
        assert!(matches!(error, WeightsError::Field { .. }) && error.to_string().contains(said), "{to}: {error}");
    }
    // Any number changed to any other, any byte cut: an error or a model, never a panic.
    let mut random = testkit::Random::new(5);
    for _ in 0..300 {
        let mut text = good.clone().into_bytes();
        match random.below(3) {
            0 => text.truncate(random.below(text.len())),
            1 => {
                let at = random.below(text.len());
                text[at] = random.word() as u8;
            }
            _ => {
                let digits: Vec<_> = (0..text.len()).filter(|i| text[*i].is_ascii_digit()).collect();
                let at = random.pick(&digits);
                text.splice(at..at, random.word().to_string().into_bytes());
            }
        }
        std::fs::write(&manifest, text).expect("written");
        let _ = GturboFile::open(&out, Verify::Size);
    }
}

#[test]
fn progress_reaches_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let out: PathBuf = folder.path().join("a.gturbo");
    let mut seen = Vec::new();
    let source = find("llama", "model.safetensors").path();
    let packed = pack(&source, &out, &options(), &mut |event| seen.push(event)).expect("packs");
    assert_eq!(seen.first(), Some(&Event::Started { total: packed.bytes }));
    assert_eq!(seen.last(), Some(&Event::Bytes { done: packed.bytes }));
    let on_disk: u64 = walk(&out).iter().map(|path| path.metadata().expect("a file").len()).sum();
    assert_eq!(on_disk, packed.bytes + out.join("manifest.json").metadata().expect("a file").len());
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
