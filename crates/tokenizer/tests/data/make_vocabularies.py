"""Writes text -> ids as llama.cpp encodes it, for the vocabularies of small GGUF files.

    pip install xllamacpp==2026.10.11549 gguf jinja2==3.1.6
    python make_vocabularies.py tiny FOLDER_OF_TINY_MODELS > vocabularies.json
    python make_vocabularies.py ids MODEL.gguf > smollm2.json
"""
import json
import pathlib
import sys
import unicodedata
import urllib.error
import urllib.request

import gguf
from jinja_environment import environment
from make_templates import CONVERSATIONS
import xllamacpp

FAMILIES = ["llama", "qwen2", "qwen3_5", "gpt_oss_lim7", "muse_glimmer", "qwen4_exp_ple64", "spark2_5",
            "minimax_m2", "deepseek2", "mistral", "gemma4_dense"]
TEXTS = [
    "the thing on a hat", "Hello, wörld 123!", "  two  spaces\nnewline", "theother in 2026",
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n   x", " \n \n ", "\t\tindent\t", "a\r\nb\r\n\r\nc", "\r", "\n \r\n",
    "trailing   ", "   leading", "in  the   middle    of", "x \n", "x\n ", "line one\nline two\n\n\nline five",
    "I'm you're he's we'll they'd I've can't DON'T I'M We'Ll o'clock 's 't", "'s'S'LL 'Re''ve",
    "0 1 12 123 1234 12345 123456 1,234,567.89 3.14e-10 0x1F ½ ² Ⅷ ٣ ४५", "v1.2.3-rc4", "2026-11-30T23:59:59Z",
    "def f(x):\n    return x**2  # comment\n\n\nclass A:\n\tpass\n", "for(int i=0;i<10;++i){a[i]+=b->c;}//done",
    "<html><body class=\"x\">&amp;</body></html>", "SELECT * FROM t WHERE a != 'b';", "{\"k\": [1, 2.5, null, \"v\\n\"]}",
    "camelCaseHTTPServer snake_case SCREAMING_CASE kebab-case", "ABCdef GHIjkl MNOpQR", "iPhone McDonald's XMLHttpRequest",
    "你好，世界！今天天气很好。", "東京都の天気は、晴れです。カタカナとひらがな", "한국어 텍스트입니다", "雪 雪  雪",
    "مرحبا بالعالم كيف حالك؟", "שלום עולם", "Привет, мир! Ёлка", "Γειά σου Κόσμε", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Xin chào thế giới",
    "😀", "😀😀 🎉", "👨‍👩‍👧‍👦 family 👩🏽‍💻", "🇯🇵🇩🇪", "❤️ ☃ ★", "a\u200db", "ﬁ ﬂ ſs 'ſ", "ÀÉÎõü ß ẞ Ǆ ǅ",
    "\u00a0nbsp\u00a0\u00a0x", "\u3000全角\u3000", "\u2028line\u2029para", "\u0085next", "\ufeffbom", "\u200b", "zero\u200bwidth",
    "\x01\x02\x07\x1b[0m\x7f", "a\x00b", "\ufffd", "\U0010ffff", "\ue000", "\u0378",
    "«quotes» “double” ‘single’ – — …", "€100 £5 ¥300 $1.00 50% §3", "a+b=c <=> ~x ^y |z| `q`", "!!! ??? ... --- === ***", " !@#$%^&*()", "/path/to/file.txt C:\\dir\\x",
    "https://example.com/a?b=c&d=%20e#f", "user@example.com", "#hashtag @mention", "_under_ __dunder__", "~~~~~~~~", "(((nested)))",
    "the the the", " the", "he hers", "inging", "ering the on a", "a a a", "  the", "\nthe", "on\non",
    "a" * 300, " " * 70, "\n" * 40, "ab " * 60, "1" * 50, "é" * 50, "!" * 64, "the" * 40, "😀" * 20, " \t" * 20, "x" + " " * 33 + "y",
    "Mixed 日本語 and English, с русским и العربية.", "a\tb\t\tc", "tab\n\tnew", "é è ê", "naïve café", "x\u00adsoft",
    "▁", "a▁b", "▁▁ ▁", "<0x0A>", "<0x41><0x42>", "Ġ Ċ", "<unk", "</ s>", "<", "<|", "|>", "[INST", "<s", "s>",
]
# Not in Unicode's composed form.
DECOMPOSED = ["e\u0301 a\u0308 o\u0302\u0301", "क\u094dष", "\u1112\u1161\u11ab", "x\u0327\u0301", "Å"]


