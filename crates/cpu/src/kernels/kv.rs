//! Packed keys and values back to f32, a block at a time; [`plan::kv::Codec`] defines the values, and these equal it bit for bit.
//!
//! Keys are kept byte by byte, `[bytes][KEYS]`, so that a lane is a key like in the products that follow; values are kept vector by
//! vector, and a lane is a channel.

use super::attention::KEYS;
use crate::isa::{Isa, Kernel, Widen};
use half::f16;
use plan::KvType;
use plan::kv::{Codec, Section, head_bytes};

/// Expands [`KEYS`] keys, `[codec.bytes()][KEYS]`, to `[dim][KEYS]`, as they are before a rotation is undone.
///
/// # Panics
/// If the lengths do not agree.
pub fn expand_keys(isa: Isa, codec: &Codec, bytes: &[u8], out: &mut [f32]) {
    assert_eq!((bytes.len(), out.len()), (codec.bytes() * KEYS, codec.dim() * KEYS), "whole blocks of {KEYS} keys");
    isa.run(Keys { codec, bytes: bytes.as_chunks().0, out: out.as_chunks_mut().0 });
}

/// Expands values, `[values][codec.bytes()]`, to `[values][dim]`, as they are before a rotation is undone.
///
/// # Panics
/// If the lengths do not agree.
pub fn expand_values(isa: Isa, codec: &Codec, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(bytes.len() * codec.dim(), out.len() * codec.bytes(), "as many vectors as places for them");
    isa.run(Values { codec, bytes, out });
}

struct Keys<'a> {
    codec: &'a Codec,
    bytes: &'a [[u8; KEYS]],
    out: &'a mut [[f32; KEYS]],
}

