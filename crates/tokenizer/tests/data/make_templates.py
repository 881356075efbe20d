"""Writes what Jinja2 renders for the templates in `templates/`, which are this project's own.

    pip install jinja2==3.1.6
    python make_templates.py > templates.json
"""
import json
import pathlib
import sys

import jinja2
from jinja_environment import environment

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather <now> & \"later\" in a city: 東京's",
     "parameters": {"type": "object", "properties": {
         "city": {"type": "string", "description": "City"}, "days": {"type": "integer", "enum": [1, 2, 3]},
         "scale": {"type": "number", "default": 1e-05, "maximum": 1e22}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}},
]
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 2, "scale": 0.00001, "deep": {"a": [1, None, True, 2.50]}}}}
U = lambda text: {"role": "user", "content": text}
A = lambda text: {"role": "assistant", "content": text}
S = lambda text: {"role": "system", "content": text}
CONVERSATIONS = {
    "one": [U("Hello!")],
    "system": [S("  Be brief.\n"), U("Hi <b> & 'you'"), A("Yo \"x\""), U("  spaces \n\n")],
    "thinking": [U("1+1?"), A("<think>\nlet me\n</think>\n\n2"), U("2+2?"), A("<think>hm</think>4"), U("ok?")],
    "tools": [S("Use tools."), U("Weather?"), {"role": "assistant", "content": "", "tool_calls": [CALL]},
              {"role": "tool", "content": "{\"t\": 3.0}", "name": "get_weather", "tool_call_id": "call_1"},
              {"role": "tool", "content": "雨", "name": "now", "tool_call_id": "call_2"}, A("Rain."), U("Thanks")],
    "reasoning": [U("q"), {"role": "assistant", "content": "a", "reasoning_content": "because\n"}, U("r")],
    "last_assistant": [U("q"), A("partial")],
    "two_systems": [S("a"), S("b"), U("c")],
}
# A variable of every template, for what conversations do not hold.
DATA = {
    "text": "  Hello, world it's  a\ttest\n", "list": ["b", "A", "c", "b"], "quoted": "<b> & 'é' \"雪\" \u2028",
    "mapping": {"b": 1, "A": [1, 2.5, None, True, 1e-05], "items": "I", "keys": "K", "get": "G", "é": {"deep": ["x'y", {}]}},
    "numbers": [0, -1, 1.0, 1e22, 12345678901234567890], "empty": {"a": [], "o": {}, "s": ""},
}


def main():
    cases, seen = [], set()
    for path in sorted(pathlib.Path(__file__).with_name("templates").glob("*.jinja")):
        source = path.read_bytes().decode()
        name = path.stem
        template = environment.from_string(source)
        for conversation, messages in CONVERSATIONS.items():
            for tools in [None, TOOLS]:
                for generation in [False, True]:
                    extra = {"enable_thinking": False} if name == "thinker" and generation and tools is None else {}
                    variables = {"tools": tools, "add_generation_prompt": generation, "bos_token": "<s>", "eos_token": "</s>", **extra}
                    case = {"template": name, "conversation": conversation, "variables": variables}
                    try:
                        case["expected"] = template.render(messages=messages, documents=None, data=DATA, **variables)
                    except jinja2.exceptions.UndefinedError as exception:
                        case["fails"] = str(exception)
                    except jinja2.exceptions.SecurityError as exception:
                        case["fails"] = str(exception)
                    except jinja2.exceptions.TemplateError as exception:
                        case["refused"] = str(exception)
                    except Exception as exception:
                        case["fails"] = str(exception)
                    outcome = (name, case.get("expected"), case.get("refused"), case.get("fails"))
                    if outcome not in seen:
                        seen.add(outcome)
                        variables["tools"] = tools is not None
                        cases.append(case)
    out = {"conversations": CONVERSATIONS, "tools": TOOLS, "data": DATA, "cases": cases}
    json.dump(out, sys.stdout, ensure_ascii=True, indent=None, separators=(",", ":"))
    print()
    for case in cases:
        if "expected" not in case:
            print(case, file=sys.stderr)
    print(len(cases), "cases", file=sys.stderr)


if __name__ == "__main__":
    main()
