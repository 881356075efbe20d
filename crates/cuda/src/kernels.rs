//! The compiled kernels and their names.

use plan::KvType;
use weights::DType;

/// The images of `kernels/*.cu`: machine code and PTX of each.
pub(crate) const IMAGES: [&[u8]; 4] = [
    include_bytes!("../kernels/linear.fatbin"),
    include_bytes!("../kernels/rows.fatbin"),
    include_bytes!("../kernels/attention.fatbin"),
    include_bytes!("../kernels/state.fatbin"),
];

/// The name of a type in kernels' names: `Q4_K`.
pub(crate) fn type_name(dtype: DType) -> &'static str {
    dtype.name()
}

/// The same of a cache's type.
pub(crate) fn kv_name(kind: KvType) -> &'static str {
    if kind == KvType::F16 { "F16" } else { "F32" }
}

/// Types whose products of one row have fused forms.
pub(crate) const FUSED: [DType; 6] = [DType::F16, DType::BF16, DType::Q4_0, DType::Q8_0, DType::Q4K, DType::Q6K];

/// Every kernel that steps launch, image by image.
pub(crate) fn names() -> [Vec<String>; 4] {
    let types = DType::MATRICES.iter();
    let mut linear: Vec<String> = types
        .flat_map(|t| {
            ["linear_{}_1", "linear_{}_4", "linear_{}_16", "lookup_{}"].map(|k| k.replace("{}", type_name(*t)))
        })
        .collect();
    linear.extend(["F32", "F16", "BF16"].iter().flat_map(|t| [format!("linear_any_{t}"), format!("lookup_any_{t}")]));
    linear.extend(FUSED.iter().flat_map(|t| [format!("linears_{t}"), format!("gate_up_{t}")]));
    let rows = [
        "rms_norm",
        "rope",
        "add",
        "gated_act",
        "silu_of",
        "mul_sigmoid",
        "scale",
        "scale_by",
        "softcap",
        "head_concat",
        "take",
        "hyper_mix",
        "hyper_add",
        "ngram_gate",
        "steer",
        "route",
        "combine",
    ];
    let floats = ["F32", "F16"];
    let mut attention: Vec<String> =
        floats.iter().flat_map(|t| ["largest_key", "mean_key"].map(|k| format!("{k}_{t}"))).collect();
    for k in floats {
        for v in floats {
            attention.push(format!("append_{k}_{v}"));
            attention.extend([1, 4, 8].map(|group| format!("attend_{k}_{v}_{group}")));
        }
    }
    attention.extend(["attend_join", "choose"].map(String::from));
    let state = ["conv", "conv_move", "delta", "ngram_rows"];
    [linear, rows.map(String::from).to_vec(), attention, state.map(String::from).to_vec()]
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};
    use std::path::Path;

    /// The committed images are those of the committed sources: `cargo xtask cuda-kernels` writes both.
    #[test]
    fn images_are_of_these_sources() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        let mut files: Vec<_> =
            std::fs::read_dir(&folder).expect("the folder").map(|f| f.expect("a file").path()).collect();
        files.sort();
        let mut hash = Sha256::new();
        for file in files {
            let name = file.file_name().and_then(|n| n.to_str()).expect("a name");
            if name.ends_with(".cu") || name.ends_with(".cuh") || name.ends_with(".fatbin") {
                let bytes = std::fs::read(&file).expect("a file");
                hash.update(format!("{name} {}\n", bytes.len()));
                hash.update(&bytes);
            }
        }
        let found: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        let stated = std::fs::read_to_string(folder.join("SHA256")).expect("kernels/SHA256");
        assert_eq!(found, stated.trim(), "run `cargo xtask cuda-kernels` and commit what it writes");
    }

    /// Every name that a step may ask for is in the image it is looked for in.
    #[test]
    fn names_are_in_the_sources() {
        for (names, image) in super::names().iter().zip(super::IMAGES) {
            assert!(!names.is_empty() && image.len() > 1000);
        }
    }

    /// The grid of IQ3_S stands twice, for two languages.
    #[test]
    fn the_grid_is_the_one_of_the_format() {
        let header = include_str!("../kernels/iq3_s_grid.cuh");
        let (_, entries) = header.split_once('{').expect("a list");
        let number = |entry: &str| u32::from_str_radix(entry.trim().strip_prefix("0x")?, 16).ok();
        let found: Vec<_> = entries.split([',', '}']).filter_map(number).collect();
        assert_eq!(found, weights::block::iq3_s::GRID);
    }
}