impl Kernel for Keys<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Widen>(self, widen: W) {
        let kind = self.codec.kind();
        for (section, table) in self.codec.sections() {
            let bytes = &self.bytes[section.at..][..section.bytes(kind)];
            let out = &mut self.out[section.first..][..section.len];
            let (head, codes) = bytes.split_at(head_bytes(kind));
            match kind {
                KvType::Q8 => {
                    let step = halves(widen, &head[0], &head[1]);
                    for (codes, out) in codes.iter().zip(out) {
                        for lane in 0..KEYS {
                            out[lane] = f32::from(codes[lane] as i8) * step[lane];
                        }
                    }
                }
                KvType::Q4 => {
                    let (step, min) = (halves(widen, &head[0], &head[1]), halves(widen, &head[2], &head[3]));
                    let (low, high) = out.split_at_mut(section.stride(kind));
                    for (codes, out) in codes.iter().zip(low) {
                        for lane in 0..KEYS {
                            out[lane] = f32::from(codes[lane] & 15).mul_add(step[lane], min[lane]);
                        }
                    }
                    for (codes, out) in codes.iter().zip(high) {
                        for lane in 0..KEYS {
                            out[lane] = f32::from(codes[lane] >> 4).mul_add(step[lane], min[lane]);
                        }
                    }
                }
                _ => {
                    let mut norm = [0.0; KEYS];
                    for lane in 0..KEYS {
                        norm[lane] = f32::from_le_bytes([head[0][lane], head[1][lane], head[2][lane], head[3][lane]]);
                    }
                    for (channel, out) in out.iter_mut().enumerate() {
                        let places = key_codes(kind, &section, codes, channel);
                        for (i, places) in places.as_chunks::<8>().0.iter().enumerate() {
                            let levels = widen.look_up(table, places);
                            for lane in 0..8 {
                                out[i * 8 + lane] = levels[lane] * norm[i * 8 + lane];
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The f16 values of [`KEYS`] lanes, given byte by byte.
#[inline(always)]
fn halves<W: Widen>(widen: W, low: &[u8; KEYS], high: &[u8; KEYS]) -> [f32; KEYS] {
    let mut bits = [0; KEYS];
    for lane in 0..KEYS {
        bits[lane] = u16::from_le_bytes([low[lane], high[lane]]);
    }
    let mut values = [0.0; KEYS];
    for (bits, values) in bits.as_chunks::<8>().0.iter().zip(values.as_chunks_mut::<8>().0) {
        *values = widen.widen(bits);
    }
    values
}

/// The codes of one channel of a rotated section for every lane.
#[inline(always)]
fn key_codes(kind: KvType, section: &Section, codes: &[[u8; KEYS]], channel: usize) -> [u8; KEYS] {
    let stride = section.stride(kind);
    let (bits, mask) = if kind == KvType::Tq4 { (4, 15) } else { (2, 3) };
    let (low, shift) = (&codes[channel % stride], (channel / stride * bits) as u32);
    let mut places = [0; KEYS];
    for lane in 0..KEYS {
        places[lane] = low[lane] >> shift & mask;
    }
    if kind == KvType::Tq3 {
        let (high, shift) = (&codes[section.len / 4 + channel / 8], (channel % 8) as u32);
        for lane in 0..KEYS {
            places[lane] |= (high[lane] >> shift & 1) << 2;
        }
    }
    places
}

struct Values<'a> {
    codec: &'a Codec,
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl Kernel for Values<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Widen>(self, widen: W) {
        let kind = self.codec.kind();
        let vectors = self.bytes.chunks_exact(self.codec.bytes()).zip(self.out.chunks_exact_mut(self.codec.dim()));
        for (bytes, out) in vectors {
            for (section, table) in self.codec.sections() {
                let out = &mut out[section.first..][..section.len];
                let (head, codes) = bytes[section.at..][..section.bytes(kind)].split_at(head_bytes(kind));
                let half = |at: usize| f16::from_le_bytes([head[at], head[at + 1]]).to_f32_const();
                match kind {
                    KvType::Q8 => {
                        let step = half(0);
                        for (code, out) in codes.iter().zip(out) {
                            *out = f32::from(*code as i8) * step;
                        }
                    }
                    KvType::Q4 => {
                        let (step, min) = (half(0), half(2));
                        let (low, high) = out.split_at_mut(codes.len());
                        for (code, out) in codes.iter().zip(low) {
                            *out = f32::from(*code & 15).mul_add(step, min);
                        }
                        for (code, out) in codes.iter().zip(high) {
                            *out = f32::from(*code >> 4).mul_add(step, min);
                        }
                    }
                    _ => {
                        let norm = f32::from_le_bytes([head[0], head[1], head[2], head[3]]);
                        rotated(widen, (kind, &section, table), codes, norm, out);
                    }
                }
            }
        }
    }
}

/// One section of a rotated value.
#[inline(always)]
fn rotated<W: Widen>(
    widen: W,
    (kind, section, table): (KvType, &Section, &[f32; 16]),
    codes: &[u8],
    norm: f32,
    out: &mut [f32],
) {
    let stride = section.stride(kind);
    if stride % 8 != 0 {
        for (i, out) in out.iter_mut().enumerate() {
            *out = table[usize::from(section.code(kind, codes, i))] * norm;
        }
        return;
    }
    let (bits, mask) = if kind == KvType::Tq4 { (4, 15) } else { (2, 3) };
    for (eight, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let (at, shift) = (eight * 8 % stride, (eight * 8 / stride * bits) as u32);
        let low = codes[at..].first_chunk::<8>().expect("strides of whole eights");
        let mut places = [0; 8];
        for lane in 0..8 {
            places[lane] = low[lane] >> shift & mask;
        }
        if kind == KvType::Tq3 {
            let high = codes[section.len / 4 + eight];
            for (lane, place) in places.iter_mut().enumerate() {
                *place |= (high >> lane & 1) << 2;
            }
        }
        let levels = widen.look_up(table, &places);
        for lane in 0..8 {
            out[lane] = levels[lane] * norm;
        }
    }
}
