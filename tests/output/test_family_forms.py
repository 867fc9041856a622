"""The special forms of each family. Each text is also read character by character, and in any two
parts."""

import json
from pathlib import Path

from tests.tables import table
from vinery_serving.core.events import TextDelta
from vinery_serving.core.request import Tool

from .builders import a_parser
from .families import deepseek_v3, deepseek_v31
from .forms import COUNT, PING, TOOLS, Rows, check, read, row, rows

DONE = ("text", "Done.")


def f(arguments: str) -> tuple[str, str]:
    return ("f", arguments)


def texts(name: str, why: str, *given: str) -> Rows:
    """Each of these is text, and no call."""
    return {f"{why}: {text}": (name, text, [("text", text)]) for text in given}


# -- Arguments as JSON --------------------------------------------------------------------

JSON_TOOLS = [Tool("get_weather"), Tool("ping"), Tool("function")]
PARIS = '{"city": "Paris"}'
WEATHER = ("get_weather", PARIS)
BARE_V31 = deepseek_v31([WEATHER]).removesuffix("<｜tool▁calls▁end｜>")
NO_NAME = "<｜tool▁call▁begin｜>no name<｜tool▁sep｜>{}"


def hermes(arguments: str, name: str = "get_weather") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


PACKED = json.dumps({"text": 'a "b"\n', "path": "c:\\d", "face": "😀"})
UNUSUAL: Rows = {
    f"unusual calls of hermes are read: {text}": row("hermes", text, expected)
    for text, expected in [
        # White space alone is an answer without calls, and stays before text that is no call.
        (" \n", [("text", " \n")]),
        ("\n<tool_call>?", [("text", "\n<tool_call>?")]),
        # A closing tag may be missing between calls, and several may share one pair of tags.
        (hermes(PARIS).removesuffix("</tool_call>") + hermes(PARIS), [WEATHER, WEATHER]),
        (
            '<tool_call>{"name": "a", "arguments": {}}\n{"name": "b", "arguments": {}}</tool_call>',
            [("a", "{}"), ("b", "{}")],
        ),
        # The name may come last, arguments be called parameters, and other keys do no harm.
        (f'<tool_call>{{"arguments": {PARIS}, "name": "get_weather"}}</tool_call>', [WEATHER]),
        ('<tool_call>{"id": 7, "type": "function", "name": "f", "arguments": {}}', [f("{}")]),
        # A call without arguments gets an empty object, also after white space.
        *(
            (f'<tool_call>{{"name":  "ping"{rest}}}</tool_call>', [PING])
            for rest in (
                "",
                *(f', "arguments":  {value}' for value in ("null", '""', "{}", '"{}"')),
            )
        ),
        # Arguments in a string are unwrapped. Escaped surrogate pairs in it are one character, and
        # half of a pair can be sent.
        (hermes(json.dumps(PACKED)), [("get_weather", PACKED)]),
        (hermes(r'"{\"a\": \"\ud83d\ude00\"}"'), [("get_weather", '{"a": "😀"}')]),
        (hermes(r'"{\"a\": \"\ud83d.\"}"'), [("get_weather", '{"a": "?."}')]),
    ]
}

