//! Conversations that outgrow their context: whole turns go, the rest is a prompt like any other.

#[path = "scheduler/toy.rs"]
mod toy;

use foundation::TokenId;
use plan::KV_BLOCK;
use testkit::Random;
use tokenizer::{ChatRequest, Tokenizer};
use toy::Toy;
use turbospark_runtime::{
    ContextShift, Generation, GenerationConfig, LogitProducer, Message, PromptRoom, RealForwardRunner, RuntimeError,
    Shifted, Want, byte_tokenizer, run_raw_completion_chunked,
};

const CONTEXT: usize = 256;

/// `<|im_start|>`, the role, a line end, the message, `<|im_end|>`, a line end; the assistant's begins at the end.
fn render(tokenizer: &Tokenizer, messages: &[Message]) -> Result<Vec<TokenId>, RuntimeError> {
    let request = ChatRequest { messages: messages.to_vec(), add_generation_prompt: true, ..ChatRequest::default() };
    Ok(tokenizer.encode_chat(&request)?)
}

fn fit(shift: &mut ContextShift, messages: &[Message], new: Option<usize>) -> Result<Shifted, RuntimeError> {
    let tokenizer = byte_tokenizer().expect("builds");
    shift.fit(messages, PromptRoom { context: CONTEXT, new }, |messages| render(&tokenizer, messages))
}

fn text(prompt: &[TokenId]) -> String {
    prompt.iter().map(|id| u8::try_from(id.0).map_or('|', char::from)).collect()
}

fn tool(content: &str) -> Message {
    Message { role: "tool".into(), ..Message::user(content) }
}

#[test]
fn whole_turns_go_and_the_head_stays() {
    let mut talk = vec![Message::system("be brief")];
    for n in 0..4 {
        talk.push(Message::user(format!("question {n}")));
        talk.push(Message::assistant(format!("call {n}")));
        talk.push(tool(&format!("result {n}")));
        talk.push(Message::assistant(format!("answer {n}")));
        let mut shift = ContextShift::default();
        let whole = render(&byte_tokenizer().expect("builds"), &talk[..talk.len() - 3]).expect("renders");
        let shifted = fit(&mut shift, &talk[..talk.len() - 3], Some(20)).expect("fits");
        assert!(shifted.prompt.len() + 20 <= CONTEXT);
        let seen = text(&shifted.prompt);
        assert!(seen.starts_with("|system\nbe brief|\n|user\nquestion ") && seen.ends_with("|assistant\n"), "{seen}");
        assert!(seen.contains(&format!("question {n}")));
        match shifted.newly_left_out {
            0 => assert_eq!(shifted.prompt, whole),
            turns => {
                assert!(whole.len() + 20 > CONTEXT && shifted.prompt.len() <= CONTEXT / 2, "{seen}");
                // A turn goes with its call, its result and its answer.
                for gone in 0..turns {
                    for part in ["question", "call", "result", "answer"] {
                        assert!(!seen.contains(&format!("{part} {gone}")), "{seen}");
                    }
                }
            }
        }
        assert_eq!(shifted.newly_left_out, shift.left_out());
    }
}

#[test]
fn what_cannot_fit_is_refused_with_the_numbers() {
    let long = Message::user("x".repeat(CONTEXT));
    let talk = [Message::user("before"), Message::assistant("yes"), long];
    let mut shift = ContextShift::default();
    let error = fit(&mut shift, &talk, Some(9)).expect_err("is refused");
    assert!(matches!(error, RuntimeError::LastTurnTooLong { prompt: 275, new: 9, context: CONTEXT }), "{error}");
    assert_eq!(shift, ContextShift::default());
    // What leaves room for one token is taken where the answer has no size, however narrow that is.
    let narrow = [Message::user("x".repeat(CONTEXT - 20))];
    assert_eq!(fit(&mut shift, &narrow, None).expect("fits").prompt.len(), CONTEXT - 1);
    assert!(fit(&mut shift, &narrow, Some(2)).is_err() && fit(&mut shift, &narrow, Some(usize::MAX)).is_err());
    assert_eq!(fit(&mut shift, &[], None).expect("fits").prompt.len(), 11);
    let failing = |_: &[Message]| Err(RuntimeError::NoChatTemplate);
    let error = shift.fit(&talk, PromptRoom { context: CONTEXT, new: None }, failing);
    assert!(matches!(error, Err(RuntimeError::NoChatTemplate)));
}

