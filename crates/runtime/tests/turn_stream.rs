//! A turn's events: what every dialect writes comes apart in order, whole, by callback and from a queue, however it ends.

extern crate tokenizer as turbospark_tokenizer;

#[path = "../../tokenizer/tests/support/mod.rs"]
mod support;

use foundation::TokenId;
use plan::{Fault, Script, ScriptedExec};
use serde_json::json;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use support::dialects::{HOLDS, Holds, begins, calls_of, dialect_vocabulary, encode, joined, text_of};
use tokenizer::{CallError, Dialect, DialectError, ReplyEvent, Tokenizer, ToolCall, Tools};
use turbospark_runtime::{
    Engine, FinishReason, Generation, GenerationConfig, OpenOptions, Progress, RealForwardRunner, Request,
    RuntimeError, Scheduler, SchedulerOptions, Service, StopReason, TurnEnd, TurnEvent, TurnOptions, TurnSplitter,
    TurnStream, run_raw_completion_chunked,
};

const CONTEXT: usize = 1024;
const EOS: TokenId = TokenId(257);

/// A dialect's vocabulary, and a model that answers by a script.
struct Model {
    tokenizer: Arc<Tokenizer>,
    options: TurnOptions,
    answer: Vec<TokenId>,
}

impl Model {
    fn new(dialect: &'static Dialect, holds: Holds, text: &str) -> Self {
        let tokenizer = Arc::new(dialect_vocabulary(dialect, holds));
        let mut answer = encode(&tokenizer, text);
        answer.push(EOS);
        Self { tokenizer, options: TurnOptions { dialect: Some(dialect), tools: Some(tools()) }, answer }
    }

    fn without_tools(mut self) -> Self {
        self.options.tools = None;
        self
    }

    fn exec(&self, faults: Vec<Fault>) -> ScriptedExec {
        let script = Script::of_ids(self.tokenizer.vocab_size(), &self.answer);
        ScriptedExec::new(Script { faults, ..script }, CONTEXT / plan::KV_BLOCK)
    }

    fn prompt(&self) -> Vec<TokenId> {
        encode(&self.tokenizer, "say it")
    }

    /// The events of one turn by callback; it is cancelled after so many polls.
    fn turn(&self, config: &GenerationConfig, polls: usize) -> (Vec<TurnEvent>, TurnEnd) {
        let prompt = self.prompt();
        let mut splitter = TurnSplitter::new(&self.tokenizer, &prompt, config, &self.options).expect("is understood");
        let (asked, mut events) = (Cell::new(0), Vec::new());
        let cancel = || {
            asked.set(asked.get() + 1);
            asked.get() > polls
        };
        let mut runner = RealForwardRunner::new(self.exec(Vec::new()), CONTEXT);
        let generation =
            Generation { producer: &mut runner, tokenizer: &self.tokenizer, config, chunk: 4, cancel: &cancel };
        let record = run_raw_completion_chunked(generation, &prompt, &mut |p| events.extend(splitter.take(p)));
        let (last, end) = splitter.finish(record.expect("runs"));
        events.extend(last);
        (events, end)
    }

    fn service(&self, unread: usize, faults: Vec<Fault>) -> Service {
        let options = SchedulerOptions { context: CONTEXT, running: 4, prefill_share: 4, waiting: 64 };
        Service::start(Scheduler::new(self.exec(faults), Arc::clone(&self.tokenizer), options), unread)
    }

    fn stream(&self, service: &Service, config: &GenerationConfig) -> TurnStream {
        let request = Request { prompt: self.prompt(), config: config.clone() };
        let splitter = TurnSplitter::new(&self.tokenizer, &request.prompt, config, &self.options);
        TurnStream::new(service.submit(request), splitter.expect("is understood"))
    }
}

fn tools() -> Tools {
    Tools::new(&json!([{"type": "function", "function": {"name": "look", "parameters": {"type": "object",
        "properties": {"at": {"type": "string"}, "n": {"type": "integer"}}}}}]))
}

