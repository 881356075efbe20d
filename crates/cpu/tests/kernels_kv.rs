//! Expanding packed keys and values: the bits of the definition, at every level.

use plan::KvType;
use plan::kv::{Codec, Side};
use testkit::Random;
use turbospark_cpu::isa::{Isa, Level};
use turbospark_cpu::kernels::attention::KEYS;
use turbospark_cpu::kernels::kv::{expand_keys, expand_values};

#[test]
fn expanded_blocks_are_the_codecs() {
    for kind in KvType::ALL.into_iter().filter(|k| k.packed()) {
        for dim in [8, 10, 16, 24, 33, 40, 64, 80, 96, 128, 256, 576].into_iter().filter(|dim| kind.fits(*dim)) {
            for side in [Side::Keys, Side::Values] {
                let codec = Codec::new(kind, dim, side);
                let width = codec.bytes();
                let (mut rows, mut expected) = (vec![0; KEYS * width], vec![0.0f32; KEYS * dim]);
                let mut random = Random::new(dim as u64);
                for (row, expected) in rows.chunks_exact_mut(width).zip(expected.chunks_exact_mut(dim)) {
                    codec.encode(&random.normals(dim, 0.5, 3.0), row);
                    codec.decode_stored(row, expected);
                }
                let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                let by_byte: Vec<u8> = (0..KEYS * width).map(|i| rows[i % KEYS * width + i / KEYS]).collect();
                let by_channel: Vec<f32> = (0..KEYS * dim).map(|i| expected[i % KEYS * dim + i / KEYS]).collect();
                for isa in [Level::Scalar, Level::Avx2].into_iter().filter_map(Isa::with) {
                    let mut found = vec![0.0; KEYS * dim];
                    expand_values(isa, &codec, &rows, &mut found);
                    assert_eq!(bits(&found), bits(&expected), "{kind} values of {dim}");
                    expand_keys(isa, &codec, &by_byte, &mut found);
                    assert_eq!(bits(&found), bits(&by_channel), "{kind} keys of {dim}");
                }
            }
        }
    }
}
