//! Values of GGUF metadata, and their reading.

use super::cursor::{Cursor, What};
use crate::WeightsError;
use std::borrow::Cow;
use std::fmt;

/// Arrays may hold arrays this deep; real files hold none.
const MAX_ARRAY_DEPTH: usize = 4;

/// A string of a GGUF file: bytes, because some vocabularies hold tokens that are not valid UTF-8.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GgufString(Vec<u8>);

impl GgufString {
    /// The bytes as stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, if the bytes are valid UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The text, with U+FFFD for what is not valid UTF-8.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// The bytes, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl From<Vec<u8>> for GgufString {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<String> for GgufString {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&str> for GgufString {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl PartialEq<str> for GgufString {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for GgufString {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Display for GgufString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string_lossy())
    }
}

impl fmt::Debug for GgufString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

macro_rules! numbers {
    ($($variant:ident $number:ty, $id:literal;)*) => {
        /// A metadata value.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Value {
            $(#[doc = concat!("A number, `", stringify!($number), "`.")] $variant($number),)*
            /// A truth value.
            Bool(bool),
            /// A string.
            String(GgufString),
            /// An array of values of one type.
            Array(Array),
        }

        /// An array of metadata values of one type.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Array {
            $(#[doc = concat!("Numbers, `", stringify!($number), "`.")] $variant(Vec<$number>),)*
            /// Truth values.
            Bool(Vec<bool>),
            /// Strings.
            String(Vec<GgufString>),
            /// Arrays.
            Nested(Vec<Array>),
        }

        impl Value {
            /// Reads a value of type `id`.
            pub(super) fn read(cursor: &mut Cursor<'_>, key: &str, id: u32) -> Result<Self, WeightsError> {
                let what = What::Key(key);
                Ok(match id {
                    $($id => Self::$variant(<$number>::from_le_bytes(cursor.array(what)?)),)*
                    BOOL => Self::Bool(read_bool(cursor, what)?),
                    STRING => Self::String(cursor.string(what)?),
                    ARRAY => Self::Array(Array::read(cursor, key, MAX_ARRAY_DEPTH)?),
                    _ => return Err(unknown_type(cursor, what, id)),
                })
            }

            /// Appends the type id and the value.
            pub(super) fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant(value) => {
                        out.extend(u32::to_le_bytes($id));
                        out.extend(value.to_le_bytes());
                    })*
                    Self::Bool(value) => {
                        out.extend(BOOL.to_le_bytes());
                        out.push(u8::from(*value));
                    }
                    Self::String(value) => {
                        out.extend(STRING.to_le_bytes());
                        write_string(value.as_bytes(), out);
                    }
                    Self::Array(value) => {
                        out.extend(ARRAY.to_le_bytes());
                        value.write(out);
                    }
                }
            }
        }

        impl Array {
            /// The number of elements.
            pub fn len(&self) -> usize {
                match self {
                    $(Self::$variant(values) => values.len(),)*
                    Self::Bool(values) => values.len(),
                    Self::String(values) => values.len(),
                    Self::Nested(values) => values.len(),
                }
            }

            fn read(cursor: &mut Cursor<'_>, key: &str, depth: usize) -> Result<Self, WeightsError> {
                let what = What::Key(key);
                let start = cursor.at();
                let id = cursor.u32(what)?;
                Ok(match id {
                    $($id => {
                        let bytes = counted(cursor, what, size_of::<$number>())?;
                        let chunks = bytes.as_chunks().0;
                        Self::$variant(chunks.iter().map(|b| <$number>::from_le_bytes(*b)).collect())
                    })*
                    BOOL => {
                        let count = cursor.count(what, 1)?;
                        let read = |i| read_bool(cursor, What::Element(key, i));
                        Self::Bool((0..count).map(read).collect::<Result<_, _>>()?)
                    }
                    STRING => {
                        let count = cursor.count(what, size_of::<u64>())?;
                        let mut strings = Vec::with_capacity(count);
                        for i in 0..count {
                            strings.push(cursor.string(What::Element(key, i))?);
                        }
                        Self::String(strings)
                    }
                    ARRAY if depth == 1 => {
                        let expected = format!("arrays nested at most {MAX_ARRAY_DEPTH} deep");
                        return Err(cursor.field(what, start, expected, "deeper ones"));
                    }
                    ARRAY => {
                        let count = cursor.count(what, size_of::<u32>() + size_of::<u64>())?;
                        let mut arrays = Vec::with_capacity(count);
                        for _ in 0..count {
                            arrays.push(Self::read(cursor, key, depth - 1)?);
                        }
                        Self::Nested(arrays)
                    }
                    _ => return Err(unknown_type(cursor, what, id)),
                })
            }

            fn write(&self, out: &mut Vec<u8>) {
                let mut start = |id: u32| {
                    out.extend(id.to_le_bytes());
                    out.extend((self.len() as u64).to_le_bytes());
                };
                match self {
                    $(Self::$variant(values) => {
                        start($id);
                        values.iter().for_each(|v| out.extend(v.to_le_bytes()));
                    })*
                    Self::Bool(values) => {
                        start(BOOL);
                        out.extend(values.iter().map(|v| u8::from(*v)));
                    }
                    Self::String(values) => {
                        start(STRING);
                        values.iter().for_each(|v| write_string(v.as_bytes(), out));
                    }
                    Self::Nested(values) => {
                        start(ARRAY);
                        values.iter().for_each(|v| v.write(out));
                    }
                }
            }
        }
    };
}