AS_JSON: Rows = {
    **{
        f"{name}: the name may be under function: {call}": row(name, opening + call, [WEATHER])
        for name, opening in (("llama3", ""), ("phi4", "functools["), ("hermes", "<tool_call>"))
        for call in (
            f'{{"type": "function", "function": "get_weather", "parameters": {PARIS}}}',
            f'{{"type": "function", "function": {{"name": "get_weather", "arguments": {PARIS}}}}}',
            f'{{"function": {{"arguments": {PARIS}, "name": "get_weather"}}, "id": "1"}}',
        )
    },
    **texts(
        "llama3",
        "a JSON answer is no call",
        '{"name": "Bob", "age": 4}',
        '{"name": "get_weather"}',
        '{"name": "get_weather", "description": "Now.", "parameters": {}}',
        '{"parameters": {"a": 1}, "name": "Bob"}',
        '{"city": "Paris"}',
    ),
    "after its tag llama may call what is not there": row(
        "llama3", f'<|python_tag|>{{"name": "other", "parameters": {PARIS}}}', [("other", PARIS)]
    ),
    **texts("llama3", "python after the tag is text", '<|python_tag|>search.call(query="x")'),
    "a semicolon after a call that begins no other is text": row(
        "llama3",
        f'{{"name": "get_weather", "parameters": {PARIS}}}; done',
        [WEATHER, ("text", "; done")],
    ),
    **texts("phi4", "without a bracket it is Python", "Use functools.partial or functools(x)."),
    **texts("phi4", "no calls", "functools[]", "functools[1, 2]", "<|tool_call|>[no"),
    **{
        f"a head of mistral may have an id and a mark: {head}": row(
            "devstral", f"[TOOL_CALLS] get_weather{head}{PARIS}", [WEATHER]
        )
        for head in ("", "[ARGS]", "[CALL_ID]abc1[ARGS]", "[CALL_ID]abc123XYZ", " [ARGS] ")
    },
    "a tag that begins nothing does not hide the next": row(
        "devstral",
        f"[TOOL_CALLS]?? [TOOL_CALLS]get_weather[ARGS]{PARIS}",
        [("text", "[TOOL_CALLS]?? "), WEATHER],
    ),
    **{
        f"{name}: the outer tags may be missing": row(
            name,
            write([WEATHER, PING])
            .removeprefix("<｜tool▁calls▁begin｜>")
            .removesuffix("<｜tool▁calls▁end｜>"),
            [WEATHER, PING],
        )
        for name, write in (("deepseek_v3", deepseek_v3), ("deepseek_v31", deepseek_v31))
    },
    "a call of deepseek that is none does not spoil the one before": row(
        "deepseek_v31", BARE_V31 + NO_NAME, [WEATHER, ("text", NO_NAME)]
    ),
    **{
        f"a head of kimi may have a prefix and a number: {head}": row(
            "kimi_k2",
            f"<|tool_call_begin|>{head}<|tool_call_argument_begin|> {PARIS}<|tool_call_end|>",
            [WEATHER],
        )
        for head in ("functions.get_weather:12", "get_weather:0", " get_weather ")
    },
}
GIVEN_BACK = {
    "hermes": [
        "<tool_call>",
        "<tool_call>\nno JSON\n</tool_call> and on",
        "<tool_call>\n[1, 2]\n</tool_call>",
        '<tool_call>\n{"arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": 7, "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "get_we',
        '<tool_call>\n{"arguments": {"city": "P',
        "Write <tool_call> to call.",
        "</tool_call>",
    ],
    "glm4": ["<tool_call>ping"],  # a name alone is a call only with its end
    "mistral devstral": [
        "[TOOL_CALLS]",
        "[TOOL_CALLS] I would call get_weather",
        "[TOOL_CALLS]get weather[ARGS]{}",
        "[TOOL_CALLS]" + "x" * 600 + "{}",
        "[TOOL_CALLS][1, 2]",
        '[{"name": "other", "arguments": {}}]',
        "an array [{x}]",
    ],
    "deepseek_v31": [
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁begin｜> no <｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_wea",
        "<｜tool▁call▁begin｜>get weather<｜tool▁sep｜>{}",
        "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>",
    ],
    "kimi_k2": [
        "<|tool_calls_section_begin|> no call <|tool_calls_section_end|>",
        "<|tool_call_begin|>functions.get_weather:0{}",
        "<|tool_call_begin|>functions.get_wea",
    ],
}


@rows(UNUSUAL | AS_JSON)
def test_calls_with_json_are_read(name, text, expected):
    check(read(name, text, tools=JSON_TOOLS), expected)


@table("names, given", GIVEN_BACK.items())
def test_what_is_no_call_is_given_back(names, given):
    for name in names.split():
        for text in given:
            assert read(name, text, tools=JSON_TOOLS, is_whole=True) == [("text", text)]
    # A text after a call, too, which ends like the beginning of a tag.
    after = read("hermes", f"{hermes(PARIS)} A tag is <tool_", tools=JSON_TOOLS, is_whole=True)
    assert after == [WEATHER, ("text", " A tag is <tool_")]


# -- Messages: Muse Glimmer (onyx) and gpt-oss --------------------------------------------


