//! The one definition of how a head's key or value becomes bytes and what those bytes stand for.
//!
//! A packed vector is a row of sections, each a head and codes:
//!
//! | type | section | head | value of code c |
//! |---|---|---|---|
//! | q8 | 32 channels, the last may be shorter | f16 step d, f16 zero | c · d, c a signed byte in −127..=127 |
//! | q4 | 32 channels, the last may be shorter | f16 step d, f16 minimum m | fma(c, d, m) |
//! | tq4, tq3, tq2 | powers of two from 512 to 8 channels | f32 norm n | level(c) · n, of the rotated vector |
//!
//! Codes of 4 bits: byte j holds channel j in its low half and channel j + ⌈len / 2⌉ in its high half. Of 2 bits: byte j holds
//! channels j + t · len / 4 in bits 2t. Of 3 bits: the low two bits like those, then a plane of bits in order of channels.

use super::KvType;
use super::levels::levels;
use super::rotation::{pieces, rotate, signs, unrotate};
use half::f16;

/// Channels of a section of q8 and q4.
const BLOCK: usize = 32;

/// Whose vectors are stored; decides the signs of the rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Keys.
    Keys,
    /// Values.
    Values,
}

/// Some neighbouring channels of a packed vector that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The first channel.
    pub first: usize,
    /// How many channels.
    pub len: usize,
    /// The first byte.
    pub at: usize,
}

impl Section {
    /// Bytes of head and codes.
    pub fn bytes(&self, kind: KvType) -> usize {
        let codes = match kind {
            KvType::Q8 => self.len,
            KvType::Q4 | KvType::Tq4 => self.len.div_ceil(2),
            KvType::Tq3 => self.len / 8 * 3,
            KvType::Tq2 => self.len / 4,
            KvType::F32 | KvType::F16 => unreachable!("floats have no codes"),
        };
        head_bytes(kind) + codes
    }

    /// The code of channel `i` of the section among its codes.
    #[inline(always)]
    pub fn code(&self, kind: KvType, codes: &[u8], i: usize) -> u8 {
        let stride = self.stride(kind);
        match kind {
            KvType::Q4 | KvType::Tq4 => codes[i % stride] >> (i / stride * 4) & 15,
            KvType::Tq3 => {
                let high = codes[self.len / 4 + i / 8] >> (i % 8) & 1;
                codes[i % stride] >> (i / stride * 2) & 3 | high << 2
            }
            KvType::Tq2 => codes[i % stride] >> (i / stride * 2) & 3,
            KvType::F32 | KvType::F16 | KvType::Q8 => codes[i],
        }
    }

    /// Channels from one code of a byte to the next.
    pub fn stride(&self, kind: KvType) -> usize {
        match kind {
            KvType::Tq3 | KvType::Tq2 => self.len / 4,
            _ => self.len.div_ceil(2),
        }
    }
}

/// Bytes of a section before its codes.
pub fn head_bytes(kind: KvType) -> usize {
    if kind == KvType::Q8 { 2 } else { 4 }
}

/// How a packed vector is cut.
pub(super) fn sections(kind: KvType, dim: usize) -> Vec<Section> {
    let blocks = |dim: usize| (0..dim).step_by(BLOCK).map(move |first| BLOCK.min(dim - first));
    let lens: Vec<usize> = if kind.rotated() { pieces(dim).collect() } else { blocks(dim).collect() };
    let (mut first, mut at) = (0, 0);
    let section = |len| {
        let section = Section { first, len, at };
        (first, at) = (first + len, at + section.bytes(kind));
        section
    };
    lens.into_iter().map(section).collect()
}

/// Encodes and decodes vectors of one type and length.
#[derive(Clone, Debug)]
pub struct Codec {
    kind: KvType,
    dim: usize,
    sections: Vec<Section>,
    /// Sixteen levels a section, ascending, of which those beyond the type's own are not used.
    tables: Vec<[f32; 16]>,
    signs: Vec<f32>,
}

