//! The generation loop: admission, prefix reuse, chunked prefill, decode, stops.

use crate::answer::{Answer, Finished, TokenLogProbs, admit};
use crate::config::GenerationConfig;
use crate::pacing::MemoryPressure;
use crate::prefix_cache::{Begun, marks};
use crate::producer::{LogitProducer, Want};
use crate::{ProducerError, RuntimeError};
use foundation::{LogitValue, TokenId};
use std::time::{Duration, Instant};
use tokenizer::Tokenizer;

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The tokenizer's end-of-text token.
    Eos,
    /// Another of the tokenizer's stop tokens: the end of a turn.
    EndOfTurn,
    /// One of [`GenerationConfig::extra_stop_tokens`].
    StopToken,
    /// One of [`GenerationConfig::stop_strings`].
    StopString,
    /// [`GenerationConfig::constraint`] allows nothing more.
    Complete,
    /// The budget of new tokens, or the end of the context.
    MaxTokens,
    /// The caller cancelled, or is gone.
    Cancelled,
    /// The caller left too many events unread.
    SlowConsumer,
}

impl StopReason {
    /// The reason as one word, for machines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eos => "eos",
            Self::EndOfTurn => "end_of_turn",
            Self::StopToken => "stop_token",
            Self::StopString => "stop_string",
            Self::Complete => "complete",
            Self::MaxTokens => "max_tokens",
            Self::Cancelled => "cancelled",
            Self::SlowConsumer => "slow_consumer",
        }
    }
}

/// What happens during a generation.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// Prompt tokens now in the cache, of all; reused ones count.
    Prefill {
        /// In the cache.
        done: usize,
        /// In the prompt.
        total: usize,
    },
    /// A token was chosen. Its text may be empty: a character is not complete, or a stop string may be.
    Token {
        /// Count from 0.
        index: usize,
        /// The token.
        id: TokenId,
        /// Text that is now certain.
        delta: String,
    },
    /// Text that was held back, released at the end.
    Tail(String),
    /// Told once, before the prompt is read: most of its beginning has been read before and is computed again all the same,
    /// because the model's recurrent state or windows cannot be put back to where the prompt departs, and the nearest
    /// state kept lies far before.
    Recompute {
        /// Tokens of the prompt that are known.
        known: usize,
        /// Those that need not be computed.
        reused: usize,
    },
}

/// The record of a finished generation.
#[derive(Clone, Debug, PartialEq)]
pub struct RawDecodeResult {
    /// Everything emitted.
    pub text: String,
    /// The generated tokens, without the one that stopped the generation.
    pub ids: Vec<TokenId>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens chosen, the stopping one included.
    pub new_tokens: usize,
    /// For each of `ids`, how probable it was; `None` unless [`GenerationConfig::logprobs`] asked.
    pub logprobs: Option<Vec<TokenLogProbs>>,
    /// Prompt tokens that were in the cache already.
    pub reused_prefix_tokens: usize,
    /// Time for the prompt.
    pub prefill: Duration,
    /// Time from the first choice to the end.
    pub decode: Duration,
    /// Why it ended.
    pub reason: StopReason,
    /// The cache's position afterwards.
    pub kv_position: usize,
    /// The tokens really in the cache; the last chosen one normally is not.
    pub kv_backed_token_ids: Vec<TokenId>,
    /// Whether another parked conversation was given up to make room for this one.
    pub session_slot_evicted: bool,
    /// The worst memory pressure seen on the way; `None` where the system does not say, or nobody looked.
    pub peak_memory_pressure: Option<MemoryPressure>,
}

/// Generates after feeding the prompt token by token.
pub fn run_raw_completion(
    producer: &mut dyn LogitProducer,
    tokenizer: &Tokenizer,
    prompt: &[TokenId],
    config: &GenerationConfig,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<RawDecodeResult, RuntimeError> {
    Generation { producer, tokenizer, config, chunk: 1, cancel: &|| false }.run(prompt, on_progress)
}

/// A generation over chunks of the prompt that can be cancelled.
pub struct Generation<'a> {
    /// The model.
    pub producer: &'a mut dyn LogitProducer,
    /// Its vocabulary.
    pub tokenizer: &'a Tokenizer,
    /// What to do.
    pub config: &'a GenerationConfig,
    /// Prompt tokens fed at once; 0 counts as 1.
    pub chunk: usize,
    /// Asked after every chunk and every token; `true` ends the generation.
    pub cancel: &'a dyn Fn() -> bool,
}