/// Long conversations on a full and on a recurrent model: the tokens are those of a cold run of the shortened prompt, and a
/// turn feeds what is new unless turns were left out.
#[test]
fn a_long_conversation_goes_on_exactly() {
    let tokenizer = byte_tokenizer().expect("builds");
    for slots in [0, 8] {
        let toy = || Toy::new(CONTEXT / KV_BLOCK, 64, 1, slots);
        let mut runner = RealForwardRunner::new(toy(), CONTEXT);
        let (mut shift, mut random) = (ContextShift::default(), Random::new(5));
        let (mut talk, mut shifts, mut in_place) = (vec![Message::system("s")], 0, 0);
        for turn in 0..60 {
            talk.push(Message::user("q".repeat(1 + random.below(40))));
            let shifted = fit(&mut shift, &talk, Some(24)).expect("fits");
            let config = GenerationConfig { max_new_tokens: Some(24), ..GenerationConfig::default() };
            let rows: usize = runner.exec().runs.iter().sum();
            let answer = |producer: &mut dyn LogitProducer| {
                let generation =
                    Generation { producer, tokenizer: &tokenizer, config: &config, chunk: 16, cancel: &|| false };
                run_raw_completion_chunked(generation, &shifted.prompt, &mut |_| {}).expect("runs")
            };
            let warm = answer(&mut runner);
            let cold = answer(&mut RealForwardRunner::new(toy(), CONTEXT));
            assert_eq!(warm.ids, cold.ids, "turn {turn}");
            // Rows fed: the prompt that was not there, and every token of the answer but the last.
            let rows = runner.exec().runs.iter().sum::<usize>() - rows;
            assert_eq!(rows, shifted.prompt.len() - warm.reused_prefix_tokens + warm.new_tokens - 1);
            if shifted.newly_left_out > 0 {
                shifts += 1;
            } else if turn > 0 {
                // The last token of the answer, its end, and the new message.
                let question =
                    talk.last().map_or(0, |m| render(&tokenizer, std::slice::from_ref(m)).map_or(0, |r| r.len()));
                assert_eq!(shifted.prompt.len() - warm.reused_prefix_tokens, question + 3, "turn {turn}");
                in_place += 1;
            }
            talk.push(Message::assistant(warm.text));
        }
        println!("{slots} copies of state: {shifts} shifts in 60 turns, {in_place} turns in place");
        assert!(shifts > 5 && in_place > shifts / 2, "{shifts} shifts, {in_place} in place");
    }
}

/// The next logits after a shift, bit by bit.
#[test]
fn the_bits_after_a_shift_are_those_of_a_cold_run() {
    let mut talk = vec![Message::system("s")];
    let (mut shift, mut warm) = (ContextShift::default(), RealForwardRunner::new(Toy::new(8, 256, 1, 8), CONTEXT));
    for n in 0..30 {
        talk.push(Message::user(format!("{n} and so on")));
        let prompt = fit(&mut shift, &talk, None).expect("fits").prompt;
        let last = |producer: &mut dyn LogitProducer| {
            let reused = producer.resume(&prompt);
            let mut logits = vec![0.0; producer.vocab()];
            producer.produce(&prompt[reused..], Want::Last, &mut logits).expect("is fed");
            logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        assert!(last(&mut warm) == last(&mut RealForwardRunner::new(Toy::new(8, 256, 1, 8), CONTEXT)), "turn {n}");
        talk.push(Message::assistant("yes"));
    }
    assert!(shift.left_out() > 10);
}
