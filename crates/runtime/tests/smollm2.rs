use foundation::TokenId;
use testkit::{agreement, recorded};
use turbospark_runtime::*;
#[test]
fn quick() {
    let Ok(path) = std::env::var("M") else { return };
    let name = std::env::var("N").unwrap();
    let options = OpenOptions { all_logits: true, context: Some(512), threads: Some(2), ..OpenOptions::default() };
    let t = std::time::Instant::now();
    let mut e = Engine::open(&path, &options).unwrap();
    println!("open {:?} {:?}", t.elapsed(), e.report());
    let runs = recorded(&name);
    let vocab = e.producer().vocab();
    let a = agreement(&runs, vocab, |t| {
        let t: Vec<_> = t.iter().copied().map(TokenId).collect();
        all_logits(e.producer(), &t, 256).unwrap()
    });
    println!("{a}");
    for r in &runs {
        let t: Vec<_> = r.prompt_ids.iter().copied().map(TokenId).collect();
        let c = GenerationConfig { max_new_tokens: Some(r.gen_ids.len()), ..Default::default() };
        let g = e.generate(&t, &c, &|| false, &mut |_| {}).unwrap();
        println!("{:?}\n  ours {:?} {:?}\n theirs {:?} pre {:?} dec {:?}", r.prompt, g.text, g.reason, r.text, g.prefill, g.decode);
    }
    let c = GenerationConfig { max_new_tokens: Some(100), ignore_eos: true, ..Default::default() };
    let p: Vec<_> = (0..200).map(|i| TokenId(1000 + i * 7)).collect();
    let g = e.generate(&p, &c, &|| false, &mut |_| {}).unwrap();
    println!("pp200 {:.1} tok/s  tg100 {:.1} tok/s", 200.0 / g.prefill.as_secs_f64(), 100.0 / g.decode.as_secs_f64());
}
