//! Element and block types of tensors: one table of names, ggml ids and block sizes.

use std::fmt;

/// A row of the table of types.
struct Info {
    name: &'static str,
    ggml: Option<u32>,
    safetensors: bool,
    len: usize,
    bytes: usize,
}

macro_rules! table {
    ($(#[$doc:meta])* $name:ident $([$(#[$other_doc:meta])* $other:ident($inner:ty)])? :
     $($variant:ident $text:literal $ggml:expr, $safetensors:literal, $len:literal, $bytes:literal;)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`: elements in a block: ", $len, ", bytes of a block: ", $bytes, ".")] $variant,)*
            $($(#[$other_doc])* $other($inner),)?
        }

        impl $name {
            const LISTED: &'static [Self] = &[$(Self::$variant),*];

            const fn info(self) -> Info {
                match self {
                    $(Self::$variant => Info { name: $text, ggml: $ggml, safetensors: $safetensors, len: $len, bytes: $bytes },)*
                    $(Self::$other(inner) => inner.info_of_unsupported(),)?
                }
            }
        }
    };
}

table! {
    /// The type of a tensor's elements, or of its blocks for quantised types.
    DType [
        /// A known type whose tensors are listed but cannot be converted to `f32`.
        Unsupported(UnsupportedType)
    ]:
    F32   "F32"   Some(0),  true,  1, 4;
    F16   "F16"   Some(1),  true,  1, 2;
    BF16  "BF16"  Some(30), true,  1, 2;
    F64   "F64"   Some(28), true,  1, 8;
    I8    "I8"    Some(24), true,  1, 1;
    I16   "I16"   Some(25), true,  1, 2;
    I32   "I32"   Some(26), true,  1, 4;
    I64   "I64"   Some(27), true,  1, 8;
    U8    "U8"    None,     true,  1, 1;
    U16   "U16"   None,     true,  1, 2;
    U32   "U32"   None,     true,  1, 4;
    U64   "U64"   None,     true,  1, 8;
    Bool  "BOOL"  None,     true,  1, 1;
    Q4_0  "Q4_0"  Some(2),  false, 32, 18;
    Q4_1  "Q4_1"  Some(3),  false, 32, 20;
    Q5_0  "Q5_0"  Some(6),  false, 32, 22;
    Q5_1  "Q5_1"  Some(7),  false, 32, 24;
    Q8_0  "Q8_0"  Some(8),  false, 32, 34;
    Q2K   "Q2_K"  Some(10), false, 256, 84;
    Q3K   "Q3_K"  Some(11), false, 256, 110;
    Q4K   "Q4_K"  Some(12), false, 256, 144;
    Q5K   "Q5_K"  Some(13), false, 256, 176;
    Q6K   "Q6_K"  Some(14), false, 256, 210;
    IQ4NL "IQ4_NL" Some(20), false, 32, 18;
    IQ4XS "IQ4_XS" Some(23), false, 256, 136;
    IQ3S  "IQ3_S" Some(21), false, 256, 110;
    MXFP4 "MXFP4" Some(39), false, 32, 17;
}

table! {
    /// Known types that this crate can size but not convert.
    UnsupportedType:
    Q8_1   "Q8_1"    Some(9),  false, 32, 40;
    Q8K    "Q8_K"    Some(15), false, 256, 292;
    IQ2XXS "IQ2_XXS" Some(16), false, 256, 66;
    IQ2XS  "IQ2_XS"  Some(17), false, 256, 74;
    IQ3XXS "IQ3_XXS" Some(18), false, 256, 98;
    IQ1S   "IQ1_S"   Some(19), false, 256, 50;
    IQ2S   "IQ2_S"   Some(22), false, 256, 82;
    IQ1M   "IQ1_M"   Some(29), false, 256, 56;
    TQ1_0  "TQ1_0"   Some(34), false, 256, 54;
    TQ2_0  "TQ2_0"   Some(35), false, 256, 66;
    NVFP4  "NVFP4"   Some(40), false, 64, 36;
    Q1_0   "Q1_0"    Some(41), false, 128, 18;
    F8E4M3 "F8_E4M3" None, true, 1, 1;
    F8E5M2 "F8_E5M2" None, true, 1, 1;
    F8E8M0 "F8_E8M0" None, true, 1, 1;
    F8E4M3FNUZ "F8_E4M3FNUZ" None, true, 1, 1;
    F8E5M2FNUZ "F8_E5M2FNUZ" None, true, 1, 1;
    F6E2M3 "F6_E2M3" None, true, 4, 3;
    F6E3M2 "F6_E3M2" None, true, 4, 3;
    F4     "F4"      None, true, 2, 1;
    C64    "C64"     None, true, 1, 8;
}

impl UnsupportedType {
    const fn info_of_unsupported(self) -> Info {
        self.info()
    }
}

impl DType {
    /// The types a matrix of weights can be stored in and computed with: plain floats first, then the quantised ones.
    pub const MATRICES: [Self; 17] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::IQ4NL,
        Self::IQ4XS,
        Self::IQ3S,
        Self::MXFP4,
    ];

    /// The types that values can be rounded to.
    pub const QUANTISERS: [Self; 13] = [
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::IQ4NL,
        Self::IQ4XS,
        Self::MXFP4,
    ];

    /// True for plain floating-point numbers.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::F64)
    }

    /// The name as ggml or safetensors spells it: `Q4_K`, `BF16`.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Elements in one block; 1 for plain types.
    pub fn block_len(self) -> usize {
        self.info().len
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        self.info().bytes
    }

    /// Bytes of `elements` elements; `None` if that is not a whole number of blocks or overflows.
    pub fn bytes_for(self, elements: usize) -> Option<usize> {
        let info = self.info();
        if !elements.is_multiple_of(info.len) {
            return None;
        }
        (elements / info.len).checked_mul(info.bytes)
    }

    /// True for types whose elements share a scale by blocks.
    pub fn is_quantised(self) -> bool {
        let info = self.info();
        info.len > 1 && !info.safetensors
    }

    /// The type with this id in a GGUF file.
    pub fn from_ggml(id: u32) -> Option<Self> {
        Self::find(|info| info.ggml == Some(id))
    }

    /// The id of this type in a GGUF file; `None` if GGUF has no such type.
    pub fn to_ggml(self) -> Option<u32> {
        self.info().ggml
    }

    /// The type with this name in a safetensors header.
    pub fn from_safetensors(name: &str) -> Option<Self> {
        Self::find(|info| info.safetensors && info.name == name)
    }

    /// True if a safetensors file can hold this type.
    pub fn in_safetensors(self) -> bool {
        self.info().safetensors
    }

    /// Every type, the unsupported ones last.
    pub fn all() -> impl Iterator<Item = Self> {
        let unsupported = UnsupportedType::LISTED.iter().map(|&t| Self::Unsupported(t));
        Self::LISTED.iter().copied().chain(unsupported)
    }

    fn find(matches: impl Fn(&Info) -> bool) -> Option<Self> {
        Self::all().find(|dtype| matches(&dtype.info()))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_by_its_id_and_name() {
        for dtype in DType::all() {
            if let Some(id) = dtype.to_ggml() {
                assert_eq!(DType::from_ggml(id), Some(dtype));
            }
            let by_name = DType::from_safetensors(dtype.name());
            assert_eq!(by_name, dtype.in_safetensors().then_some(dtype));
        }
        for hole in [4, 5, 31, 33, 36, 38, 42, u32::MAX] {
            assert_eq!(DType::from_ggml(hole), None);
        }
    }

    #[test]
    fn bytes_for_checks_blocks_and_overflow() {
        assert_eq!(DType::Q4K.bytes_for(512), Some(288));
        assert_eq!(DType::Q4_0.bytes_for(33), None);
        assert_eq!(DType::F32.bytes_for(usize::MAX), None);
        assert_eq!(DType::F32.bytes_for(0), Some(0));
    }
}
