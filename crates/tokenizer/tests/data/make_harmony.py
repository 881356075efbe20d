"""Writes replies as the package openai-harmony 0.0.8 renders them, with what its own parser reads.

    pip install openai-harmony==0.0.8
    python make_harmony.py > harmony.json

The package needs the file o200k_base.tiktoken in the folder that TIKTOKEN_ENCODINGS_BASE names.
"""
import json
import sys

from openai_harmony import *
from openai_harmony import RenderConversationConfig as RC
enc = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
def msg(text, channel, recipient=None, kind=None):
    m = Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel)
    if recipient: m = m.with_recipient(recipient)
    if kind: m = m.with_content_type(kind)
    return m
cases = [
 ("answer", [msg("2 + 2, easy.", "analysis"), msg("2 + 2 = 4.", "final")]),
 ("call", [msg("Need the weather.\n\nUse the tool.", "analysis"), msg('{"location": "Tokyo", "n": [1, {"k": null}]}', "commentary", "functions.get_weather", "<|constrain|>json")]),
 ("call without constraint marker", [msg('{"location":"東京 😀"}', "commentary", "functions.get_weather", "json")]),
 ("preamble, then a call", [msg("**Plan**: look it up.", "commentary"), msg("{}", "commentary", "functions.now", "<|constrain|>json")]),
 ("two thoughts", [msg("first", "analysis"), msg("second", "analysis"), msg("done\n", "final")]),
 ("built-in tool", [msg("print(1)", "analysis", "python", "code")]),
]
out = []
for name, messages in cases:
    conv = Conversation.from_messages([Message.from_role_and_content(Role.USER, "hi")] + messages)
    full = (enc.render_conversation_for_training if messages[-1].channel == "final" else enc.render_conversation)(conv, config=RC(auto_drop_analysis=False))
    start = enc.render_conversation_for_completion(Conversation.from_messages([Message.from_role_and_content(Role.USER, "hi")]), Role.ASSISTANT)
    text = enc.decode(full)
    st = enc.decode(start)
    assert text.startswith(st), (text, st)
    reply = text[len(st):]
    toks = full[len(start):]
    p = StreamableParser(enc, role=Role.ASSISTANT)
    for t in toks: p.process(t)
    parsed = [{"channel": m.channel, "recipient": m.recipient, "text": "".join(c.text for c in m.content)} for m in p.messages]
    out.append({"name": name, "reply": reply, "messages": parsed})
# Both places of the recipient, as models write them, parsed by the package.
for name, reply in [
  ("recipient beside the role", ' to=functions.now<|channel|>commentary <|constrain|>json<|message|>{"a": 1}<|call|>'),
  ("recipient in the channel", '<|channel|>commentary to=functions.now <|constrain|>json<|message|>{"a": 1}<|call|>'),
  ("recipient in the channel, bare type", '<|channel|>commentary to=functions.now json<|message|>{"a": 1}<|call|>'),
  ("no channel", '<|message|>plain<|return|>'),
]:
    p = StreamableParser(enc, role=Role.ASSISTANT)
    try:
        for t in enc.encode(reply, allowed_special="all"): p.process(t)
        parsed = [{"channel": m.channel, "recipient": m.recipient, "text": "".join(c.text for c in m.content)} for m in p.messages]
        out.append({"name": name, "reply": reply, "messages": parsed})
    except Exception:
        raise
json.dump({"prompt": enc.decode(enc.render_conversation_for_completion(Conversation.from_messages([Message.from_role_and_content(Role.USER, "hi")]), Role.ASSISTANT)), "replies": out}, sys.stdout, ensure_ascii=False, indent=1)