/// Generates after feeding the prompt in chunks; the same tokens whatever the chunk.
pub fn run_raw_completion_chunked(
    generation: Generation<'_>,
    prompt: &[TokenId],
    on_progress: &mut dyn FnMut(Progress),
) -> Result<RawDecodeResult, RuntimeError> {
    generation.run(prompt, on_progress)
}

impl Generation<'_> {
    fn run(
        mut self,
        prompt: &[TokenId],
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<RawDecodeResult, RuntimeError> {
        let budget = admit(prompt.len(), (self.tokenizer, self.config), self.producer.context())?;
        let started = Instant::now();
        let evicted = self.producer.evicted();
        let begun = self.producer.begin(prompt, &marks(self.tokenizer, prompt));
        if begun.recomputes() {
            on_progress(Progress::Recompute { known: begun.known, reused: begun.reused });
        }
        let mut logits = vec![0.0; self.producer.vocab()];
        let complete = self.prefill(prompt, &begun, &mut logits, on_progress)?;
        let prefilled = Instant::now();
        let mut answer = Answer::new(self.tokenizer, self.config, prompt, budget);
        let reason = match complete {
            true => self.decode(&mut answer, &mut logits, on_progress)?,
            false => StopReason::Cancelled,
        };
        let Finished { text, ids, new_tokens, logprobs } = answer.finish(on_progress);
        Ok(RawDecodeResult {
            text,
            ids,
            prompt_tokens: prompt.len(),
            new_tokens,
            logprobs,
            reused_prefix_tokens: begun.reused,
            prefill: prefilled - started,
            decode: if complete { prefilled.elapsed() } else { Duration::ZERO },
            reason,
            kv_position: self.producer.position(),
            kv_backed_token_ids: self.producer.fed().to_vec(),
            session_slot_evicted: self.producer.evicted() > evicted,
            peak_memory_pressure: None,
        })
    }

    /// Feeds the prompt from where it begins on, and keeps states on the way; false if cancelled.
    fn prefill(
        &mut self,
        prompt: &[TokenId],
        begun: &Begun,
        logits: &mut [LogitValue],
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<bool, ProducerError> {
        let mut done = begun.reused;
        let mut stops = begun.stops.iter().peekable();
        while done < prompt.len() {
            if (self.cancel)() {
                return Ok(false);
            }
            let stop = stops.peek().map_or(prompt.len(), |stop| **stop);
            let end = stop.min(done + self.chunk.max(1));
            if end < prompt.len() {
                self.producer.produce(&prompt[done..end], Want::Nothing, &mut [])?;
            } else {
                self.producer.produce(&prompt[done..end], Want::Last, logits)?;
            }
            done = end;
            if stops.next_if(|stop| **stop == end).is_some() {
                self.producer.keep();
            }
            on_progress(Progress::Prefill { done, total: prompt.len() });
        }
        Ok(!(self.cancel)())
    }

    fn decode(
        &mut self,
        answer: &mut Answer,
        logits: &mut [LogitValue],
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<StopReason, RuntimeError> {
        let mut next = Vec::new();
        loop {
            next.clear();
            if let Some(reason) = answer.choose(logits, &mut next, on_progress)? {
                return Ok(reason);
            }
            if (self.cancel)() {
                return Ok(StopReason::Cancelled);
            }
            let mut chunks = next.chunks(self.chunk.max(1)).peekable();
            while let Some(chunk) = chunks.next() {
                match chunks.peek() {
                    Some(_) => self.producer.produce(chunk, Want::Nothing, &mut [])?,
                    None => self.producer.produce(chunk, Want::Last, logits)?,
                }
            }
        }
    }
}