impl Codec {
    /// For vectors of `dim` channels, which must [fit](KvType::fits).
    pub fn new(kind: KvType, dim: usize, side: Side) -> Self {
        debug_assert!(kind.fits(dim));
        let sections = if kind.packed() { sections(kind, dim) } else { Vec::new() };
        let (mut tables, mut all_signs) = (Vec::new(), Vec::new());
        for section in sections.iter().filter(|_| kind.rotated()) {
            let mut table = [f32::INFINITY; 16];
            let bits = match kind {
                KvType::Tq4 => 4,
                KvType::Tq3 => 3,
                _ => 2,
            };
            table.iter_mut().zip(levels(section.len, bits)).for_each(|(to, level)| *to = level);
            tables.push(table);
            all_signs.extend(signs(side as u64, section.len));
        }
        Self { kind, dim, sections, tables, signs: all_signs }
    }

    /// The type.
    pub fn kind(&self) -> KvType {
        self.kind
    }

    /// Channels of a vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Bytes of a vector.
    pub fn bytes(&self) -> usize {
        self.kind.bytes(self.dim)
    }

    /// The sections of a packed vector, in order, each with the levels of its codes; those of q4 and q8 are not used.
    pub fn sections(&self) -> impl Iterator<Item = (Section, &[f32; 16])> {
        const UNUSED: [f32; 16] = [0.0; 16];
        self.sections.iter().enumerate().map(|(i, section)| (*section, self.tables.get(i).unwrap_or(&UNUSED)))
    }

    /// Turns a vector as the model has it into the space that is stored; nothing for types without rotation.
    pub fn rotate(&self, x: &mut [f32]) {
        self.pieces(x, rotate);
    }

    /// The inverse of [`Self::rotate`].
    pub fn unrotate(&self, x: &mut [f32]) {
        self.pieces(x, unrotate);
    }

    fn pieces(&self, x: &mut [f32], turn: fn(&mut [f32], &[f32])) {
        for s in self.sections.iter().filter(|_| self.kind.rotated()) {
            turn(&mut x[s.first..s.first + s.len], &self.signs[s.first..]);
        }
    }

    /// Stores a vector; what is no number makes its section none.
    pub fn encode(&self, x: &[f32], bytes: &mut [u8]) {
        match self.kind {
            KvType::F32 => bytes.as_chunks_mut().0.iter_mut().zip(x).for_each(|(b, x)| *b = x.to_le_bytes()),
            KvType::F16 => {
                bytes.as_chunks_mut().0.iter_mut().zip(x).for_each(|(b, x)| *b = f16::from_f32(*x).to_le_bytes());
            }
            _ => {
                for (section, table) in self.sections() {
                    let x = &x[section.first..][..section.len];
                    let bytes = &mut bytes[section.at..][..section.bytes(self.kind)];
                    match self.kind {
                        KvType::Q8 => encode_q8(x, bytes),
                        KvType::Q4 => encode_q4(x, bytes),
                        kind => encode_rotated((kind, section, table), x, &self.signs[section.first..], bytes),
                    }
                }
            }
        }
    }

    /// The vector that bytes stand for.
    pub fn decode(&self, bytes: &[u8], x: &mut [f32]) {
        self.decode_stored(bytes, x);
        self.unrotate(x);
    }

    /// The same before the rotation is undone.
    pub fn decode_stored(&self, bytes: &[u8], x: &mut [f32]) {
        match self.kind {
            KvType::F32 => x.iter_mut().zip(bytes.as_chunks().0).for_each(|(x, b)| *x = f32::from_le_bytes(*b)),
            KvType::F16 => {
                x.iter_mut().zip(bytes.as_chunks().0).for_each(|(x, b)| *x = f16::from_le_bytes(*b).to_f32())
            }
            _ => {
                for (section, table) in self.sections() {
                    let x = &mut x[section.first..][..section.len];
                    let bytes = &bytes[section.at..][..section.bytes(self.kind)];
                    decode_section((self.kind, section, table), bytes, x);
                }
            }
        }
    }
}

/// The least f16 that is not below `x`, and no infinity.
fn f16_at_least(x: f32) -> f16 {
    let near = f16::from_f32(x.clamp(0.0, f16::MAX.to_f32()));
    if near.to_f32() < x && near < f16::MAX { f16::from_bits(near.to_bits() + 1) } else { near }
}

