//! Every type of cached keys and values under a family's golden models.

use super::{Opened, one_file_each, same_bits};
use plan::{KvType, KvTypes};
use testkit::nmse;
use turbospark_runtime::DeviceKind;

/// Types and the largest NMSE against an f32 cache. Random weights are harsher than trained ones: an error may choose another
/// expert or another block of keys.
const TYPES: [(&str, f64); 8] =
    [("f16", 0.02), ("q8", 0.2), ("q8:q4", 0.6), ("q4", 0.8), ("tq4", 0.8), ("tq3.5", 1.2), ("tq3", 1.2), ("tq2", 1.6)];

/// Each type gives finite logits that its rounding moves, within a bound; and within a type the bits depend on no chunk, no
/// rewind and no second opening.
pub(crate) fn every_type_is_exact_in_itself(models: &[&str]) {
    for golden in one_file_each(models) {
        let open = |kv: KvTypes| Opened::with(&golden, DeviceKind::Cpu, kv);
        let wide = open(KvTypes::both(KvType::F32)).rest(usize::MAX);
        for (name, bound) in TYPES {
            let (case, kv) = (format!("{}, {name}", golden.model), name.parse().expect("a type"));
            let mut opened = open(kv);
            let (whole, vocab) = (opened.rest(usize::MAX), opened.producer.vocab());
            assert!(whole.iter().all(|x| x.is_finite()), "{case}");
            let error = nmse(&whole, &wide);
            println!("{case}: {error:.2e}");
            assert!(error > 0.0 && error <= bound, "{case}: {error:e} of {bound}");
            let reached = opened.producer.rewind(33);
            assert!(same_bits(&opened.rest(5), &whole[reached * vocab..]), "{case}, rewound to {reached}");
            opened.producer.reset();
            assert!(same_bits(&opened.rest(1), &whole), "{case}, row by row");
            assert!(same_bits(&open(kv).rest(13), &whole), "{case}, opened again");
        }
    }
}
