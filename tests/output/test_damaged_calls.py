"""Odd and damaged calls: each is read as the model meant it, and so are the calls beside it. Each
text is also read character by character, and in any two parts."""

import json

from tests.tables import table
from vinery_serving.core.tools import custom_tool

from . import forms
from .builders import Folded
from .families import deepseek_v3
from .forms import COUNT, PING, TOOLS, Rows, check, row, rows

DONE = ("text", "Done.")
PARIS = ("f", {"text": "Paris"})
RUN = custom_tool("run", "Run code", None)


def read(name: str, text: str) -> Folded:
    """Read a text that the model has ended."""
    return forms.read(name, text, tools=[*TOOLS, RUN], is_whole=True)


def gemma(calls: str) -> str:
    return f"<|tool_call>{calls}<tool_call|>"


def lfm2(calls: str) -> str:
    return f"<|tool_call_start|>[{calls}]<|tool_call_end|>"


def hermes(call: str) -> str:
    return f"<tool_call>\n{call}\n</tool_call>"


HERMES_PING = hermes('{"name": "ping"}')


def broken_hermes(arguments: str) -> str:
    return hermes(f'{{"name": "f", "arguments": {arguments}')


def gptoss(name: str, body: str) -> str:
    head = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    return f"{head}{body}<|call|>"


def tagged(name: str, key: str, value: str) -> str:
    """A call of MiniCPM5 or Qwen3-Coder."""
    if name == "minicpm5":
        return f'<function name="f"><param name="{key}">{value}</param></function>'
    argument = f"<parameter={key}>\n{value}\n</parameter>"
    return f"<tool_call>\n<function=f>\n{argument}\n</function>\n</tool_call>"


QWEN = tagged("qwen3coder", "text", "Paris")

CALLS: Rows = {
    **{
        f"several calls of gemma may be in one block, with {between!r} between": row(
            "gemma4",
            gemma("call:f{count: 1}" + between + "call:ping{}") + "Done.",
            [COUNT, PING, DONE],
        )
        for between in ("", ",", " ", "\n")
    },
    "a blank may follow the word of gemma": row("gemma4", gemma("call: f{count: 1}"), [COUNT]),
    **{
        f"quotes in a string of lfm2 need no escape: {text}": row(
            "lfm2",
            lfm2(f"f(text='{text}', count=1), ping()"),
            [("f", {"text": text, "count": 1}), PING],
        )
        for text in ("it's here", "O'Neil's", "a 'word', and more", "don't, won't", "f('x')")
    },
    **{
        f"a path of windows is raw: {path}": row(
            "lfm2", lfm2(f"f(text='{path}', count=1)"), [("f", {"text": path, "count": 1})]
        )
        for path in ("C:\\Users\\new", "C:\\Program Files\\x", "C:\\U\\x.txt")
    },
    "a letter and a line break are no path": row(
        "lfm2", lfm2(r"f(text='Q:\nWho?')"), [("f", {"text": "Q:\nWho?"})]
    ),
    **{
        f"a call of devstral may have no arguments, with {mark!r}": row(
            "devstral",
            f'[TOOL_CALLS]ping{mark}[TOOL_CALLS]f[ARGS]{{"count": 1}}[TOOL_CALLS]ping{mark}',
            [PING, COUNT, PING],
        )
        for mark in ("[ARGS]", "[CALL_ID]abc123XYZ[ARGS]", "")
    },
    **{
        f"a lost quote ends no more than its string: {arguments}": row(
            "hermes",
            broken_hermes(arguments + "}") + f"\n{HERMES_PING}\nDone.",
            [PARIS, PING, ("text", "\nDone.")],
        )
        for arguments in (
            *('{"text": "Paris}', '{"text: "Paris"}', '{"text": Paris"}', '{text": "Paris"}'),
        )
    },
    "a lost quote before a comma leaves the next member": row(
        "hermes",
        broken_hermes('{"text": "Paris, "count": 1}}'),
        [("f", {"text": "Paris", "count": 1})],
    ),
    **{
        f"a miscounted bracket leaves no markup: {end}": row(
            "hermes",
            broken_hermes('{"count": 1' + end) + "\n" + HERMES_PING,
            [("f", {"count": 1}), PING],
        )
        for end in ("", "}", "}}", "}}}", "}]", '}}"')
    },
    "a closing tag may be there twice": row(
        "hermes", f"{HERMES_PING}\n</tool_call>\n{HERMES_PING}", [PING, PING]
    ),
    **{
        f"what is lost before a fence leaves the next call: {arguments}": row(
            "deepseek_v3", deepseek_v3([("f", arguments), PING]), [PARIS, PING]
        )
        for arguments in (
            *('{"text": "Paris}', '{"text": "Paris"', '{"text": "Paris"}}', '{"text": "Paris'),
        )
    },
    **{
        f"arguments that are not JSON are kept whole: {body}": row(
            "gptoss", gptoss("f", body) + "<|start|>assistant" + gptoss(*PING), [("f", body), PING]
        )
        for body in ("print('a, b')  # {", "{1, 2} | {3}", "Paris, please", '{"a" 1}')
    },
    **{
        f"line breaks around a value of minicpm are syntax: {text!r}": row(
            "minicpm5", tagged("minicpm5", key, text), [("f", {key: value})]
        )
        for key, text, value in [
            ("text", "\nParis\n", "Paris"),
            ("text", "\ntwo\nlines\n", "two\nlines"),
            ("count", "\n 5 \n", 5),
            ("text", "\n<![CDATA[\n</param>\n]]>\n", "\n</param>\n"),
        ]
    },
    **{
        f"a lost closing tag leaves the next call: {lost}": row(
            "qwen3coder", f"{QWEN.replace(lost, '', 1)}\n{QWEN}", [PARIS, PARIS]
        )
        for lost in ("</parameter>\n", "</function>\n</tool_call>", "</tool_call>")
    },
    "a closing tag in a text may have a lot of space after it": row(
        "qwen3coder",
        tagged("qwen3coder", "text", f"a tag: </function>{' ' * 300}and more"),
        [("f", {"text": f"a tag: </function>{' ' * 300}and more"})],
    ),
    **{
        f"a miscounted bracket in a list leaves the next call: {calls}": row(
            "lfm2", lfm2(calls), [("f", {"count": 1}), PING]
        )
        for calls in (
            *("f(count=1)), ping()", "f(count=1}), ping()", "f(count=1 , ), ping()"),
            *("f(count=1)\nping()", "f(count=1);ping()"),
        )
    },
    "a lost bracket of an array ends no more than the array": row(
        "lfm2", lfm2("f(items=['a', None), ping()"), [("f", {"items": ["a", None]}), PING]
    ),
}