fn config(new: usize) -> GenerationConfig {
    GenerationConfig { max_new_tokens: Some(new), ..GenerationConfig::default() }
}

/// What the model said, without the prompt's progress and the end; neighbouring texts joined.
fn said(events: &[TurnEvent]) -> Vec<ReplyEvent> {
    let event = |event: &TurnEvent| match event.clone() {
        TurnEvent::Content(text) => Some(ReplyEvent::Content(text)),
        TurnEvent::Reasoning(text) => Some(ReplyEvent::Reasoning(text)),
        TurnEvent::ToolCall(call) => Some(ReplyEvent::ToolCall(call)),
        TurnEvent::ReleasedToolSpan { text, why } => Some(ReplyEvent::ReleasedToolSpan { text, why }),
        TurnEvent::Recompute { .. } | TurnEvent::Prefill { .. } | TurnEvent::Finished(_) => None,
    };
    joined(events.iter().filter_map(event).collect())
}

/// Everything a stream holds, which must end with the end.
fn all(mut stream: TurnStream) -> (Vec<TurnEvent>, TurnEnd) {
    let mut events: Vec<_> = std::iter::from_fn(|| stream.recv()).map(|event| event.expect("no failure")).collect();
    assert!(stream.recv().is_none(), "nothing follows the end");
    match events.pop() {
        Some(TurnEvent::Finished(end)) => (events, *end),
        other => panic!("{other:?}"),
    }
}

/// A reply with all that a dialect can say, and the call in it.
fn reply(dialect: &Dialect) -> (String, Option<ToolCall>) {
    let id = match dialect.name {
        "kimi" => Some("functions.look:0".to_owned()),
        "mistral" | "mistral-v11" => Some("abcdefgh0".to_owned()),
        _ => None,
    };
    let call = ToolCall { id, name: "look".into(), arguments: json!({"at": "雪 \"here\"", "n": 2}).to_string() };
    let call = dialect.tools.map(|_| call);
    let thinks = dialect.reasoning.is_some() || matches!(dialect.name, "harmony" | "muse");
    let thought = if thinks { "hm, é" } else { "" };
    (dialect.write_reply(thought, "I see: 雪", call.as_slice()).expect("is written"), call)
}

#[test]
fn every_dialect_comes_apart_wherever_it_is_cut() {
    for dialect in Dialect::all() {
        let (text, call) = reply(dialect);
        for holds in HOLDS {
            let mut model = Model::new(dialect, holds, &text);
            if call.is_none() {
                model = model.without_tools();
            }
            let context = format!("{}, {holds:?}: {text}", dialect.name);
            let (events, end) = model.turn(&config(CONTEXT - 64), usize::MAX);
            let whole = said(&events);
            let calls: Vec<_> = calls_of(&whole).into_iter().map(|call| (&call.id, &call.name)).collect();
            assert_eq!(calls, call.iter().map(|c| (&c.id, &c.name)).collect::<Vec<_>>(), "{context}\n{whole:?}");
            let expected = if call.is_some() { FinishReason::ToolCalls } else { FinishReason::Stop };
            // Some dialects write an end of their own before ours.
            let own_end = end.record.reason == StopReason::EndOfTurn;
            assert!(end.finish == expected && (own_end || end.record.reason == StopReason::Eos), "{context}: {end:?}");
            assert!(text_of(&whole).ends_with("I see: 雪"), "{context}: {whole:?}");
            let prompt = model.prompt().len();
            let written = model.answer.len() - usize::from(own_end);
            assert_eq!((end.usage.prompt, end.usage.completion), (prompt, written));
            assert_eq!(events[0], TurnEvent::Prefill { done: 4, total: prompt });
            // Spelled markers make long replies.
            for cut in (1..written).step_by(if holds == Holds::Nothing { 3 } else { 1 }) {
                let (events, end) = model.turn(&config(cut), usize::MAX);
                assert_eq!(end.usage.completion, cut);
                whole_or_beginning(&whole, &said(&events), &format!("{context}\ncut after {cut}"));
                assert!(
                    events
                        .iter()
                        .all(|event| !matches!(event, TurnEvent::Content(t) | TurnEvent::Reasoning(t) if t.is_empty()))
                );
            }
        }
    }
}

