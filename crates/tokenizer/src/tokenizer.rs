//! One vocabulary with its special tokens and chat template: the way in and out of text.

use crate::chat::ChatRequest;
use crate::error::{TemplateError, TokenizerError};
use crate::files::TokenizerConfig;
use crate::guard::{Guard, unmark};
use crate::stream::StreamDecoder;
use crate::template::ChatTemplate;
use crate::turn_end;
use crate::vocab::Encoder;
use crate::vocab::added::{AddedTokens, Cut};
use crate::vocab::gguf::GgufVocab;
use crate::vocab::json;
use crate::vocab::pieces::{Kind, Pieces};
use foundation::TokenId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How [`Tokenizer::encode`] treats special tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encode {
    /// Recognise control tokens and markup such as `<think>` written in the text. Without it they are plain
    /// characters; pieces that merely stand for content, such as runs of spaces, are found either way.
    pub special: bool,
    /// Put BOS in front if the vocabulary asks for it and the text does not already begin with it.
    pub bos: bool,
}

/// A vocabulary: text to tokens and back. Cheap to share in an [`Arc`].
pub struct Tokenizer {
    encoder: Encoder,
    pieces: Arc<Pieces>,
    added: AddedTokens,
    bos: Option<TokenId>,
    eos: Option<TokenId>,
    pad: Option<TokenId>,
    unk: Option<TokenId>,
    add_bos: bool,
    stop_ids: BTreeSet<TokenId>,
    template: Option<TemplateSlot>,
    tool_template: Option<TemplateSlot>,
}

struct TemplateSlot {
    source: String,
    compiled: Result<ChatTemplate, TemplateError>,
}

