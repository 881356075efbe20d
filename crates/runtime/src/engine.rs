//! The front door: open a model, chat or complete.

use crate::RuntimeError;
use crate::checkpoint::{ModelFiles, Recommended};
use crate::config::GenerationConfig;
use crate::context_shift::{ContextShift, PromptRoom, Shifted};
use crate::open::{OpenOptions, OpenReport, open_producer, open_scripted, scripted_script};
use crate::pacing::{LinuxSensors, Pacer, SystemClock};
use crate::prefix_cache::PrefixStatus;
use crate::producer::LogitProducer;
use crate::raw_completion::{Generation, Progress, RawDecodeResult, run_raw_completion_chunked};
use crate::turn_stream::{TurnEnd, TurnEvent, TurnOptions, TurnSplitter};
use foundation::TokenId;
use plan::{ExpertStats, Saved};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tokenizer::{ChatRequest, CivilTime, Encode, Message, Tokenizer};

/// A model ready to generate, for one conversation at a time.
///
/// ```no_run
/// use turbospark_runtime::{Engine, GenerationConfig, Message, OpenOptions};
///
/// let mut engine = Engine::open("SmolLM2-135M-Instruct.Q4_1.gguf", &OpenOptions::default())?;
/// let messages = [Message::user("What is the capital of Japan?")];
/// let answer = engine.chat(&messages, &GenerationConfig::default(), &mut |_| {})?;
/// println!("{}", answer.text);
/// # Ok::<(), turbospark_runtime::RuntimeError>(())
/// ```
pub struct Engine {
    producer: Box<dyn LogitProducer + Send>,
    tokenizer: Arc<Tokenizer>,
    report: OpenReport,
    recommended: Recommended,
    prefill_chunk: usize,
}

impl Engine {
    /// Opens a model: a `.gguf` or `.safetensors` file, a folder, or `scripted:FILE`.
    pub fn open(model: impl AsRef<OsStr>, options: &OpenOptions) -> Result<Self, RuntimeError> {
        let started = Instant::now();
        let model = model.as_ref();
        let mut engine = match scripted_script(model) {
            Some(script) => Self::open_scripted(script, options)?,
            None => Self::open_files(&PathBuf::from(model), options)?,
        };
        engine.report.elapsed = started.elapsed();
        Ok(engine)
    }

    fn open_scripted(script: &Path, options: &OpenOptions) -> Result<Self, RuntimeError> {
        let (producer, report, tokenizer) = open_scripted(script, options)?;
        let (tokenizer, recommended) = (Arc::new(tokenizer), Recommended::default());
        Ok(Self { producer, tokenizer, report, recommended, prefill_chunk: options.prefill_chunk })
    }