/// What was said until a cut is a beginning of the whole; but a call that was cut is text, and so is the beginning of a
/// marker that is spelled. No call differs from one of the whole.
fn whole_or_beginning(whole: &[ReplyEvent], part: &[ReplyEvent], context: &str) {
    let released = part.iter().filter(|event| matches!(event, ReplyEvent::ReleasedToolSpan { .. })).count();
    assert!(released <= 1, "{context}: {part:?}");
    assert!(calls_of(whole).starts_with(&calls_of(part)), "{context}: {part:?}\nof {whole:?}");
    if released == 0 && !begins(whole, part) {
        let (text, all) = (text_of(part), text_of(whole));
        let common = text.bytes().zip(all.bytes()).take_while(|(a, b)| a == b).count();
        assert!(text.len() - common < 64, "{context}: {part:?}\nof {whole:?}");
    }
}

#[test]
fn callback_and_queue_say_the_same() {
    for dialect in Dialect::all().filter(|dialect| dialect.tools.is_some()) {
        let model = Model::new(dialect, Holds::Control, &reply(dialect).0);
        let service = model.service(CONTEXT, Vec::new());
        for new in [1, 7, 30, CONTEXT - 64] {
            let (events, end) = model.turn(&config(new), usize::MAX);
            let (heard, heard_end) = all(model.stream(&service, &config(new)));
            assert_eq!(said(&heard), said(&events), "{}", dialect.name);
            assert_eq!((heard_end.finish, heard_end.usage), (end.finish, end.usage));
            assert_eq!((heard_end.record.ids, heard_end.record.text), (end.record.ids, end.record.text));
        }
        service.shutdown().expect("ends");
    }
}

#[test]
fn a_malformed_call_is_text_and_nothing_of_it_is_lost() {
    let chatml = Dialect::named("chatml").expect("known");
    let cases = [
        "before <tool_call>\n{\"name\": \"look\", \"arguments\": {\"n\": }}\n</tool_call> after",
        "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"n\": 2.5}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"look\", \"argum",
        "<tool_call>",
    ];
    for text in cases {
        for holds in HOLDS {
            let (events, end) = Model::new(chatml, holds, text).turn(&config(400), usize::MAX);
            let events = said(&events);
            assert!(calls_of(&events).is_empty() && end.finish == FinishReason::Stop, "{text}: {events:?}");
            assert_eq!(text_of(&events), text, "{holds:?}");
            assert!(events.iter().any(|event| matches!(event, ReplyEvent::ReleasedToolSpan { .. })), "{events:?}");
        }
    }
    // A good call beside a bad one.
    let text = "<tool_call>{\"name\": \"look\", \"arguments\": {}}</tool_call><tool_call>{]</tool_call>";
    let (events, end) = Model::new(chatml, Holds::Control, text).turn(&config(400), usize::MAX);
    let [ReplyEvent::ToolCall(_), ReplyEvent::ReleasedToolSpan { text, .. }] = &said(&events)[..] else {
        panic!("{events:?}")
    };
    assert_eq!((text.as_str(), end.finish), ("<tool_call>{]</tool_call>", FinishReason::ToolCalls));
}

#[test]
fn without_tools_a_call_is_content_and_without_a_dialect_all_is() {
    let chatml = Dialect::named("chatml").expect("known");
    let text = "<think>\nhm\n</think>\n\n<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>";
    for holds in HOLDS {
        let mut model = Model::new(chatml, holds, text).without_tools();
        let (events, end) = model.turn(&config(400), usize::MAX);
        let [ReplyEvent::Reasoning(thought), rest @ ..] = &said(&events)[..] else { panic!("{events:?}") };
        assert_eq!((thought.as_str(), end.finish), ("hm", FinishReason::Stop));
        assert_eq!(text_of(rest), "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>", "{holds:?}");
        model.options.dialect = None;
        let (events, end) = model.turn(&config(400), usize::MAX);
        assert_eq!(text_of(&said(&events)), end.record.text);
    }
}