impl TemplateSlot {
    fn new(source: &str) -> Self {
        Self { source: source.to_owned(), compiled: ChatTemplate::new(source) }
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("stop_ids", &self.stop_ids)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Loads a `tokenizer.json` with the settings of its configuration files.
    pub fn from_json(tokenizer_json: &[u8], config: &TokenizerConfig) -> Result<Self, TokenizerError> {
        let built = json::build(tokenizer_json)?;
        let added = AddedTokens::new(built.added);
        let id = |text: &Option<String>| {
            text.as_deref().and_then(|text| added.id_of(text).or_else(|| built.encoder.id_of(text)))
        };
        let (bos, eos) = (id(&config.bos_token), id(&config.eos_token));
        let (pad, unk) = (id(&config.pad_token), id(&config.unk_token));
        let prefix = id(&built.prefix);
        let bos = bos.or(prefix);
        let mut stop_ids = config.stop_ids.clone();
        stop_ids.extend(eos);
        Ok(Self {
            encoder: built.encoder,
            pieces: Arc::new(built.pieces),
            added,
            bos,
            eos,
            pad,
            unk,
            add_bos: bos.is_some() && config.add_bos.unwrap_or(prefix == bos),
            stop_ids,
            template: config.chat_template.as_deref().map(TemplateSlot::new),
            tool_template: config.tool_template.as_deref().map(TemplateSlot::new),
        })
    }

    /// Builds the vocabulary of a GGUF file.
    pub fn from_vocab(vocab: GgufVocab) -> Result<Self, TokenizerError> {
        let built = vocab.build()?;
        let id = |id: Option<u32>| id.map(TokenId);
        let mut stop_ids = turn_end::find(&built.pieces);
        stop_ids.extend([vocab.eos, vocab.eot].into_iter().flatten().map(TokenId));
        stop_ids.extend(id(vocab.eom).filter(|id| !turn_end::inside_turn(&built.pieces, *id)));
        Ok(Self {
            encoder: built.encoder,
            pieces: Arc::new(built.pieces),
            added: AddedTokens::new(built.added),
            bos: id(vocab.bos),
            eos: id(vocab.eos),
            pad: id(vocab.pad),
            unk: id(vocab.unk),
            add_bos: vocab.bos.is_some() && built.add_bos,
            stop_ids,
            template: vocab.chat_template.as_deref().map(TemplateSlot::new),
            tool_template: None,
        })
    }

    /// Replaces the chat template, or gives one to a model that has none.
    pub fn with_chat_template(mut self, source: &str) -> Result<Self, TemplateError> {
        self.template = Some(TemplateSlot { source: source.to_owned(), compiled: Ok(ChatTemplate::new(source)?) });
        self.tool_template = None;
        Ok(self)
    }

    /// Number of ids, from 0; a few of them may stand for no token.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// The tokens of `text`.
    pub fn encode(&self, text: &str, options: Encode) -> Result<Vec<TokenId>, TokenizerError> {
        let cuts = self.added.find(text, options.special);
        self.encode_cut(text, &cuts, options.bos)
    }

    /// Renders a conversation with the chat template and encodes the prompt.
    ///
    /// Only text that the template itself wrote can become control tokens; text of messages, tools and template
    /// arguments is plain text, whatever it spells. The prompt has the BOS tokens that the template wrote; if it
    /// wrote none, one is added where the vocabulary asks for it.
    pub fn encode_chat(&self, request: &ChatRequest) -> Result<Vec<TokenId>, TokenizerError> {
        let guard = Guard::new(&self.added);
        let prompt = self.template_for(request)?.render_guarded(&self.with_special_tokens(request), &guard)?;
        let mut text = String::with_capacity(prompt.len());
        let mut cuts = Vec::new();
        let mut at = 0;
        let plain = |part: &str, text: &mut String, cuts: &mut Vec<Cut>| {
            let start = text.len();
            if unmark(part, text) {
                // Content pieces may have been split by a mark.
                let found = self.added.find(&text[start..], false);
                cuts.extend(found.into_iter().map(|cut| Cut {
                    start: start + cut.start,
                    end: start + cut.end,
                    id: cut.id,
                }));
            }
        };
        for cut in self.added.find(&prompt, true) {
            plain(&prompt[at..cut.start], &mut text, &mut cuts);
            let start = text.len();
            text.push_str(&prompt[cut.start..cut.end]);
            cuts.push(Cut { start, end: text.len(), id: cut.id });
            at = cut.end;
        }
        plain(&prompt[at..], &mut text, &mut cuts);
        self.encode_cut(&text, &cuts, true)
    }

    /// Renders a conversation with the chat template, without encoding it.
    pub fn render_chat(&self, request: &ChatRequest) -> Result<String, TokenizerError> {
        Ok(self.template_for(request)?.render(&self.with_special_tokens(request))?)
    }

    /// The text of `ids`. Bytes that are not UTF-8 become U+FFFD; ids without a token become nothing.
    pub fn decode(&self, ids: &[TokenId], skip_special: bool) -> String {
        let mut decoder = self.stream(skip_special);
        let mut out = String::new();
        for &id in ids {
            decoder.push_into(id, &mut out);
        }
        decoder.finish_into(&mut out);
        out
    }

    /// A decoder for ids that arrive one by one.
    pub fn stream(&self, skip_special: bool) -> StreamDecoder {
        StreamDecoder::new(Arc::clone(&self.pieces), skip_special)
    }

    /// The text of one token, for display; U+FFFD stands for incomplete characters.
    pub fn piece(&self, id: TokenId) -> Option<String> {
        self.token_bytes(id).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The bytes that one token adds to a text.
    pub fn token_bytes(&self, id: TokenId) -> Option<Vec<u8>> {
        (self.pieces.kind(id) != Kind::Hole).then(|| self.pieces.bytes(id).to_vec())
    }

    /// The token with exactly this text.
    pub fn id_of(&self, piece: &str) -> Option<TokenId> {
        self.added.id_of(piece).or_else(|| self.encoder.id_of(piece))
    }

    /// The token that stands for exactly this text wherever it is recognised: a control token or markup.
    pub(crate) fn added_id(&self, text: &str) -> Option<TokenId> {
        self.added.id_of(text)
    }

    /// Is this a control token, which text for users leaves out?
    pub fn is_special(&self, id: TokenId) -> bool {
        self.pieces.kind(id) == Kind::Special
    }

    /// Is this a control token or markup such as `<think>`, which text of a user can never become?
    pub fn is_control(&self, id: TokenId) -> bool {
        self.is_special(id) || self.added.is_control(id)
    }

    /// The token that begins a prompt.
    pub fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// The token that ends a reply.
    pub fn eos(&self) -> Option<TokenId> {
        self.eos
    }

    /// Does a prompt begin with BOS?
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// All tokens that end a reply.
    pub fn stop_ids(&self) -> &BTreeSet<TokenId> {
        &self.stop_ids
    }

    /// Source of the default chat template.
    pub fn chat_template(&self) -> Option<&str> {
        self.template.as_ref().map(|slot| slot.source.as_str())
    }

    /// Why the chat template cannot be used, if it cannot be.
    pub fn chat_template_error(&self) -> Option<&TemplateError> {
        self.template.as_ref().and_then(|slot| slot.compiled.as_ref().err())
    }

    fn template_for(&self, request: &ChatRequest) -> Result<&ChatTemplate, TokenizerError> {
        let tools = self.tool_template.as_ref().filter(|_| request.tools.is_some());
        let slot = tools.or(self.template.as_ref()).ok_or(TokenizerError::NoChatTemplate)?;
        slot.compiled.as_ref().map_err(|error| error.clone().into())
    }

    /// The request with the texts of this vocabulary's special tokens.
    fn with_special_tokens(&self, request: &ChatRequest) -> ChatRequest {
        let text = |id: Option<TokenId>| id.and_then(|id| self.piece(id));
        let mut request = request.clone();
        request.bos_token = request.bos_token.or_else(|| text(self.bos));
        request.eos_token = request.eos_token.or_else(|| text(self.eos));
        request.pad_token = request.pad_token.or_else(|| text(self.pad));
        request.unk_token = request.unk_token.or_else(|| text(self.unk));
        request
    }

    fn encode_cut(&self, text: &str, cuts: &[Cut], bos: bool) -> Result<Vec<TokenId>, TokenizerError> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 1);
        self.encoder.encode(text, cuts, &mut ids)?;
        if let Some(id) = self.bos.filter(|&id| bos && self.add_bos && ids.first() != Some(&id)) {
            ids.insert(0, id);
        }
        Ok(ids)
    }
}
