//! Requests with their events.

use crate::toy::Toy;
use foundation::TokenId;
use grammar::{Constraint, Source, Vocabulary};
use plan::{ContextKey, Exec, KV_BLOCK, PrefixTree};
use selection::{Shaping, ShapingOptions};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokenizer::Tokenizer;
use turbospark_runtime::{
    Delivery, Event, Generation, GenerationConfig, PrefixCache, Progress, RawDecodeResult, RealForwardRunner, Request,
    RequestId, Scheduler, SchedulerOptions, byte_tokenizer, run_raw_completion_chunked,
};

pub(crate) const OPTIONS: SchedulerOptions =
    SchedulerOptions { context: 4096, running: 8, prefill_share: 64, waiting: 100_000 };

pub(crate) fn tokenizer() -> Arc<Tokenizer> {
    Arc::new(byte_tokenizer().expect("builds"))
}

/// A tree over a toy that holds at most so many bytes: 4 a cached token, 8 a copy of recurrent state.
pub(crate) fn prefixes(toy: &Toy, limit: u64) -> PrefixCache {
    let blocks = vec![4 * KV_BLOCK as u64; toy.windows().len()];
    PrefixCache::new(PrefixTree::of_sizes(limit, blocks, 8), ContextKey::default())
}

pub(crate) fn bytes(text: &str) -> Vec<TokenId> {
    text.bytes().map(|b| TokenId(b as u32)).collect()
}

pub(crate) fn config(new: usize, seed: u64) -> GenerationConfig {
    let shaping = Shaping::new(ShapingOptions { temperature: 1.0, seed, ..ShapingOptions::default() }).expect("valid");
    GenerationConfig { shaping, max_new_tokens: Some(new), ..GenerationConfig::default() }
}

/// Two of three under a constraint that leaves choices and forces tokens, one of them token by token.
pub(crate) fn constrained(config: GenerationConfig) -> GenerationConfig {
    static CONSTRAINT: OnceLock<Constraint> = OnceLock::new();
    let constraint = CONSTRAINT.get_or_init(|| {
        let source = Source::Regex("(abc[a-z]{1,3}, a long word that must come; ?){2,6}".to_owned());
        Vocabulary::new(tokenizer()).and_then(|vocabulary| vocabulary.compile(&source)).expect("it compiles")
    });
    let constraint = match config.shaping.options().seed % 3 {
        0 => None,
        1 => Some(constraint.clone()),
        _ => Some(constraint.clone().one_by_one()),
    };
    GenerationConfig { constraint, ..config }
}

pub(crate) fn request(prompt: &str, new: usize, seed: u64) -> Request {
    Request { prompt: bytes(prompt), config: config(new, seed) }
}

/// What a request was told.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<Mutex<Vec<Event>>>);

impl Events {
    pub(crate) fn submit<E: Exec>(scheduler: &mut Scheduler<E>, request: Request) -> (RequestId, Self) {
        let events = Self::default();
        let own = events.clone();
        let sink = move |event| {
            own.lock().push(event);
            Delivery::Taken
        };
        (scheduler.submit(request, sink).expect("accepted"), events)
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ended(&self) -> bool {
        self.lock().last().is_some_and(Event::is_last)
    }

    pub(crate) fn tokens(&self) -> usize {
        self.lock().iter().filter(|event| matches!(event, Event::Progress(Progress::Token { .. }))).count()
    }

    /// The record; the streamed text must be its text.
    pub(crate) fn result(&self) -> RawDecodeResult {
        let events = self.lock();
        let Some(Event::Finished(result)) = events.last() else { panic!("{:?}", events.last()) };
        let text = events.iter().map(|event| match event {
            Event::Progress(Progress::Token { delta, .. } | Progress::Tail(delta)) => delta.as_str(),
            _ => "",
        });
        assert_eq!(text.collect::<String>(), result.text);
        assert_eq!(events.iter().filter(|event| event.is_last()).count(), 1);
        (**result).clone()
    }

    pub(crate) fn failure(&self) -> String {
        let events = self.lock();
        let Some(Event::Failed(error)) = events.last() else { panic!("{:?}", events.last()) };
        error.to_string()
    }
}

/// The same request alone, on a device of its own.
pub(crate) fn alone(request: &Request) -> RawDecodeResult {
    let mut producer = RealForwardRunner::new(Toy::new(128, 4096, 1, 0), 4096);
    alone_on(&mut producer, request)
}

pub(crate) fn alone_on<E: Exec>(producer: &mut RealForwardRunner<E>, request: &Request) -> RawDecodeResult {
    let generation =
        Generation { producer, tokenizer: &tokenizer(), config: &request.config, chunk: 50, cancel: &|| false };
    run_raw_completion_chunked(generation, &request.prompt, &mut |_| {}).expect("runs")
}

pub(crate) fn run_to_end<E: Exec>(scheduler: &mut Scheduler<E>) {
    for _ in 0..1_000_000 {
        if scheduler.is_idle() {
            return;
        }
        scheduler.step();
    }
    panic!("it goes on for ever: {scheduler:?}");
}
