//! A model to a GGUF file.

use crate::choose::choose;
use crate::content::{Content, Rows};
use crate::pack::identity;
use crate::write::Partial;
use crate::{Event, PackError, PackOptions, Packed};
use runtime::{About, ModelFiles};
use std::collections::BTreeMap;
use std::path::Path;
use weights::DType;
use weights::gguf::Value;
use weights::gguf::write::{Described, layout};

/// The name the file has until it is complete.
const GROWING: &str = "model.gguf";

/// Writes the model at `source`, a GGUF file or a folder packed from one, as the GGUF file `out`, which must not exist yet;
/// goes on after an interruption as [`crate::pack()`] does.
pub fn export(
    source: &Path,
    out: &Path,
    options: &PackOptions,
    events: &mut dyn FnMut(Event),
) -> Result<Packed, PackError> {
    let files = ModelFiles::open(source)?;
    let About::Gguf(keys) = &files.about else {
        let reason = "it comes from safetensors, whose names, orders and tokenizer GGUF has in another form; \
                      pack it as a .gturbo folder, or convert it with llama.cpp first";
        return Err(PackError::CannotExport { path: source.to_owned(), reason: reason.to_owned() });
    };
    let choice = choose(&files, &plan::lower(&files.spec, &files.index)?, options)?;
    let mut metadata = keys.without_split();
    if let Some(to) = options.quantize {
        metadata.set("general.file_type", Value::U32(file_type(to)));
        metadata.set("general.quantization_version", Value::U32(2));
    }
    let described: Vec<_> = files
        .stored
        .iter()
        .map(|t| Described { name: t.name().into(), dtype: choice.types[t.name()], shape: t.shape().to_vec() })
        .collect();
    let layout = layout(&metadata, &described)?;
    let mut content = Content::empty(layout.bytes);
    let plan = layout.header.clone();
    content.push_bytes(0, layout.header);
    let mut types = BTreeMap::new();
    for (tensor, offset) in files.stored.iter().zip(layout.offsets) {
        let to = choice.types[tensor.name()];
        *types.entry(to.name()).or_insert(0) += 1;
        let length = to.bytes_for(tensor.elements()).unwrap_or_default() as u64;
        let canonical = files.canonical_name(tensor.name());
        let importance = options.importance.as_ref().and_then(|all| all.of([tensor.name(), &canonical]));
        content.push_rows(offset, length, Rows { tensor: tensor.clone(), rows: 0..tensor.rows(), to, importance });
    }
    content.sort();
    let identity = identity(&files, &plan, options);
    let mut partial = Partial::open(out, &identity, options, events)?;
    partial.begin(content.bytes)?;
    partial.write(GROWING, &content)?;
    let resumed = partial.publish_file(GROWING)?;
    let (bytes, types) = (content.bytes, types.into_iter().collect());
    Ok(Packed { path: out.to_owned(), bytes, resumed, types, notes: choice.notes })
}

/// llama.cpp's number for a file whose matrices are mostly of a type.
fn file_type(dtype: DType) -> u32 {
    match dtype {
        DType::Q4_0 => 2,
        DType::Q4_1 => 3,
        DType::Q8_0 => 7,
        DType::Q5_0 => 8,
        DType::Q5_1 => 9,
        DType::Q2K => 10,
        DType::Q3K => 11,
        DType::Q4K => 14,
        DType::Q5K => 16,
        DType::Q6K => 18,
        DType::IQ4NL => 25,
        DType::IQ4XS => 30,
        DType::MXFP4 => 38,
        // What cannot be rounded to was refused before; 1024 is "guessed".
        _ => 1024,
    }
}