#[test]
fn tools_need_a_syntax() {
    let plain = Dialect::named("plain").expect("known");
    let model = Model::new(plain, Holds::Control, "hi");
    for dialect in [Some(plain), None] {
        let options = TurnOptions { dialect, ..model.options.clone() };
        let error = TurnSplitter::new(&model.tokenizer, &model.prompt(), &config(9), &options);
        assert!(matches!(error, Err(RuntimeError::Dialect(DialectError::NoTools { .. }))), "{error:?}");
    }
}

#[test]
fn a_continued_text_keeps_its_first_space() {
    let model = Model::new(Dialect::named("chatml").expect("known"), Holds::Control, " and on <tool_call>{]");
    let config = GenerationConfig { continues_prompt: true, ..config(400) };
    let (events, end) = model.turn(&config, usize::MAX);
    assert_eq!(text_of(&said(&events)), " and on <tool_call>{]");
    assert!(end.record.text.starts_with(" and on"));
}

#[test]
fn a_stop_text_ends_a_turn_wherever_it_stands() {
    let (text, _) = reply(Dialect::named("chatml").expect("known"));
    let model = Model::new(Dialect::named("chatml").expect("known"), Holds::Control, &text);
    let (whole, _) = model.turn(&config(400), usize::MAX);
    for stop in ["see", "hm", "I see: 雪", "\"n\"", "never"] {
        let config = GenerationConfig { stop_strings: vec![stop.to_owned()], ..config(400) };
        let (events, end) = model.turn(&config, usize::MAX);
        assert!(!text_of(&said(&events)).contains(stop) || stop == "never", "{stop}: {events:?}");
        match stop {
            "never" => assert_eq!(said(&events), said(&whole)),
            _ => assert_eq!((end.finish, end.record.reason), (FinishReason::Stop, StopReason::StopString), "{stop}"),
        }
    }
}

#[test]
fn cancelling_is_heard_within_a_token() {
    let (text, _) = reply(Dialect::named("chatml").expect("known"));
    let model = Model::new(Dialect::named("chatml").expect("known"), Holds::Control, &text);
    let (whole, _) = model.turn(&config(400), usize::MAX);
    // A prompt of two chunks takes three polls; each token after that takes one.
    for polls in 0..model.answer.len() + 2 {
        let (events, end) = model.turn(&config(400), polls);
        assert_eq!(end.finish, FinishReason::Cancelled);
        assert_eq!(end.usage.completion, (polls + 1).saturating_sub(3), "{polls} polls");
        whole_or_beginning(&said(&whole), &said(&events), &format!("after {polls} polls"));
    }
    // From a queue: what was generated comes, then the end.
    let slow = Model { answer: encode(&model.tokenizer, &"x".repeat(900)), ..model };
    let service = slow.service(CONTEXT, Vec::new());
    let mut stream = slow.stream(&service, &config(900));
    let first = stream.recv_timeout(Duration::from_secs(20)).expect("in time").expect("no failure");
    assert!(matches!(first, TurnEvent::Prefill { .. }), "{first:?}");
    stream.cancel();
    let (events, end) = all(stream);
    assert_eq!(text_of(&said(&events)), end.record.text);
    assert!(matches!(end.finish, FinishReason::Cancelled | FinishReason::Length));
    service.shutdown().expect("ends");
}