def invoke(name: str, text: str = "Paris") -> str:
    return (
        f'<atem:function_calls>\n<atem:invoke name="{name}">\n'
        f'<atem:parameter name="text">{text}</atem:parameter>\n</atem:invoke>\n'
        "</atem:function_calls>"
    )


START = "<|start|>assistant"
FINAL = "<|channel|>final<|message|>"
ANALYSIS = "<|channel|>analysis<|message|>"
NOTE = "<|channel|>commentary<|message|>"
CALL = "<|channel|>commentary to=functions.f<|message|>"
TO_USER = f"<|eom|>{START} to=user<|message|>"

MESSAGES: Rows = {
    "a message of onyx to itself is reasoning": row(
        "onyx",
        f" to=self<|message|>Hm.{TO_USER}Hello!<|eot|>",
        [("reasoning", "Hm."), ("text", "Hello!")],
    ),
    "blanks in a value are the value's": row(
        "onyx", f" to=f<|message|>{invoke('f', '  a' + chr(10))}<|eot|>", [f('{"text": "  a\\n"}')]
    ),
    "every channel goes where it belongs": row(
        "gptoss",
        f"{ANALYSIS}Hm.<|end|>{START}{NOTE}I call f.<|end|>{START}<|channel|>commentary "
        'to=functions.f <|constrain|>json<|message|>{"count": 1}<|call|>',
        [("reasoning", "Hm."), ("text", "I call f."), COUNT],
    ),
    **{
        f"a recipient begins a call wherever it is: {head}": row(
            "gptoss", f'{head}<|message|>{{"text": "a<|b"}}<|call|>', [f('{"text": "a<|b"}')]
        )
        for head in (
            "<|channel|>commentary to=functions.f <|constrain|>json",
            "<|channel|>commentary to=functions.f json",
            "<|channel|>commentary to=functions.f",
            "<|channel|>commentary to=f code",
            "<|channel|>analysis to=functions.f code",
            " to=functions.f<|channel|>commentary <|constrain|>json",
            f"{START} to=functions.f<|channel|>commentary json",
        )
    },
    **{
        f"a final answer is sent however it ends: {end}": row(
            "gptoss", f"{FINAL}The answer{end}", [("text", "The answer")]
        )
        for end in ("<|end|>", "<|return|>", "<|call|>", "", f"<|end|>{START}")
    },
    "messages of one kind are parted by a line break": row(
        "gptoss",
        f"{ANALYSIS}A<|end|>{START}{ANALYSIS}B<|end|>{START}{NOTE}C<|end|>{START}{FINAL}D",
        [("reasoning", "A\nB"), ("text", "C\nD")],
    ),
    "a call without its end is complete with its last bracket": row(
        "gptoss", f'{CALL}{{"count": 1}}', [COUNT]
    ),
    "and open before it": row("gptoss", f'{CALL}{{"count": 1', [("open f", '{"count": 1')]),
    **texts("gptoss", "an answer without any head is an answer", '{"a": 1}'),
    **{
        f"a head that is cut is no answer: {text}": row("gptoss", text, [])
        for text in ("<|channel|>fin", "<|channel|>analysis<|mess", "<|start|>")
    },
}


def test_without_tools_a_call_is_text_and_reasoning_is_read():
    assert read("gptoss", f"{CALL}{{}}<|call|>", tools=[]) == [("text", "{}")]

    text = "<|channel>thought\nHm.<channel|><|tool_call>call:f{}<tool_call|>"
    found = read("gemma4", text, tools=[])
    assert found == [("reasoning", "Hm."), ("text", "<|tool_call>call:f{}<tool_call|>")]
    # So is reasoning that the prompt has opened.
    opened = read("gemma4", "Hm.<channel|>Hello", opens=True)
    assert opened == [("reasoning", "Hm."), ("text", "Hello")]


def test_it_is_reasoning_inside_reasoning_only():
    parser, states = a_parser("gptoss", tools=TOOLS), []
    for part in (ANALYSIS, "Hm", "<|end|>", START, FINAL, "Hi"):
        parser.feed(part)
        states.append(parser.is_reasoning)
    assert states == [True, True, False, False, False, False]


# -- Special notations for values, or Python's --------------------------------------


def gemma(arguments: str) -> str:
    return f"<|tool_call>call:f{{{arguments}}}<tool_call|>"


