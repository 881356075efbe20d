//! The pre-tokenizers that GGUF vocabularies name: how text is cut into the words that merges stay inside.
//!
//! The patterns are those of the models' own `tokenizer.json`, run by an engine that never backtracks. Their one
//! look-ahead, `\s+(?!\S)|\s+`, is a rule applied to the match of a plain `\s+`.

use crate::error::TokenizerError;
use regex::Regex;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const LLAMA3: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN35: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";
const KIMI: &str = r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const SEED_CODER: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+";
const DEEPSEEK_V3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##;
const SPARK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+"##;
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+";
const CJK: &str = r"[\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]+";
const KANJI_KANA: &str = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+";
const LINE_BREAK: &str = r"[\r\n]";
const DIGIT: &str = r"\p{N}";
const DIGITS: &str = r"\p{N}+";
const DIGITS_3: &str = r"\p{N}{1,3}";

/// A named way to cut text into words.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    names: &'static [&'static str],
    /// Each pattern cuts the words that the one before it left; both matches and gaps stay words.
    patterns: &'static [&'static str],
    /// A word that is a token by itself needs no merges.
    pub(crate) whole_words: bool,
    /// The model was trained on text in Unicode's composed form (NFC).
    pub(crate) composed: bool,
    /// Prompts start with BOS unless the file says otherwise.
    pub(crate) add_bos: bool,
}

const fn plain(names: &'static [&'static str], patterns: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { names, patterns, whole_words: false, composed: false, add_bos: false }
}

static TABLE: &[PreTokenizer] = &[
    plain(&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, DIGITS, "[0-9][0-9][0-9]"]),
    plain(
        &[
            "gpt-2",
            "phi-2",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ],
        &[GPT2],
    ),
    plain(
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[DIGIT, GPT2],
    ),
    plain(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    PreTokenizer {
        whole_words: true,
        add_bos: true,
        ..plain(&["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"], &[LLAMA3])
    },
    plain(&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], &[LLAMA3]),
    PreTokenizer { composed: true, ..plain(&["qwen2", "deepseek-r1-qwen", "megrez"], &[QWEN2]) },
    plain(&["stablelm2", "hunyuan", "solar-open", "grok-2", "kormo"], &[QWEN2]),
    PreTokenizer { composed: true, ..plain(&["qwen35"], &[QWEN35]) },
    plain(&["gpt-4o", "llama4", "kanana2", "minimax-m2"], &[O200K]),
    PreTokenizer { whole_words: true, add_bos: true, ..plain(&["tekken"], &[TEKKEN]) },
    plain(&["kimi-k2"], &[KIMI]),
    plain(&["seed-coder"], &[SEED_CODER]),
    plain(
        &["deepseek-llm"],
        &[
            LINE_BREAK,
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
            r"\s+$",
            CJK,
            DIGITS,
        ],
    ),
    plain(&["deepseek-coder"], &[LINE_BREAK, r"\s?\p{L}+", r"\s?\p{P}+", CJK, DIGIT]),
    plain(&["deepseek-v3", "hunyuan-dense", "joyai-llm"], &[DIGITS_3, KANJI_KANA, DEEPSEEK_V3]),
    plain(&["spark2_5", "spark3"], &[DIGITS_3, KANJI_KANA, SPARK, DIGIT]),
];

impl PreTokenizer {
    /// The entry for a value of `tokenizer.ggml.pre`; a file without one gets `default`.
    pub(crate) fn named(name: Option<&str>) -> Result<&'static Self, TokenizerError> {
        let name = name.unwrap_or("default");
        TABLE.iter().find(|entry| entry.names.contains(&name)).ok_or_else(|| TokenizerError::UnknownPreTokenizer {
            pre: name.into(),
            known: TABLE.iter().flat_map(|entry| entry.names).copied().collect::<Vec<_>>().join(", "),
        })
    }

    /// The patterns, ready to run.
    pub(crate) fn compile(&self) -> Splitter {
        Splitter { stages: self.patterns.iter().map(|pattern| Stage::new(pattern)).collect() }
    }
}

