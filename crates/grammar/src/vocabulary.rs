//! A tokenizer's tokens as a tree of bytes, and the compiler over it.

use crate::error::GrammarError;
use crate::session::Constraint;
use crate::source::Source;
use crate::{gbnf, schema};
use foundation::TokenId;
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use std::sync::Arc;
use tokenizer::{Encode, Tokenizer};

/// Bytes of a source; larger ones are refused.
const MAX_SOURCE: usize = 1 << 20;

/// Compiles constraints for one tokenizer. Making one takes up to seconds for a large vocabulary; share it.
pub struct Vocabulary {
    factory: ParserFactory,
    tokenizer: Arc<Tokenizer>,
}

impl Vocabulary {
    /// Sorts the tokens of `tokenizer` by their bytes.
    ///
    /// # Errors
    /// A vocabulary without tokens.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, GrammarError> {
        let refuse = |reason: String| GrammarError::Vocabulary { reason };
        let size = u32::try_from(tokenizer.vocab_size()).map_err(|error| refuse(error.to_string()))?;
        if size == 0 {
            return Err(refuse("it has no tokens".to_owned()));
        }
        let words: Vec<Vec<u8>> = (0..size).map(|id| word(&tokenizer, TokenId(id))).collect();
        let ends: Vec<u32> = tokenizer.stop_ids().iter().map(|id| id.0).filter(|id| *id < size).collect();
        // Without an ending token a reply ends where nothing can follow; the number stands for no token.
        let first = ends.first().copied().unwrap_or(u32::MAX);
        let trie = TokTrie::from(&TokRxInfo::new(size, first), &words);
        let trie = if ends.len() > 1 { trie.with_eos_tokens(&ends) } else { trie };
        let environment: TokEnv = Arc::new(Environment { trie, tokenizer: Arc::clone(&tokenizer) });
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)
            .map_err(|error| refuse(error.to_string()))?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self { factory, tokenizer })
    }

    /// The tokenizer it was made of.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Compiles a source.
    ///
    /// # Errors
    /// Everything that cannot be enforced exactly, naming its place.
    pub fn compile(&self, source: &Source) -> Result<Constraint, GrammarError> {
        let refuse = |kind, reason| GrammarError::Grammar { kind, reason };
        let (kind, text) = match source {
            Source::JsonSchema(text) => ("schema", text),
            Source::Regex(text) => ("regular expression", text),
            Source::Lark(text) => ("Lark grammar", text),
            Source::Gbnf(text) => ("GBNF grammar", text),
        };
        if text.len() > MAX_SOURCE {
            return Err(refuse(kind, format!("it has {} bytes; at most {MAX_SOURCE} are taken", text.len())));
        }
        match source {
            Source::JsonSchema(text) => schema::compile(self, text),
            Source::Regex(text) => {
                let grammar = TopLevelGrammar::from_regex(text);
                self.build(grammar, None).map_err(|reason| refuse(kind, reason))
            }
            Source::Lark(text) => {
                let grammar = TopLevelGrammar::from_lark(text.clone());
                self.build(grammar, None).map_err(|reason| refuse(kind, reason))
            }
            Source::Gbnf(text) => {
                let lark = gbnf::to_lark(text)?;
                let grammar = TopLevelGrammar::from_lark(lark);
                self.build(grammar, Some(gbnf::STEP_ITEMS)).map_err(|reason| refuse(kind, reason))
            }
        }
    }

    /// Builds the parser and takes its first step, so that what cannot begin is refused now.
    pub(crate) fn build(&self, grammar: TopLevelGrammar, step_items: Option<usize>) -> Result<Constraint, String> {
        use llguidance::api::GrammarInit;
        let mut limits = self.factory.limits().clone();
        limits.step_max_items = step_items.unwrap_or(limits.step_max_items);
        let parser = self.factory.create_parser_from_init_ext(
            GrammarInit::Serialized(grammar),
            llguidance::Logger::new(0, 0),
            InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() },
            limits,
        );
        let mut matcher = Matcher::new(parser);
        if let Some(error) = matcher.get_error() {
            return Err(error);
        }
        let warnings = matcher.grammar_warnings();
        if !warnings.is_empty() {
            return Err(warnings.join("; "));
        }
        matcher.compute_mask_or_eos().map_err(|error| format!("nothing can match it: {error}"))?;
        Ok(Constraint::new(matcher, self.tokenizer.stop_ids()))
    }
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary").field("tokenizer", &self.tokenizer).finish_non_exhaustive()
    }
}

/// The bytes of a token; control tokens are marked so that no content spells them, tokens that no text needs are left out.
fn word(tokenizer: &Tokenizer, id: TokenId) -> Vec<u8> {
    let control = tokenizer.is_control(id) || tokenizer.stop_ids().contains(&id);
    match tokenizer.token_bytes(id) {
        Some(bytes) if control => {
            let name = if bytes.is_empty() { format!("<token-{id}>").into_bytes() } else { bytes };
            [&[TokTrie::SPECIAL_TOKEN_MARKER][..], &name].concat()
        }
        // A piece that begins with the mark of control tokens is no UTF-8 that any grammar can ask for.
        Some(bytes) if bytes.first() != Some(&TokTrie::SPECIAL_TOKEN_MARKER) => bytes,
        _ => Vec::new(),
    }
}

struct Environment {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
}

impl Environment {
    /// The tokens that a model would expect for `text`, if they stand for exactly its bytes.
    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        let ids = self.tokenizer.encode(text, Encode::default()).ok()?;
        let ids: Vec<u32> = ids.into_iter().map(|id| id.0).collect();
        let content = ids.iter().all(|id| !self.trie.is_special_token(*id));
        (content && self.trie.decode_raw(&ids) == text.as_bytes()).then_some(ids)
    }
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        // Vocabularies that put a space in front of a text cannot encode the middle of one: longest pieces do.
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            self.encode(text).unwrap_or_else(|| self.trie.greedy_tokenize(text.as_bytes()))
        })
    }
}