@rows(CALLS)
def test_a_call_is_read_as_it_was_meant(name, text, expected):
    check(read(name, text), expected)


@table("name", ["minicpm5", "qwen3coder"])
@table(
    "key, text, value",
    [
        # Objects may mix Python and JSON.
        ("more", "{\"a\": True, 'b': null}", {"a": True, "b": None}),
        ("more", "{'a': [1, None, true], \"b\": 'it\\'s'}", {"a": [1, None, True], "b": "it's"}),
        ("more", "{a: 1, 'b': False,}", {"a": 1, "b": False}),
        # A list may be for a parameter without a schema.
        ("unknown", "['a', 'b']", ["a", "b"]),
        ("unknown", '["a", True]', ["a", True]),
        ("unknown", "[1, 2]", [1, 2]),
        ("unknown", "[see here]", "[see here]"),
        ("unknown", "['a'", "['a'"),
        # An escape without an end ends with its string.
        ("more", r"{'a': '\N{', 'b': '}'}", {"a": r"\N{", "b": "}"}),
    ],
)
def test_values_between_tags_may_be_of_python(name, key, text, value):
    check(read(name, tagged(name, key, text)), [("f", {key: value})])


def test_a_broken_call_leaves_the_next_ones_and_a_name_that_is_cut_is_none():
    calls = read("lfm2", lfm2("f(count=1, =)") + lfm2("ping(), f(count=1)"))
    assert calls == [("f", "count=1, =)"), PING, COUNT]

    [(name, arguments), ping] = read("hermes", broken_hermes('{"count": 1, (}}') + HERMES_PING)
    assert (name, ping) == ("f", PING)
    assert arguments.startswith('{"count": 1')
    assert "(}}" in arguments

    assert forms.read("devstral", "[TOOL_CALLS]ping[ARGS]") == []


@table(
    "code",
    [
        *('print("hi")\nfor x in {1, 2}:\n    pass', '{"a": 1}', "{% if a %}", ""),
        *('"""A module."""\nx = 1', '"one" + "two"'),
    ],
)
def test_the_input_of_a_custom_tool_is_kept_whole(code):
    for body in (code, json.dumps({"input": code})):
        assert read("gptoss", gptoss("run", body)) == [("custom run", code)]


@table("head", ["", " to=f<|message|>"])
def test_an_answer_of_onyx_that_is_cut_inside_the_opening_tags_leaves_no_markup(head):
    text = '<atem:function_calls>\n<atem:invoke name="f'

    for end in range(2, len(text)):
        assert forms.read("onyx", head + text[:end]) == []
