//! What chunked prefill refuses. No family is among it: each is served in chunks (`real_forward_*_chunked`).

use foundation::TokenId;
use plan::Want;
use testkit::{families, with_whole};
use turbospark_runtime::{OpenOptions, open_logits};

#[test]
fn no_family_is_refused_and_what_cannot_be_fed_is() {
    let files = families().into_iter().filter(|f| f.file == "model.safetensors");
    for golden in files {
        let options = OpenOptions { context: Some(16), prefill_chunk: 8, ..OpenOptions::default() };
        let open = |path: &std::path::Path| open_logits(path, &options).unwrap_or_else(|e| panic!("{e}"));
        let (mut producer, _) = with_whole(&golden.path(), open);
        let vocab = producer.vocab();
        let ids = |n: usize| vec![TokenId(3); n];
        producer.produce(&ids(8), Want::Nothing, &mut []).unwrap_or_else(|e| panic!("{}: {e}", golden.model));
        let mut row = vec![0.0; vocab];
        let mut refused = |tokens: &[TokenId], want, logits: &mut [f32], parts: &[&str]| {
            let message = producer.produce(tokens, want, logits).expect_err("is refused").to_string();
            for part in parts {
                assert!(message.contains(part), "{}: {part:?} is not in {message:?}", golden.model);
            }
            assert_eq!(producer.position(), 8, "{}: nothing was fed", golden.model);
        };
        refused(&[], Want::Nothing, &mut [], &["at least one token"]);
        refused(&ids(9), Want::Last, &mut row, &["9", "8", "16"]);
        refused(&[TokenId(vocab as u32)], Want::Last, &mut row, &[&vocab.to_string()]);
        refused(&ids(2), Want::Last, &mut vec![0.0; vocab - 1], &[&vocab.to_string(), &(vocab - 1).to_string()]);
        producer.produce(&ids(8), Want::Last, &mut row).unwrap_or_else(|e| panic!("{}: {e}", golden.model));
        assert!(row.iter().all(|x| x.is_finite()));
    }
}