    fn open_files(path: &Path, options: &OpenOptions) -> Result<Self, RuntimeError> {
        let files = ModelFiles::open_verified(path, options.verify)?;
        // The vocabulary loads beside the weights.
        let (tokenizer, opened) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| files.tokenizer());
            let opened = open_producer(&files, options);
            let tokenizer = tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (tokenizer, opened)
        });
        let (tokenizer, (producer, report)) = (tokenizer?, opened?);
        if tokenizer.vocab_size() > producer.vocab() {
            let (tokenizer, model) = (tokenizer.vocab_size(), producer.vocab());
            return Err(RuntimeError::VocabularyMismatch { tokenizer, model });
        }
        let recommended = files.recommended();
        Ok(Self { producer, tokenizer, report, recommended, prefill_chunk: options.prefill_chunk })
    }

    /// What was decided when the model was opened.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// Sampling values that came with the model.
    pub fn recommended(&self) -> Recommended {
        self.recommended
    }

    /// The model's vocabulary.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The model itself.
    pub fn producer(&mut self) -> &mut (dyn LogitProducer + Send) {
        &mut *self.producer
    }

    /// How many tokens of a prompt need not be computed, and how many were seen before; changes nothing.
    ///
    /// The second is more than the first where the model cannot go on from the place where the prompt departs.
    pub fn reusable(&self, prompt: &[TokenId]) -> (usize, usize) {
        self.producer.look(prompt)
    }

    /// What is kept of earlier prompts and answers.
    pub fn prefix_status(&self) -> PrefixStatus {
        self.producer.prefix_status()
    }

    /// Saves what is kept where [`OpenOptions::prefixes`] says; `None` if it says nothing.
    ///
    /// # Errors
    /// If the folder cannot be written; the engine works on.
    pub fn save_prefixes(&mut self) -> Result<Option<Saved>, RuntimeError> {
        self.producer.save_prefixes()
    }

    /// Gives up what is kept of earlier prompts, but for the present one's.
    pub fn forget_prefixes(&mut self) {
        self.producer.forget_prefixes();
    }

    /// How streamed experts have served so far; `None` if none are streamed.
    pub fn expert_stats(&self) -> Option<ExpertStats> {
        self.producer.expert_stats()
    }

    /// The conversation as tokens, ending where the assistant begins.
    pub fn chat_tokens(&self, messages: &[Message]) -> Result<Vec<TokenId>, RuntimeError> {
        if self.tokenizer.chat_template().is_none() {
            return Err(RuntimeError::NoChatTemplate);
        }
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let request = ChatRequest {
            messages: messages.to_vec(),
            add_generation_prompt: true,
            now: since_epoch.ok().map(|t| CivilTime::from_unix_seconds(t.as_secs() as i64)),
            ..ChatRequest::default()
        };
        Ok(self.tokenizer.encode_chat(&request)?)
    }

    /// As [`Engine::chat_tokens`], without the oldest turns where there is no room for all and `new` tokens of an answer.
    pub fn shifted_chat_tokens(
        &self,
        shift: &mut ContextShift,
        messages: &[Message],
        new: Option<usize>,
    ) -> Result<Shifted, RuntimeError> {
        let room = PromptRoom { context: self.producer.context(), new };
        shift.fit(messages, room, |messages| self.chat_tokens(messages))
    }

    /// The assistant's next message.
    pub fn chat(
        &mut self,
        messages: &[Message],
        config: &GenerationConfig,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<RawDecodeResult, RuntimeError> {
        let prompt = self.chat_tokens(messages)?;
        self.generate(&prompt, config, &|| false, on_progress)
    }

    /// A raw prompt as tokens: special tokens written in it are recognised, BOS is added if the vocabulary asks.
    pub fn prompt_tokens(&self, prompt: &str) -> Result<Vec<TokenId>, RuntimeError> {
        Ok(self.tokenizer.encode(prompt, Encode { special: true, bos: true })?)
    }

    /// The continuation of a raw prompt.
    pub fn complete(
        &mut self,
        prompt: &str,
        config: &GenerationConfig,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<RawDecodeResult, RuntimeError> {
        let prompt = self.prompt_tokens(prompt)?;
        let config = GenerationConfig { continues_prompt: true, ..config.clone() };
        self.generate(&prompt, &config, &|| false, on_progress)
    }

    /// As [`Engine::generate`], with content, reasoning and tool calls told apart.
    ///
    /// The last event holds what is returned.
    pub fn turn(
        &mut self,
        prompt: &[TokenId],
        (config, options): (&GenerationConfig, &TurnOptions),
        cancel: &dyn Fn() -> bool,
        on_event: &mut dyn FnMut(TurnEvent),
    ) -> Result<TurnEnd, RuntimeError> {
        let mut splitter = TurnSplitter::new(&self.tokenizer, prompt, config, options)?;
        let record = self.generate(prompt, config, cancel, &mut |progress| {
            splitter.take(progress).into_iter().for_each(&mut *on_event);
        })?;
        let (last, end) = splitter.finish(record);
        last.into_iter().for_each(&mut *on_event);
        on_event(TurnEvent::Finished(Box::new(end.clone())));
        Ok(end)
    }

    /// Generates after a prompt of tokens until a stop, the budget, or `cancel` returns true.
    ///
    /// What the prompt shares with earlier ones and their answers is not computed again, as long as it is kept.
    pub fn generate(
        &mut self,
        prompt: &[TokenId],
        config: &GenerationConfig,
        cancel: &dyn Fn() -> bool,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<RawDecodeResult, RuntimeError> {
        let generation = Generation {
            producer: &mut *self.producer,
            tokenizer: &self.tokenizer,
            config,
            chunk: self.prefill_chunk,
            cancel,
        };
        let mut pacer = Pacer::new(config.pace, SystemClock::default(), LinuxSensors::default());
        let mut paced = |progress: Progress| {
            let token = matches!(progress, Progress::Token { .. });
            on_progress(progress);
            if token {
                pacer.token(cancel);
            }
        };
        let mut result = run_raw_completion_chunked(generation, prompt, &mut paced)?;
        result.peak_memory_pressure = pacer.peak_memory_pressure();
        Ok(result)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("report", &self.report).finish_non_exhaustive()
    }
}
