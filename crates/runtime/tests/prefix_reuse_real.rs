//! What a prompt shares with what is in the cache is not computed again, on real forward passes, and changes no token.

use foundation::TokenId;
use testkit::{golden, with_whole};
use turbospark_runtime::{Engine, GenerationConfig, OpenOptions};

fn engine(model: &str) -> Engine {
    let open = |path: &std::path::Path| Engine::open(path, &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    with_whole(&golden(model).join("model.gguf"), open)
}

/// The greedy answer, how much of the prompt was reused and how much was fed.
fn answer(engine: &mut Engine, prompt: &[TokenId]) -> (Vec<TokenId>, usize) {
    let config = GenerationConfig { max_new_tokens: Some(8), ..GenerationConfig::default() };
    let result = engine.generate(prompt, &config, &|| false, &mut |_| {}).expect("runs");
    (result.ids, result.reused_prefix_tokens)
}

#[test]
fn a_conversation_reuses_its_past_and_answers_as_a_cold_model_would() {
    for model in ["llama", "gemma4_dense", "gpt_oss_lim7", "qwen3_5", "deepseek2", "qwen4_exp_ple64", "minimax_m2"] {
        let mut warm = engine(model);
        let mut prompt: Vec<TokenId> = (0..40).map(|i| TokenId(3 + i * 5 % 200)).collect();
        for turn in 0..4 {
            let (ids, reused) = answer(&mut warm, &prompt);
            assert_eq!(ids, answer(&mut engine(model), &prompt).0, "{model}, turn {turn}");
            if turn > 0 {
                // A turn adds 8 tokens and its own 6; at most a kept point's distance more is fed.
                assert!(reused + 16 >= prompt.len(), "{model}, turn {turn}: {reused} of {}", prompt.len());
            }
            prompt.extend(ids);
            prompt.extend((0..6).map(|i| TokenId(7 + turn * 11 + i)));
        }
        // An edit keeps what comes before it, as far as the model's state can be put back.
        prompt[30] = TokenId(2);
        let (ids, reused) = answer(&mut warm, &prompt);
        assert!(reused <= 30, "{model}: {reused}");
        assert_eq!(ids, answer(&mut engine(model), &prompt).0, "{model} after an edit");
        // The same prompt again: one token is always fed.
        let (again, reused) = answer(&mut warm, &prompt);
        assert_eq!((again, reused < prompt.len()), (ids, true), "{model} again");
    }
}