/// Cuts text into words.
#[derive(Debug)]
pub(crate) struct Splitter {
    stages: Vec<Stage>,
}

#[derive(Debug)]
struct Stage {
    regex: Regex,
    space_runs: SpaceRuns,
}

/// What a match of the final `\s+` leaves to the word after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpaceRuns {
    /// The pattern has no `\s+(?!\S)`.
    Whole,
    /// The last whitespace character of a run joins the next word.
    LeaveLast,
    /// The same, except in runs that end with a line break: another alternative matched those.
    LeaveLastUnlessLineBreak,
}

impl Stage {
    fn new(pattern: &str) -> Self {
        let space_runs = match pattern.strip_suffix(r"|\s+") {
            None => SpaceRuns::Whole,
            Some(rest) if rest.ends_with(r"[\r\n]+") || rest.ends_with(r"[\r\n]") => {
                SpaceRuns::LeaveLastUnlessLineBreak
            }
            Some(_) => SpaceRuns::LeaveLast,
        };
        Self { regex: Regex::new(pattern).expect("the patterns of the table are valid"), space_runs }
    }

    /// The end of the match at `start..end`, shortened where the original pattern looks ahead.
    fn shorten(&self, text: &str, start: usize, end: usize) -> usize {
        if self.space_runs == SpaceRuns::Whole || end == text.len() {
            return end;
        }
        match text[start..end].chars().next_back() {
            Some('\r' | '\n') if self.space_runs == SpaceRuns::LeaveLastUnlessLineBreak => end,
            Some(last) if last.is_whitespace() && end - start > last.len_utf8() => end - last.len_utf8(),
            _ => end,
        }
    }
}

impl Splitter {
    /// Calls `word` for every word of `text`, in order; together they are the whole text.
    pub(crate) fn split(&self, text: &str, word: &mut dyn FnMut(&str)) {
        split_from(&self.stages, text, word);
    }
}

fn split_from(stages: &[Stage], text: &str, word: &mut dyn FnMut(&str)) {
    let Some((stage, rest)) = stages.split_first() else {
        if !text.is_empty() {
            word(text);
        }
        return;
    };
    let mut at = 0;
    while let Some(found) = stage.regex.find_at(text, at) {
        if at < found.start() {
            split_from(rest, &text[at..found.start()], word);
        }
        let end = stage.shorten(text, found.start(), found.end());
        split_from(rest, &text[found.start()..end], word);
        at = end;
    }
    if at < text.len() {
        split_from(rest, &text[at..], word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pre: &str, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        PreTokenizer::named(Some(pre)).unwrap().compile().split(text, &mut |word| out.push(word.to_owned()));
        out
    }

    #[test]
    fn every_entry_compiles_and_keeps_the_whole_text() {
        let text = "Hello  world's\r\n\n 12345 雪 ｗ !?\n  \t x　y e\u{301}\u{200d} ";
        for name in TABLE.iter().flat_map(|entry| entry.names) {
            assert_eq!(words(name, text).concat(), text, "{name}");
        }
    }

    #[test]
    fn the_last_space_of_a_run_joins_the_next_word() {
        assert_eq!(words("gpt-2", "a   b  "), ["a", "  ", " b", "  "]);
        assert_eq!(words("gpt-2", "a\n\nb"), ["a", "\n", "\n", "b"]);
        assert_eq!(words("llama-bpe", "a \n\n  b's 1234"), ["a", " \n\n", " ", " b", "'s", " ", "123", "4"]);
        assert_eq!(words("smollm", "x 12"), ["x", " ", "1", "2"]);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let message = PreTokenizer::named(Some("nonesuch")).unwrap_err().to_string();
        assert!(
            message.contains("`nonesuch`") && message.contains("qwen2") && message.contains("llama-bpe"),
            "{message}"
        );
    }
}
