//! The codecs of cached keys and values.

use proptest::prelude::*;
use testkit::{Random, nmse};
use turbospark_plan::KvType;
use turbospark_plan::kv::{Codec, Side};

/// Head sizes in use, and some that are no multiple of a block or a power of two.
const DIMS: [usize; 14] = [8, 16, 24, 32, 40, 64, 72, 80, 96, 112, 128, 192, 256, 576];

fn stored(codec: &Codec, x: &[f32]) -> Vec<f32> {
    let (mut bytes, mut y) = (vec![0; codec.bytes()], vec![0.0; x.len()]);
    codec.encode(x, &mut bytes);
    codec.decode(&bytes, &mut y);
    y
}

/// Σ(a-b)² / Σb² of normal values: the bits' own share, not a codec's mistake.
fn bound(kind: KvType) -> f64 {
    match kind {
        KvType::F32 => 0.0,
        KvType::F16 => 1e-7,
        KvType::Q8 => 6e-5,
        KvType::Q4 => 8e-3,
        // Lloyd–Max on normal values loses 0.0095, 0.0345 and 0.1175 of the energy; few channels lose a little less.
        KvType::Tq4 => 0.0115,
        KvType::Tq3 => 0.037,
        KvType::Tq2 => 0.125,
    }
}

#[test]
fn every_type_stores_every_head_size() {
    for kind in KvType::ALL {
        for dim in DIMS {
            for side in [Side::Keys, Side::Values] {
                let codec = Codec::new(kind, dim, side);
                let mut random = Random::new(dim as u64);
                let (mut found, mut wanted) = (Vec::new(), Vec::new());
                for _ in 0..40 {
                    let x = random.normals(dim, 0.0, 2.0);
                    found.extend(stored(&codec, &x));
                    wanted.extend(x);
                }
                let error = nmse(&found, &wanted);
                assert!(error <= bound(kind), "{kind} of {dim} {side:?}: {error:e}");
                assert!(
                    kind == KvType::F32 || error > bound(kind) / 20.0,
                    "{kind} of {dim} {side:?}: {error:e} is too good"
                );
            }
        }
    }
}

#[test]
fn bytes_are_those_announced() {
    for (kind, dim, expected) in [
        (KvType::F32, 64, 256),
        (KvType::F16, 64, 128),
        (KvType::Q8, 64, 68),
        (KvType::Q8, 80, 86),
        (KvType::Q4, 64, 40),
        (KvType::Q4, 80, 52),
        (KvType::Q4, 10, 9),
        (KvType::Tq4, 64, 36),
        (KvType::Tq3, 64, 28),
        (KvType::Tq2, 64, 20),
        (KvType::Tq3, 80, 38),
        (KvType::Tq2, 0, 0),
        (KvType::Q8, 0, 0),
    ] {
        assert_eq!(kind.bytes(dim), expected, "{kind} of {dim}");
    }
    assert!(!KvType::Tq3.fits(10) && KvType::Q4.fits(10) && KvType::Tq3.fits(72));
}

/// Case D32: an error is at most half a step of the block's own range, and missing channels of a last block change no step.
#[test]
fn d32_head_size_80_in_blocks_of_32() {
    for (kind, steps) in [(KvType::Q8, 254.0), (KvType::Q4, 15.0)] {
        let codec = Codec::new(kind, 80, Side::Keys);
        let mut random = Random::new(80);
        for scale in [1e-3, 1.0, 600.0] {
            let mut x = random.normals(80, 0.0, scale);
            let y = stored(&codec, &x);
            for (x, y) in x.chunks(32).zip(y.chunks(32)) {
                let (min, max) = x.iter().fold((0.0f32, 0.0f32), |(min, max), x| (min.min(*x), max.max(*x)));
                let range = if kind == KvType::Q8 { 2.0 * max.max(-min) } else { max - min };
                // The step is an f16 rounded up.
                let half_step = range / steps / 2.0 * 1.003 + 1e-7;
                assert!(
                    x.iter().zip(y).all(|(x, y)| (x - y).abs() <= half_step),
                    "{kind}, {scale}: {x:?} became {y:?}"
                );
            }
            // The last 16 channels alone are stored as they are beside others, and as 16 channels of a head of 16.
            x[..64].fill(0.0);
            assert_eq!(stored(&codec, &x)[64..], y[64..], "{kind}");
            assert_eq!(stored(&Codec::new(kind, 16, Side::Keys), &x[64..]), y[64..], "{kind}");
        }
    }
}

#[test]
fn special_values() {
    for kind in KvType::ALL {
        let codec = Codec::new(kind, 64, Side::Values);
        assert!(stored(&codec, &[0.0; 64]).iter().all(|x| *x == 0.0), "{kind}: zeros");
        for bad in [f32::NAN, f32::INFINITY] {
            let mut x = [1.0; 64];
            x[3] = bad;
            assert!(!stored(&codec, &x)[3].is_finite(), "{kind}: {bad} must not turn into a number");
        }
        for (value, limit) in [(1e-30, 1e-7), (1e-6, 4e-6), (30_000.0, 8e4), (-600.0, 1.6e3)] {
            let y = stored(&codec, &[value; 64]);
            assert!(y.iter().all(|y| (y - value).abs() <= limit), "{kind} of {value}: {y:?}");
        }
    }
}

proptest! {
    /// Encoding depends on the vector alone, and what was decoded encodes to values as near.
    #[test]
    fn encoding_is_a_function(seed in any::<u64>(), at in 0..DIMS.len(), kind in 0..KvType::ALL.len()) {
        let codec = Codec::new(KvType::ALL[kind], DIMS[at], Side::Keys);
        let x = Random::new(seed).normals(DIMS[at], 0.3, 1.0);
        let (mut a, mut b) = (vec![0; codec.bytes()], vec![0xff; codec.bytes()]);
        codec.encode(&x, &mut a);
        codec.encode(&x, &mut b);
        prop_assert_eq!(&a, &b);
        let (mut turned, mut plain) = (x.clone(), vec![0.0; x.len()]);
        codec.rotate(&mut turned);
        codec.unrotate(&mut turned);
        prop_assert!(nmse(&turned, &x) < 1e-12);
        codec.decode_stored(&a, &mut plain);
        codec.unrotate(&mut plain);
        prop_assert_eq!(plain, stored(&codec, &x));
    }
}
