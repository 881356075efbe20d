"""Writes what Jinja2 3.1.6, set up as transformers sets it up, renders for the templates below.

    pip install jinja2==3.1.6
    python make_templates.py > templates.json
"""
import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes

NOW = datetime.datetime(2026, 11, 30, 9, 5, 7)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = lambda format: NOW.strftime(format)

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
              {"role": "tool", "content": "{\"t\": 3.0}", "tool_call_id": "call_1", "name": "get_weather"},
              {"role": "tool", "content": "雨", "tool_call_id": "call_2", "name": "now"}, A("Rain."), U("Thanks")],
    "reasoning": [U("q"), {"role": "assistant", "content": "a", "reasoning_content": "because\n"}, U("r")],
    "last_assistant": [U("q"), A("partial")],
    "two_systems": [S("a"), S("b"), U("c")],
}

CHATML = """\
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{%- if messages[0]['role'] != 'system' -%}
{{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' -}}
{%- endif -%}
{% for message in messages %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{% endif %}
"""

INST = """\
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate " ~ loop.index0) }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length < 5 %}
                {{- raise_exception("bad id") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("unknown role " + message.role) }}
    {%- endif %}
{%- endfor %}
"""

THINKER = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

DATED = """\
{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

TURNS = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
"""

TYPES = """\
{%- macro render_type(spec, required=false) -%}
    {%- if spec.type == "array" -%}
        {{- render_type(spec['items']) + "[]" }}
    {%- elif spec.enum is defined and spec.enum is iterable and spec.enum is not string -%}
        {%- for item in spec.enum -%}{{ item if item is not string else '"' ~ item ~ '"' }}{%- if not loop.last %} | {% endif -%}{%- endfor -%}
    {%- elif spec.type in ["number", "integer"] -%}
        number{{ "?" if not required }}
    {%- elif spec.properties -%}
        {
        {%- for name, value in spec.properties|dictsort -%}
            {{ name }}: {{ render_type(value, name in (spec.required or [])) }}{% if value.default is defined %} = {{ value.default }}{% endif %}{% if value.maximum is defined %} <= {{ value.maximum }}{% endif %}{% if not loop.last %}, {% endif %}
        {%- endfor -%}
        }
    {%- else -%}
        {{ spec.type|default('any') }}
    {%- endif -%}
{%- endmacro -%}
{%- if tools is iterable and tools | length > 0 %}
namespace functions {
{% for tool in tools %}
  {%- set f = tool['function'] %}
  // {{ f.description|default("none", true)|upper }}
  type {{ f.name|capitalize }} = (_: {{ render_type(f.parameters) }}) => any;

{% endfor %}
} // namespace
{% endif %}
{% for message in messages recursive %}{{ loop.index }}/{{ loop.length }}:{{ loop.cycle('odd', 'even') }}:{{ message.role|title }}:{{ loop.previtem.role if loop.previtem is defined }}
{% endfor %}"""

PARAMS = """\
{% for message in messages %}{% if message.tool_calls %}{% for call in message.tool_calls %}
<function={{ call.function.name }}>
{% for name, value in call.function.arguments|items %}
<parameter={{ name }}>
{{ value | tojson if value is mapping or value is sequence and value is not string else value | string }}
</parameter>
{% endfor %}
</function>
{% endfor %}{% else %}{% generation %}{{ message.content }}{% endgeneration %}
{% endif %}{% endfor %}"""

LOOPS = """\
{% for message in messages %}
{% if message.role == 'system' %}{% continue %}{% endif %}
{% if loop.index > 4 %}{% break %}{% endif %}
{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ message.content[:5] }}|{{ message.content[-3:] }}|{{ message['content']|length }}
{% else %}
none
{% endfor %}
{{ messages|map(attribute='role')|join(',') }} {{ messages|map(attribute='role')|unique|list|length }} {{ (messages|last).role }} {{ (messages|first)['role'] }}
{{ messages|rejectattr('role', 'in', ['system', 'tool'])|map(attribute='content')|list|tojson }}
{% set outer = namespace(n=0, s=[]) %}
{% for m in messages %}{% set outer.n = outer.n + m.content|length %}{% set outer.s = outer.s + [m.role] %}{% endfor %}
{{ outer.n }} {{ outer.s }} {{ outer.s|join('') }}"""

STRINGS = """\
{% set s = messages[-1].content %}{{ s.strip() }}|{{ s.upper() }}|{{ s.title() }}|{{ s|title }}|{{ s.capitalize() }}|{{ s.find('o') }}|{{ s.rfind('o') }}|{{ s.replace('o', '0') }}|{{ s.replace('o', '0', 1) }}
{{ s.split() }}|{{ s.split('o') }}|{{ s.split('o', 1)[0] }}|{{ s.startswith('H') }}|{{ s.endswith(('!', '?')) }}|{{ s|e }}|{{ s|escape }}|{{ s ~ 1 ~ none ~ true }}|{{ 'x' * 3 }}|{{ s in 'Hello! you' }}
{{ 'a,b,c'.split(',')|reverse|list }}|{{ ' x '.lstrip() }}|{{ ' x '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'ab'.isalpha() }}|{{ '12'.isdigit() }}|{{ 'é'|length }}|{{ 'a\\nb'|indent(2) }}|{{ 'hello world'|replace('o', '0') }}
{{ 'abc'.index('c') }}|{{ 'prefix-x'.removeprefix('prefix-') }}|{{ 'a=b=c'.partition('=')[2] }}|{{ "%s-%s"|format('a', 1) }}|{{ 'A-{}'.format(2) }}|{{ ['a', 'b']|join('/') }}|{{ 'abc'[::-1] }}|{{ 'abc'[1] }}"""

