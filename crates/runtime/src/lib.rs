//! The execution engine: binds tokeniser, model, device and token choice into one generation pipeline.
//!
//! [`Engine`] is the front door; [`LogitProducer`] is the contract beneath it, and [`run_raw_completion`] the
//! loop over it. This crate prints nothing and reads no environment variable.
#![forbid(unsafe_code)]

mod answer;
mod capture;
mod checkpoint;
mod config;
mod context_shift;
mod device;
mod engine;
mod error;
mod experts;
mod follow;
mod kv;
mod machine;
mod open;
mod pacing;
mod perplexity;
mod prefix_cache;
mod producer;
mod raw_completion;
mod real_forward;
mod scheduler;
mod scripted;
mod serve;
mod session_pool;
mod steering;
mod token_sink;
mod turn_stream;

pub use answer::TokenLogProbs;
pub use capture::{BUCKETS, Capture, CaptureKind, Captured, bucket};
pub use checkpoint::{About, ModelFiles, Recommended};
pub use config::GenerationConfig;
pub use context_shift::{ContextShift, PromptRoom, Shifted};
pub use device::{DeviceFacts, DeviceKind, UseDevice, copy_bandwidth, devices};
pub use engine::Engine;
pub use error::{ProducerError, RuntimeError};
pub use experts::{ExpertChoice, ExpertLayerReport, ExpertReport};
pub use kv::{KV_WARNING, KvChoice, KvReport};
pub use machine::Machine;
pub use open::{OpenOptions, OpenReport, mebibytes, open_logits};
pub use pacing::{Clock, LinuxSensors, MemoryPressure, Pace, Pacer, PowerProfile, Sensors, SystemClock, Thermal};
pub use perplexity::{Comparison, OnWindow, Perplexity, all_logits, compare, perplexity};
pub use plan::{ContextKey, Edit, ExpertStats, PrefixTree, Residency, Saved, SteerMode};
pub use prefix_cache::{Begun, PrefixCache, PrefixDisk, PrefixOptions, PrefixStatus};
pub use producer::{LogitProducer, ScriptedLogitProducer, Want};
pub use raw_completion::{
    Generation, Progress, RawDecodeResult, StopReason, run_raw_completion, run_raw_completion_chunked,
};
pub use real_forward::RealForwardRunner;
pub use scheduler::{Delivery, Event, Request, RequestId, Scheduler, SchedulerOptions, Service, ServiceStatus, Stream};
pub use scripted::{VOCAB as SCRIPTED_VOCAB, byte_tokenizer};
pub use serve::{Served, open_service};
pub use session_pool::{SessionPool, Sessions};
pub use steering::{LayerSet, SteerFile};
pub use tokenizer::Message;
pub use turn_stream::{FinishReason, TurnEnd, TurnEvent, TurnOptions, TurnSplitter, TurnStream, Usage};