numbers! {
    U8 u8, 0;
    I8 i8, 1;
    U16 u16, 2;
    I16 i16, 3;
    U32 u32, 4;
    I32 i32, 5;
    F32 f32, 6;
    U64 u64, 10;
    I64 i64, 11;
    F64 f64, 12;
}

const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Appends a length and the bytes.
pub(super) fn write_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// The bytes of a counted array of fixed-size items; the count is checked against the bytes left.
fn counted<'a>(cursor: &mut Cursor<'a>, what: What<'_>, size: usize) -> Result<&'a [u8], WeightsError> {
    let count = cursor.count(what, size)?;
    cursor.take(what, count * size)
}

fn read_bool(cursor: &mut Cursor<'_>, what: What<'_>) -> Result<bool, WeightsError> {
    let start = cursor.at();
    match cursor.array::<1>(what)? {
        [0] => Ok(false),
        [1] => Ok(true),
        [other] => Err(cursor.field(what, start, "0 or 1", other.to_string())),
    }
}

fn unknown_type(cursor: &Cursor<'_>, what: What<'_>, id: u32) -> WeightsError {
    cursor.field(what, cursor.at() - 4, "a value type 0..=12", id.to_string())
}

impl Value {
    /// The value of any integer type, if it is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_i128()?.try_into().ok()
    }

    /// The value of any integer type, if it fits.
    pub fn as_i64(&self) -> Option<i64> {
        self.as_i128()?.try_into().ok()
    }

    /// The value of a float type (`f64` is rounded to nearest).
    pub fn as_f32(&self) -> Option<f32> {
        match self {
            Self::F32(value) => Some(*value),
            Self::F64(value) => Some(*value as f32),
            _ => None,
        }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// A string that is valid UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(value) => value.as_str(),
            _ => None,
        }
    }

    /// An array.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Self::Array(value) => Some(value),
            _ => None,
        }
    }

    fn as_i128(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }
}

impl Array {
    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements of any integer type, if all fit.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        Some(match self {
            Self::U8(v) => v.iter().map(|&x| x.into()).collect(),
            Self::I8(v) => v.iter().map(|&x| x.into()).collect(),
            Self::U16(v) => v.iter().map(|&x| x.into()).collect(),
            Self::I16(v) => v.iter().map(|&x| x.into()).collect(),
            Self::U32(v) => v.iter().map(|&x| x.into()).collect(),
            Self::I32(v) => v.iter().map(|&x| x.into()).collect(),
            Self::U64(v) => return v.iter().map(|&x| x.try_into().ok()).collect(),
            Self::I64(v) => v.clone(),
            _ => return None,
        })
    }

    /// The elements of any integer type, if none is negative.
    pub fn to_u64s(&self) -> Option<Vec<u64>> {
        if let Self::U64(values) = self {
            return Some(values.clone());
        }
        self.to_i64s()?.into_iter().map(|v| v.try_into().ok()).collect()
    }
}