NUMBERS = """\
{{ 1 / 2 }} {{ 7 // 2 }} {{ 7 % 3 }} {{ 2 ** 10 }} {{ 1e-05 }} {{ 1e22 }} {{ 1.0 }} {{ 3 * 1.5 }} {{ 10 | float }} {{ '3' | int }} {{ 3.7 | int }} {{ 3.14159 | round(2) }} {{ -3 | abs }} {{ [3, 1, 2] | sort }} {{ [1, 2, 3] | sum }} {{ [1, 5, 2] | max }} {{ range(3) | list }} {{ true }} {{ none }} {{ [1, 'a', none, true, 2.0] }} {{ {'a': 1, 'b': 'x'} }}
{{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ not true }} {{ 1 if false }} {{ [] or 'empty' }} {{ {} | length }} {{ undefined_thing }} {{ undefined_thing is defined }} {{ none is none }} {{ 5 is odd }} {{ 'x' is string }} {{ 1 is number }} {{ [1] is sequence }} {{ {'a': 1} is mapping }} {{ none is iterable }} {{ [] is iterable }} {{ 'k' in {'k': 1} }} {{ true is boolean }} {{ 1 is integer }} {{ 1.5 is float }}
{{ {'b': 1, 'a': [1, 2, {'c': none}], 'é': 1.50}|tojson }} {{ {'b': 1, 'é': '\\u00e9"\\\\/\\t\\x7f'}|tojson(ensure_ascii=true) }} {{ [1, [], {}]|tojson(indent=1) }} {{ 'a</script>'|tojson }} {{ true|tojson }} {{ {1: 2}|tojson }} {{ {'b': 1, 'a': 2}|dictsort }} {{ {'b': 1, 'a': 2}.items()|list }} {{ {'b': 1}.get('z', 'd') }} {{ {'b': 1}.keys()|list }} {{ {'b': 2}.values()|list }}"""

SPACES = """\
  {# a comment #}
a
  {%- if true -%}
  b
  {%- endif %}
 c   {% if true %}   d {% endif %}   e
{%+ if true %}
   f
{%+ endif %}
{% raw %}{{ not }} {% this %}{% endraw %}

{% set x %}captured
 text{% endset %}
[{{ x }}]
{% filter upper %}loud{% endfilter %}
{% with y = 5 %}{{ y }}{% endwith %}
{% call(v) wrap() %}v={{ v }}{% endcall %}


"""

TEMPLATES = {
    "chatml": CHATML, "inst": INST, "thinker": THINKER, "dated": DATED, "turns": TURNS, "types": TYPES, "params": PARAMS,
    "loops": LOOPS, "strings": STRINGS, "numbers": NUMBERS,
    "spaces": "{% macro wrap() %}<{{ caller(1) }}>{% endmacro %}\n" + SPACES,
    "clock": "{{ strftime_now('%Y-%m-%d %H:%M:%S %A %a %B %b %j %y %I %p %-d %e %%') }}",
    "refusal": "{% if messages|length > 1 %}{{ raise_exception('only one message') }}{% endif %}{{ messages[0].content }}",
}


def main():
    cases, seen = [], set()
    for template_name, source in TEMPLATES.items():
        template = environment.from_string(source)
        for name, messages in CONVERSATIONS.items():
            for tools in [None, TOOLS] if template_name in ("inst", "thinker", "dated", "types") else [None]:
                for generation in [False, True]:
                    extra = {"enable_thinking": False} if template_name == "thinker" and generation and tools is None else {}
                    variables = {"tools": tools, "add_generation_prompt": generation, "bos_token": "<s>", "eos_token": "</s>", **extra}
                    try:
                        expected, error = template.render(messages=messages, documents=None, **variables), None
                    except Exception as exception:
                        expected, error = None, str(exception)
                    if (template_name, expected, error, tools is None) not in seen:
                        seen.add((template_name, expected, error, tools is None))
                        variables["tools"] = tools is not None
                        cases.append({"template": template_name, "conversation": name, "variables": variables, "expected": expected, "error": error})
    out = {"templates": TEMPLATES, "conversations": CONVERSATIONS, "tools": TOOLS, "cases": cases}
    json.dump(out, sys.stdout, ensure_ascii=True, indent=None, separators=(",", ":"))
    print()
    print(len(cases), "cases, refused:", *[case for case in cases if case["error"]], sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