def texts(specials):
    out = list(TEXTS) + DECOMPOSED
    for special in specials:
        out += [special, f"a{special}b", f" {special} ", f"{special}{special}", f"hi{special}\n{special}x", special[:-1], special.upper() + "x"]
    return list(dict.fromkeys(out))


class Oracle:
    def __init__(self, path):
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = 64
        params.n_parallel = 1
        params.warmup = False
        params.cpuparams.n_threads = 1
        params.fit_params = False
        params.port = 0
        self.server = xllamacpp.Server(params)

    def ids(self, text, special):
        body = json.dumps({"content": text, "add_special": False, "parse_special": special}).encode()
        request = urllib.request.Request(self.server.listening_address + "/tokenize", body, {"Content-Type": "application/json"})
        try:
            return json.load(urllib.request.urlopen(request))["tokens"]
        except urllib.error.HTTPError as error:
            # Vocabularies without a byte's token make it fail.
            print("refused", repr(text), error.read(), file=sys.stderr)
            return None


def metadata(path):
    reader = gguf.GGUFReader(path)
    values = {}
    for key, field in reader.fields.items():
        if key.startswith("tokenizer."):
            values[key] = field.contents()
    return values


def vocabulary(path):
    m = metadata(path)
    g = lambda key: m.get("tokenizer.ggml." + key)
    return {
        "model": g("model"), "pre": g("pre"), "tokens": g("tokens"), "scores": g("scores") if g("model") == "llama" else None,
        "types": g("token_type"), "merges": g("merges"), "bos": g("bos_token_id"), "eos": g("eos_token_id"), "unk": g("unknown_token_id"),
        "add_bos": g("add_bos_token"), "add_space_prefix": g("add_space_prefix"),
    }


def dump(value):
    print(json.dumps(value, ensure_ascii=True, separators=(",", ":"), indent=None))


def main():
    mode, path = sys.argv[1], pathlib.Path(sys.argv[2])
    if mode == "tiny":
        out = {}
        for family in FAMILIES:
            file = path / family / "model.gguf"
            vocab = vocabulary(file)
            oracle = Oracle(file)
            specials = [t for t, kind in zip(vocab["tokens"], vocab["types"]) if kind == 3]
            cases = {}
            known = path / family / "tokenize.json"
            for text, ids in json.load(open(known)).items():
                assert oracle.ids(text, True) == ids, (family, text)
            for text in texts(specials):
                # llama.cpp never composes; the own tokenizers of these models do.
                if vocab["pre"] in ("qwen2", "qwen35") and unicodedata.normalize("NFC", text) != text:
                    continue
                ids = oracle.ids(text, True)
                if ids is not None:
                    cases[text] = ids
            out[family] = {"vocabulary": vocab, "ids": cases}
        dump(out)
    else:
        oracle = Oracle(path)
        m = metadata(path)
        specials = [t for t, kind in zip(m["tokenizer.ggml.tokens"], m["tokenizer.ggml.token_type"]) if kind == 3]
        out = {"special": {}, "plain": {}}
        for text in texts(specials[:4]):
            out["special"][text] = oracle.ids(text, True)
            plain = oracle.ids(text, False)
            if plain != out["special"][text]:
                out["plain"][text] = plain
        template = environment.from_string(m["tokenizer.chat_template"])
        out["chat"] = []
        for messages in CONVERSATIONS.values():
            for generation in [False, True]:
                text = template.render(messages=messages, tools=None, add_generation_prompt=generation, bos_token="<|im_start|>", eos_token="<|im_end|>")
                out["chat"].append({"messages": messages, "add_generation_prompt": generation, "text": text, "ids": oracle.ids(text, True)})
        dump(out)


if __name__ == "__main__":
    main()