LITERALS: Rows = {
    **{
        f"the notation of gemma becomes JSON: {arguments}": row(
            "gemma4", gemma(arguments), [f(json_text)]
        )
        for arguments, json_text in [
            ('text:<|"|>a "b" \\n {,}<|"|>', r'{"text":"a \"b\" \\n {,}"}'),
            ("count:3,share:-0.5e3,is_on:true", '{"count":3,"share":-0.5e3,"is_on":true}'),
            ('items:[1,[2,<|"|>x<|"|>],{a:null}]', '{"items":[1,[2,"x"],{"a":null}]}'),
            ("more:{a:{b:[]},c:{}}", '{"more":{"a":{"b":[]},"c":{}}}'),
            ('more:{<|"|>a b<|"|>:1}', '{"more":{"a b":1}}'),
            ('"text": "a\\n\\u00e9"', r'{"text": "a\n\u00e9"}'),
            ("text:New York , count: 2", '{"text":"New York" , "count": 2}'),
            ("any:None", '{"any":null}'),
        ]
    },
    "a channel before the answer is reasoning": row(
        "gemma4",
        f"<|channel>thought\nHm, <b>.\n<channel|>I call.{gemma('count:1')}",
        [("reasoning", "Hm, <b>."), ("text", "I call."), f('{"count":1}')],
    ),
    "empty reasoning leaves no trace": row(
        "gemma4", "<|channel>thought\n<channel|>Hello", [("text", "Hello")]
    ),
    "what is no value is kept up to the closing tag": row(
        "gemma4", "<|tool_call>call:f{count:1,=}<tool_call|>Done.", [f("{count:1,=}"), DONE]
    ),
    **{
        f"{name}: literals of Python become JSON: {arguments}": row(
            name, f"{begin}[f({arguments})]", [f(json_text)]
        )
        for name, begin in (
            *(("llama3_pythonic", ""), ("llama4_pythonic", ""), ("lfm2", "<|tool_call_start|>")),
        )
        for arguments, json_text in [
            ("", "{}"),
            ("text='it\\'s'", '{"text": "it\'s"}'),
            ('text="""two "quoted"\nlines"""', r'{"text": "two \"quoted\"\nlines"}'),
            ("text=''", '{"text": ""}'),
            (
                r'text="\ud83d\ude00 \U0001F600 \xe9 \N{BULLET} \101 \d \/"',
                '{"text": "😀 😀 é • A \\\\d \\\\/"}',
            ),
            (r'text="\ud83d."', '{"text": "�."}'),
            ("count=1_000, share=.5", '{"count": 1000, "share": 0.5}'),
            ("count=-3, share=1e5", '{"count": -3, "share": 100000.0}'),
            ("is_on=True, any=None", '{"is_on": true, "any": null}'),
            ("is_on=false, any=null", '{"is_on": false, "any": null}'),
            ("items=[1, (2, 'x'), [],]", '{"items": [1, [2, "x"], []]}'),
            ("more={'a': {'b': [True]}, 2: None}", '{"more": {"a": {"b": [true]}, "2": null}}'),
            ("\n  count = 1,\n  is_on = True,\n", '{"count": 1, "is_on": true}'),
            ('**{"count": 1, "a-b": [2]}', '{"count": 1, "a-b": [2]}'),
        ]
    },
    **texts(
        "llama3_pythonic",
        "brackets that are no call",
        "[f](https://example.org/f(1))",
        "[f(1)]",
        "[f(x)] and [g(a=1)]",
        "[f(count=1, text=oops)]",
        "[f(text=open('x'))]",
        "[unknown(a=1)]",
        "See [1], [f, g] and f(a=1).",
        '<|python_tag|>print("ping()")',
    ),
    "a single call may do without brackets after a tag": row(
        "lfm2", "<|tool_call_start|>f(count=1)<|tool_call_end|>Done.", [COUNT, DONE]
    ),
    "a forgotten bracket does no harm": row(
        "lfm2", "<|tool_call_start|>[f(count=1), ping()<|tool_call_end|>Done.", [COUNT, PING, DONE]
    ),
    "what breaks after a call is given back": row(
        "lfm2", "<|tool_call_start|>[ping(), 7]", [PING, ("text", ", 7]")]
    ),
}