/// The greatest f16 that is not above `x`, and no infinity.
fn f16_at_most(x: f32) -> f16 {
    let near = f16::from_f32(x.clamp(f16::MIN.to_f32(), f16::MAX.to_f32()));
    match near.to_f32() > x {
        false => near,
        true if near.to_bits() == 0 => -f16::MIN_POSITIVE_SUBNORMAL,
        true if near.is_sign_positive() => f16::from_bits(near.to_bits() - 1),
        true => f16::from_bits(near.to_bits() + 1),
    }
}

fn step(d: f32, x: &[f32]) -> f16 {
    if x.iter().all(|x| x.is_finite()) { f16_at_least(d) } else { f16::NAN }
}

/// `step = max|x| / 127`, rounded up so that no code is cut off.
fn encode_q8(x: &[f32], bytes: &mut [u8]) {
    let largest = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    let d = step(largest / 127.0, x);
    let (head, codes) = bytes.split_at_mut(2);
    head.copy_from_slice(&d.to_le_bytes());
    let d = d.to_f32();
    for (code, x) in codes.iter_mut().zip(x) {
        let q = if d > 0.0 { (x / d).round_ties_even().clamp(-127.0, 127.0) } else { 0.0 };
        *code = q as i8 as u8;
    }
}

/// `minimum = min x` rounded down, `step = (max x - minimum) / 15` rounded up.
fn encode_q4(x: &[f32], bytes: &mut [u8]) {
    let (min, max) = x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), x| (min.min(*x), max.max(*x)));
    let m = f16_at_most(min);
    let d = step((max - m.to_f32()) / 15.0, x);
    let (head, codes) = bytes.split_at_mut(4);
    head[..2].copy_from_slice(&d.to_le_bytes());
    head[2..].copy_from_slice(&m.to_le_bytes());
    let (d, m, half) = (d.to_f32(), m.to_f32(), x.len().div_ceil(2));
    let code = |x: &f32| if d > 0.0 { ((x - m) / d).round_ties_even().clamp(0.0, 15.0) as u8 } else { 0 };
    for (j, byte) in codes.iter_mut().enumerate() {
        *byte = code(&x[j]) | x.get(j + half).map_or(0, code) << 4;
    }
}

fn encode_rotated((kind, section, table): (KvType, Section, &[f32; 16]), x: &[f32], signs: &[f32], bytes: &mut [u8]) {
    let mut y = [0.0; super::rotation::LARGEST];
    let y = &mut y[..x.len()];
    y.copy_from_slice(x);
    rotate(y, signs);
    let norm = x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt() as f32;
    let (head, codes) = bytes.split_at_mut(4);
    head.copy_from_slice(&norm.to_le_bytes());
    codes.fill(0);
    let stride = section.stride(kind);
    let count = match kind {
        KvType::Tq4 => 16,
        KvType::Tq3 => 8,
        _ => 4,
    };
    for (i, y) in y.iter().enumerate() {
        let unit = y / norm;
        // The nearest level: as many as have the middle to the next below the value.
        let code = table[..count].windows(2).filter(|pair| (pair[0] + pair[1]) / 2.0 < unit).count() as u8;
        match kind {
            KvType::Tq4 => codes[i % stride] |= code << (i / stride * 4),
            _ => codes[i % stride] |= (code & 3) << (i / stride * 2),
        }
        if kind == KvType::Tq3 {
            codes[section.len / 4 + i / 8] |= code >> 2 << (i % 8);
        }
    }
}

fn decode_section((kind, section, table): (KvType, Section, &[f32; 16]), bytes: &[u8], x: &mut [f32]) {
    let half = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
    let codes = &bytes[head_bytes(kind)..];
    match kind {
        KvType::Q8 => {
            let d = half(0);
            x.iter_mut().zip(codes).for_each(|(x, code)| *x = f32::from(*code as i8) * d);
        }
        KvType::Q4 => {
            let (d, m) = (half(0), half(2));
            x.iter_mut().enumerate().for_each(|(i, x)| *x = f32::from(section.code(kind, codes, i)).mul_add(d, m));
        }
        _ => {
            let norm = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let level = |i| table[usize::from(section.code(kind, codes, i))];
            x.iter_mut().enumerate().for_each(|(i, x)| *x = level(i) * norm);
        }
    }
}