#[test]
fn a_slow_reader_loses_nothing_that_was_generated() {
    let chatml = Dialect::named("chatml").expect("known");
    let text = format!("<think>{}</think>{}", "hm ".repeat(20), "snow, ".repeat(60));
    // The event that does not fit any more is an ordinary token, or with 63 unread the one that ends the reasoning.
    let cases = [1, 2, 5, 62, 63, 64, 200].map(|unread| [(Holds::Control, unread), (Holds::Shown, unread)]);
    for (holds, unread) in cases.into_iter().flatten() {
        let model = Model::new(chatml, holds, &text);
        let (whole, _) = model.turn(&config(CONTEXT - 64), usize::MAX);
        let service = model.service(unread, Vec::new());
        let mut stream = model.stream(&service, &config(CONTEXT - 64));
        // Nobody reads until it is over.
        while service.status().running + service.status().waiting > 0 || service.status().steps == 0 {
            std::thread::yield_now();
        }
        assert!(stream.try_recv().is_ok());
        let (events, end) = all(stream);
        assert_eq!(end.finish, FinishReason::SlowConsumer, "{unread} unread");
        let spoken = said(&events);
        assert!(begins(&said(&whole), &spoken), "{holds:?}, {unread} unread: {spoken:?}");
        let mut written = end.record.text.clone();
        for marker in ["<think>", "</think>"] {
            written = written.replace(marker, "");
        }
        assert_eq!(text_of(&spoken), written, "{holds:?}, {unread} unread");
        service.shutdown().expect("ends");
    }
}

#[test]
fn a_failure_is_the_last_item() {
    let model = Model::new(Dialect::named("chatml").expect("known"), Holds::Control, "a text to break off");
    let fault = |run| Fault { run, what: "it broke".to_owned() };
    let service = model.service(64, (5..64).map(fault).collect());
    let mut stream = model.stream(&service, &config(20));
    let items: Vec<_> = std::iter::from_fn(|| stream.recv()).collect();
    let (last, before) = items.split_last().expect("some");
    assert!(before.iter().all(Result::is_ok));
    assert!(last.as_ref().is_err_and(|error| error.to_string().contains("it broke")), "{last:?}");
    let refused = all_items(model.stream(&service, &config(CONTEXT * 2)));
    assert!(matches!(&refused[..], [Err(RuntimeError::ContextOverflow { .. })]), "{refused:?}");
    service.shutdown().expect("ends");
}

fn all_items(mut stream: TurnStream) -> Vec<Result<TurnEvent, RuntimeError>> {
    std::iter::from_fn(|| stream.recv()).collect()
}

#[test]
fn an_engine_and_a_service_hand_turns_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("s.json");
    let text = r#"{"ids": [260, 104, 109, 261, 10, 10, 262, 123, 93, 263, 257]}"#;
    std::fs::write(&file, text).expect("written");
    let name = format!("scripted:{}", file.display());
    let prompt = vec![TokenId(97); 3];
    let options = OpenOptions::default();
    let mut engine = Engine::open(&name, &options).expect("opens");
    let turn = TurnOptions { tools: Some(tools()), ..TurnOptions::of(engine.tokenizer()) };
    let mut events = Vec::new();
    let end = engine.turn(&prompt, (&config(40), &turn), &|| false, &mut |event| events.push(event)).expect("runs");
    assert_eq!(events.last(), Some(&TurnEvent::Finished(Box::new(end.clone()))));
    let released = "<tool_call>{]</tool_call>";
    let [ReplyEvent::Reasoning(thought), ReplyEvent::ReleasedToolSpan { text, why }] = &said(&events)[..] else {
        panic!("{events:?}")
    };
    assert_eq!((thought.as_str(), text.as_str(), end.finish), ("hm", released, FinishReason::Stop));
    assert!(matches!(why, CallError::Json { .. } | CallError::Syntax { .. }), "{why}");
    let served = turbospark_runtime::open_service(&name, &OpenOptions { sequences: 2, ..options }).expect("opens");
    let request = Request { prompt, config: config(40) };
    assert_eq!(said(&all(served.turn(request, &turn).expect("is taken")).0), said(&events));
}

#[test]
fn progress_of_a_prompt_is_told_as_it_is_read() {
    let model = Model::new(Dialect::named("chatml").expect("known"), Holds::Control, "hi");
    let mut splitter =
        TurnSplitter::new(&model.tokenizer, &model.prompt(), &config(9), &model.options).expect("is understood");
    assert_eq!(splitter.take(Progress::Prefill { done: 3, total: 9 }), [TurnEvent::Prefill { done: 3, total: 9 }]);
}