def test_a_link_is_sent_as_soon_as_it_is_one():
    parser = a_parser("llama3_pythonic", tools=TOOLS)

    assert parser.feed("[pin") == []
    assert parser.feed("k](x)") == [TextDelta(0, "[pink](x)")]


# -- Tags around each argument: Qwen3-Coder, GLM-4.5 and MiniCPM5 -------------------------


def qwen(key: str, value: str) -> str:
    return (
        f"<tool_call>\n<function=f>\n<parameter={key}>\n{value}\n</parameter>\n"
        "</function>\n</tool_call>"
    )


# The parameter, the text between the tags, and the JSON text of the argument.
VALUES = Path(__file__).parent / "values_between_tags.tsv"
QWEN_PING = "<function=ping>\n</function>\n"
TAGS: Rows = {
    **{
        f"the schema decides what a value is: {key} {value}": row(
            "qwen3coder", qwen(key, value), [f(f'{{"{key}": {argument}}}')]
        )
        for key, value, argument in [
            *(line.split("\t") for line in VALUES.read_text().splitlines()),
            # Only one line break at each end is syntax.
            ("text", "\n a\n\n", r'"\n a\n\n"'),
        ]
    },
    "a value without line breaks is read as well": row(
        "qwen3coder",
        "<tool_call><function=f><parameter=text>a</parameter></function></tool_call>",
        [f('{"text": "a"}')],
    ),
    "two functions may share one pair of outer tags": row(
        "qwen3coder",
        f"<tool_call>\n{QWEN_PING}{QWEN_PING}</tool_call>Bye.",
        [PING, PING, ("text", "Bye.")],
    ),
    **texts(
        "qwen3coder",
        "no call",
        '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f g>\n</function>\n</tool_call>",
        "<function=f>some words</function>",
        "Write <tool_call> or <function= to call.",
    ),
    "words between arguments end the call": row(
        "qwen3coder",
        "<function=f>\n<parameter=count>\n1\n</parameter>\nand so on",
        [COUNT, ("text", "\nand so on")],
    ),
    "a name alone is a call of glm": row("glm4", "<tool_call>ping\n</tool_call>", [PING]),
    **texts("glm4", "words after a name", "<tool_call>ping me"),
    **texts("glm4", "a key without a value", "<tool_call>f\n<arg_key>a</arg_key>\nb</tool_call>"),
    "a section may hold the closing tags": row(
        "minicpm5",
        '<function name="f"><param name="text"><![CDATA[</param></function>]]></param>'
        '<param name="count"> 3 </param></function>',
        [f('{"text": "</param></function>", "count": 3}')],
    ),
    "only a section at the beginning of a value is one": row(
        "minicpm5",
        '<function name="f"><param name="text">a <![CDATA[b]]></param></function>',
        [f('{"text": "a <![CDATA[b]]>"}')],
    ),
}


# -- Families of small models: Cohere, Hunyuan, Nemotron and FunctionGemma ----------------

ONE = '{"name": "f", "arguments": {"count": 1}}'
SMALL: Rows = {
    "cohere reasons, and marks its answer": row(
        "cohere_think+cohere",
        "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Done.<|END_RESPONSE|>",
        [("reasoning", "Hm."), DONE],
    ),
    "hunyuan marks its answer, too": row(
        "hunyuan_think+hunyuan",
        "<think>\nHm.\n</think>\n<answer>\nDone.\n</answer>",
        [("reasoning", "Hm."), DONE],
    ),
    "hunyuan calls inside it": row(
        "hunyuan_think+hunyuan",
        f"<think>\nHm.\n</think>\n<answer><tool_calls>[{ONE}]</tool_calls></answer>",
        [("reasoning", "Hm."), COUNT],
    ),
    "functiongemma ends with the tag of the response": row(
        "functiongemma",
        "<start_function_call>call:f{text:<escape>a <b>, c<escape>,items:[<escape>d<escape>]}"
        "<end_function_call><start_function_response>",
        [("f", {"text": "a <b>, c", "items": ["d"]})],
    ),
}


@rows(MESSAGES | LITERALS | TAGS | SMALL)
def test_every_form_of_a_family_is_read(name, text, expected):
    check(read(name, text), expected)
