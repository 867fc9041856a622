"""Odd and damaged calls, as models write them: each is read as the model meant it, and so are the
calls beside it. Each text is also read character by character, and in any two parts."""

import json

from tests.tables import table
from vinery_serving.core.request import Tool
from vinery_serving.core.tools import custom_tool

from . import forms
from .builders import Folded, object_of
from .families import deepseek_v3
from .forms import Rows, check, row, rows

TOOLS = [
    Tool(
        "edit",
        None,
        object_of(
            [],
            path={"type": "string"},
            new={"type": "string"},
            limit={"type": "integer"},
            items={"type": "array", "items": {"type": "string"}},
            opts={"type": "object"},
        ),
    ),
    Tool("ping"),
    custom_tool("run", "Run code", None),
]
PING = ("ping", {})
DONE = ("text", "Done.")


def read(name: str, text: str) -> Folded:
    """Read a text that the model has ended."""
    return forms.read(name, text, tools=TOOLS, is_whole=True)


def edit(**arguments: object) -> tuple[str, object]:
    return ("edit", arguments)


PARIS = edit(new="Paris")
LIMIT = edit(limit=1)


def hermes(arguments: str, end: str = "}\n</tool_call>", name: str = "edit") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}{end}'


HERMES_PING = hermes("{}", name="ping")


def gemma(arguments: str, name: str = "edit") -> str:
    return f"<|tool_call>call:{name}{{{arguments}}}<tool_call|>"


def lfm2(calls: str) -> str:
    return f"<|tool_call_start|>[{calls}<|tool_call_end|>"


def gptoss(name: str, body: str) -> str:
    head = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    return f"{head}{body}<|call|>"


def qwen(arguments: str) -> str:
    return f"<tool_call>\n<function=edit>\n{arguments}\n</function>\n</tool_call>"


def argument(head: str, value: str = "a") -> str:
    return f"<parameter={head}>\n{value}\n</parameter>"


def minicpm(key: str, value: str) -> str:
    return f'<function name="edit"><param name="{key}">{value}</param></function>'


# -- Strings ------------------------------------------------------------------------------

# The text before the missing last quote, and the string that is read.
LOST_QUOTES = {
    **{text: text for text in ("f(x)", "a[0]", "x = {1}", "ls;", "Rome,", ":)")},
    **{f"Rome{space}": "Rome" for space in ("", "\n", " \n \n")},
    "a[0]}}": "a[0]",
    "x = {1}}}": "x = {1}",
    "{x}\n}": "{x}",
    "Rome }}": "Rome",
}
STRINGS: Rows = {
    **{
        f"a string that lost its quote keeps what is its own: {text!r}": row(
            "hermes", hermes(f'{{"new": "{text}', "</tool_call>"), [edit(new=new)]
        )
        for text, new in LOST_QUOTES.items()
    },
    **{
        f"so does a string of python: {text!r}": row(
            "lfm2", lfm2(f'edit(new="{text}'), [edit(new=new)]
        )
        for text, new in [("f(x)", "f(x)"), ("a[0])]", "a[0]"), ("Rome \n", "Rome")]
    },
    **{
        f"and one of gemma: {text!r}": row(
            "gemma4", f'<|tool_call>call:edit{{new:<|"|>{text}<tool_call|>', [edit(new=new)]
        )
        for text, new in [("f(x)}", "f(x)"), ("a[0]", "a[0]"), ("Rome\n", "Rome")]
    },
    "an array around it closes as well": row(
        "hermes", hermes('{"items": ["a[0]]}'), [edit(items=["a[0]"])]
    ),
    "a string without its quote at the end of the text ends there": row(
        "mistral", '[TOOL_CALLS]edit{"new": "f(x)', [edit(new="f(x)")]
    ),
    **{
        f"a stray quote before a tag is no text: {stray}": row(
            "hermes", hermes('{"new": "one"}', f"}}\n{stray}</tool_call>"), [edit(new="one")]
        )
        for stray in ("'", "' \"")
    },
    **{
        f"a lost quote ends no more than its string: {arguments}": row(
            "hermes",
            f"{hermes(arguments)}\n{HERMES_PING}\nDone.",
            [PARIS, PING, ("text", "\nDone.")],
        )
        for arguments in (
            *('{"new": "Paris}', '{"new: "Paris"}', '{"new": Paris"}', '{new": "Paris"}'),
        )
    },
    "a lost quote before a comma leaves the next member": row(
        "hermes", hermes('{"new": "Paris, "limit": 1}'), [edit(new="Paris", limit=1)]
    ),
    **{
        f"quotes in a string of lfm2 need no escape: {text}": row(
            "lfm2", lfm2(f"edit(new='{text}', limit=1), ping()]"), [edit(new=text, limit=1), PING]
        )
        for text in ("it's here", "a 'word', and more", "don't, won't", "f('x')")
    },
    **{
        f"a path of windows is raw: {path}": row(
            "lfm2", lfm2(f"edit(new='{path}', limit=1)]"), [edit(new=path, limit=1)]
        )
        for path in ("C:\\Users\\new", "C:\\Program Files\\x", "C:\\U\\x.txt")
    },
    "a letter and a line break are no path": row(
        "lfm2", lfm2(r"edit(new='Q:\nWho?')]"), [edit(new="Q:\nWho?")]
    ),
    # The last call, without the closing tag.
    **{
        f"a tag in a string ends nothing: {before}{new}": row(
            name, before + new.replace('"', r"\"") + after, [edit(new=new)]
        )
        for name, before, new, after in [
            ("devstral", '[TOOL_CALLS]edit[ARGS]{"new": "', 'a [TOOL_CALLS] "b" c', '"}'),
            (
                "granite",
                '<|tool_call|>[{"name": "edit", "arguments": {"new": "',
                "<|tool_call|>",
                '"}}]',
            ),
            ("hermes", hermes('{"new": "', ""), "see <tool_call> here", '"}}'),
            ("hermes", hermes('{"new": "', ""), "see </tool_call> here", '"}}\n'),
            ("lfm2", '<|tool_call_start|>[edit(new="', "a <|tool_call_end|> b", '")]'),
            ("gemma4", '<|tool_call>call:edit{new:<|"|>', "a <tool_call|> b", '<|"|>}'),
        ]
    },
}

# -- Notations ----------------------------------------------------------------------------

GEMMA: Rows = {
    arguments: row("gemma4", gemma(arguments), [edit(**meant)])
    for arguments, meant in [
        # The first mark of a string is missing.
        ('new:Rome in May<|"|>', {"new": "Rome in May"}),
        ('path:Rome, Italy<|"|>,limit:5', {"path": "Rome, Italy", "limit": 5}),
        ('limit:5,new:12345<|"|>', {"limit": 5, "new": "12345"}),
        ('new:<b>a, b: c</b>\n(x)<|"|>,limit:3', {"new": "<b>a, b: c</b>\n(x)", "limit": 3}),
        ('items:[a b<|"|>,<|"|>c<|"|>]', {"items": ["a b", "c"]}),
        # Both are.
        ('new:New York,path:<|"|>x<|"|>', {"new": "New York", "path": "x"}),
        ('items:[a b,<|"|>c<|"|>]', {"items": ["a b", "c"]}),
        # Another sign, and no comma.
        ('new=<|"|>a<|"|>,limit=1', {"new": "a", "limit": 1}),
        ('path:<|"|>look<|"|>new=<|"|>x<|"|>', {"path": "look", "new": "x"}),
        ("new:,path:", {"new": "", "path": ""}),
    ]
}
# Python that is no JSON: sets, calls of `dict`, and comments.
IN_PYTHON: Rows = {
    text: row("lfm2", lfm2(f"edit({text})]"), [edit(**meant)])
    for text, meant in [
        ("items={'it, is}', 'b',}, limit=1", {"items": ["it, is}", "b"], "limit": 1}),
        ("opts={'a': {(1, 2), (3, 4)}}", {"opts": {"a": [[1, 2], [3, 4]]}}),
        ("opts={ }", {"opts": {}}),
        ('opts=dict(a=1, b="x", c = [1])', {"opts": {"a": 1, "b": "x", "c": [1]}}),
        ("limit=3,  # at most\n path='a' # 'b'\n", {"limit": 3, "path": "a"}),
        ("path='a # b', new='#'", {"path": "a # b", "new": "#"}),
        ("path=issue #5, limit=3", {"path": "issue #5", "limit": 3}),
        ("new=, limit=", {"new": None, "limit": None}),
    ]
}

# -- Calls --------------------------------------------------------------------------------

OOPS = '{"name": "edit", "parameters": {oops}'
LISTED = '[{"name": "edit", "arguments": {"limit": 1}}, {"name": "ping", "arguments": {}}]'
LISTED_IN_PYTHON = lfm2("edit(limit=1)]")
QWEN = qwen(argument("new", "Paris"))
CALLS: Rows = {
    **{
        f"a missing value is null: {text}": row(name, text, [edit(**meant)])
        for name, text, meant in [
            ("devstral", '[TOOL_CALLS]edit[ARGS]{"limit": 1, "new": ', {"limit": 1, "new": None}),
            ("hermes", hermes('{"new": , "opts": [{"a":}]}'), {"new": None, "opts": [{"a": None}]}),
        ]
    },
    **{
        f"the calls are read and nothing else is: {text}": row(name, text, [LIMIT, PING])
        for name, text in [
            ("llama3", LISTED.replace("arguments", "parameters")),
            ("granite", f"<tool_call>{LISTED}"),
            ("hermes", f"<tool_call>\n<tool_call>\n{LISTED}\n</tool_call>"),
            ("qwen3coder", f"<tool_call>{qwen(argument('limit', '1'))}<function=ping></function>"),
            ("gemma4", f"<|tool_call>:call:edit{{limit:1}}<tool_call|>{gemma('', 'ping')}"),
            ("gemma4", f"call:edit{{limit:1}}<tool_call|>{gemma('', 'ping')}"),
            *(("lfm2", lfm2(f"edit(limit=1{end}")) for end in (")), ping()]", "}), ping()]")),
            *(("lfm2", lfm2(f"edit(limit=1{end}")) for end in (" , ), ping()]", ");ping()")),
        ]
    },
    **{
        f"several calls of gemma may be in one block, with {between!r} between": row(
            "gemma4",
            f"<|tool_call>call: edit{{limit: 1}}{between}call:ping{{}}<tool_call|>Done.",
            [LIMIT, PING, DONE],
        )
        for between in ("", ", ", "\n")
    },
    **{
        f"a call of devstral may have no arguments, with {mark!r}": row(
            "devstral",
            f'[TOOL_CALLS]ping{mark}[TOOL_CALLS]edit[ARGS]{{"limit": 1}}[TOOL_CALLS]ping{mark}',
            [PING, LIMIT, PING],
        )
        for mark in ("[ARGS]", "[CALL_ID]abc123XYZ[ARGS]", "")
    },
    **{
        f"a miscounted bracket leaves no markup: {end}": row(
            "hermes", hermes('{"limit": 1', f"{end}\n</tool_call>\n") + HERMES_PING, [LIMIT, PING]
        )
        for end in ("", "}", "}}", "}}}", "}]", '}}"')
    },
    "a closing tag may be there twice": row(
        "hermes", f"{HERMES_PING}\n</tool_call>\n{HERMES_PING}", [PING, PING]
    ),
    **{
        f"what is lost before a fence leaves the next call: {arguments}": row(
            "deepseek_v3", deepseek_v3([("edit", arguments), ("ping", "{}")]), [PARIS, PING]
        )
        for arguments in (
            *('{"new": "Paris}', '{"new": "Paris"', '{"new": "Paris"}}', '{"new": "Paris'),
        )
    },
    **{
        f"arguments that are not JSON are kept whole: {body}": row(
            "gptoss",
            gptoss("edit", body) + "<|start|>assistant" + gptoss("ping", "{}"),
            [("edit", body), PING],
        )
        for body in ("print('a, b')  # {", "{1, 2} | {3}", "Paris, please", '{"a" 1}')
    },
    **{
        f"a lost closing tag leaves the next call: {lost}": row(
            "qwen3coder", f"{QWEN.replace(lost, '', 1)}\n{QWEN}", [PARIS, PARIS]
        )
        for lost in ("</parameter>\n", "</function>\n</tool_call>", "</tool_call>")
    },
    "a lost bracket of an array ends no more than the array": row(
        "lfm2", lfm2("edit(items=['a', None), ping()]"), [edit(items=["a", None]), PING]
    ),
    # LFM2 repeats lists.
    "a list that is repeated is one": row(
        "lfm2", f"{LISTED_IN_PYTHON}\n[edit(limit=1)]<|tool_call_end|>Done.", [LIMIT, DONE]
    ),
    "another list is not": row(
        "lfm2", f"{LISTED_IN_PYTHON}[edit(limit=2)]<|tool_call_end|>", [LIMIT, edit(limit=2)]
    ),
    "nor is one with its opening tag": row("lfm2", LISTED_IN_PYTHON * 2, [LIMIT, LIMIT]),
    "nor is a link": row("lfm2", f"{LISTED_IN_PYTHON}[edit](x)", [LIMIT, ("text", "[edit](x)")]),
    "the closing tag of lfm2 is never text": row(
        "lfm2", "Hi. <|tool_call_end|>", [("text", "Hi. ")]
    ),
    "a channel of gemma without its name is reasoning": row(
        "gemma4", "<|channel>Hm.<channel|>call:edit{limit:1}", [("reasoning", "Hm."), LIMIT]
    ),
    "a call of gemma without its tag in an answer is text": row(
        "gemma4", "Write call:ping{}", [("text", "Write call:ping{}")]
    ),
    "words of kimi before its first call are text": row(
        "kimi_k2",
        "<|tool_calls_section_begin|>I call.<|tool_call_begin|>functions.ping:0"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        [("text", "I call."), PING],
    ),
    "arguments of llama without a key are none": row("llama3", OOPS, [("text", OOPS)]),
    "a broken call leaves the next ones": row(
        "lfm2",
        lfm2("edit(limit=1, =)]") + lfm2("ping(), edit(limit=1)]"),
        [("edit", "limit=1, =)"), PING, LIMIT],
    ),
    "so does one of hermes": row(
        "hermes", hermes('{"limit": 1, (}') + HERMES_PING, [("edit", '{"limit": 1, (}}\n'), PING]
    ),
}

# -- Arguments between tags ---------------------------------------------------------------

OF_TWO = "use </parameter> or </parameter> here"
SPACED = f"a tag: </function>{' ' * 300}and more"
BETWEEN_TAGS: Rows = {
    **{
        f"a value of {name} may hold its closing tag": row(
            name, before + f"a {tag} b{tag}" + after, [edit(new=f"a {tag} b", **more)]
        )
        for name, before, tag, after, more in [
            (
                "minicpm5",
                '<function name="edit"><param name="new">',
                "</param>",
                '<param name="path">p</param></function>',
                {"path": "p"},
            ),
            (
                "glm4",
                "<tool_call>edit<arg_key>new</arg_key><arg_value>",
                "</arg_value>",
                "\n<arg_key>limit</arg_key><arg_value>3</arg_value></tool_call>",
                {"limit": 3},
            ),
        ]
    },
    "so may one of qwen, more than once": row(
        "qwen3coder",
        qwen(f"{argument('new', OF_TWO)}\n{argument('limit', '3')}"),
        [edit(new=OF_TWO, limit=3)],
    ),
    "a closing tag in a text may have a lot of space after it": row(
        "qwen3coder", qwen(argument("new", SPACED)), [edit(new=SPACED)]
    ),
    **{
        f"a damaged head leaves the others: {head!r}": row(
            "qwen3coder", qwen(f"{head}\n{argument('path')}"), [edit(**more, path="a")]
        )
        for head, more in [
            ("<parameter=\n7\n</parameter>", {}),
            ("<parameter=limit: 3\n</parameter>", {"limit": 3}),
            ("<parameter=other: 3\n</parameter>", {}),
            ("<parameter=limit", {}),
            ("<parameter=a\nb>\n7\n</parameter>", {}),
        ]
    },
    **{
        f"blanks and quotes around a name are none of it: {head!r}": row(
            "qwen3coder", qwen(argument(head)), [edit(path="a")]
        )
        for head in ("path\n", " path", "'path'", '"path" ')
    },
    "a head without anything after it": row("qwen3coder", qwen("<parameter=path"), [edit()]),
    **{
        f"line breaks around a value of minicpm are syntax: {text!r}": row(
            "minicpm5", minicpm(key, text), [edit(**{key: value})]
        )
        for key, text, value in [
            ("new", "\ntwo\nlines\n", "two\nlines"),
            ("limit", "\n 5 \n", 5),
            ("new", "\n<![CDATA[\n</param>\n]]>\n", "\n</param>\n"),
        ]
    },
    **{
        f"a value may be of python: {text}": row(
            "minicpm5", minicpm(key, text), [edit(**{key: to})]
        )
        for key, text, to in [
            # Objects may mix Python and JSON.
            (
                "opts",
                "{'a': [1, None, true], \"b\": 'it\\'s'}",
                {"a": [1, None, True], "b": "it's"},
            ),
            ("opts", "{a: 1, 'b': False,}", {"a": 1, "b": False}),
            # A list may be for a parameter without a schema.
            ("unknown", '["a", True]', ["a", True]),
            ("unknown", "[see here]", "[see here]"),
            ("unknown", "['a'", "['a'"),
            # An escape without an end ends with its string.
            ("opts", r"{'a': '\N{', 'b': '}'}", {"a": r"\N{", "b": "}"}),
        ]
    },
}


@rows(STRINGS | GEMMA | IN_PYTHON | CALLS | BETWEEN_TAGS)
def test_a_damaged_call_is_read_as_it_was_meant(name, text, expected):
    check(read(name, text), expected)


@table("name", ["google:tools:edit", "fs.edit", "edit.edit", "edit"])
def test_a_name_space_before_a_known_name_is_dropped_in_every_form(name):
    ways = [
        ("gemma4", gemma("", name)),
        ("hermes", hermes("{}", name=name)),
        ("qwen3coder", f"<tool_call>\n<function={name}>\n</function>\n</tool_call>"),
        ("gptoss", gptoss(name, "{}").replace("functions.", "")),
    ]
    assert [read(*way) for way in ways] == [[("edit", "{}")]] * len(ways)
    other = gemma("", name.replace("edit", "other"))
    assert read("gemma4", other) == [(name.replace("edit", "other"), "{}")]


@table("code", ['print("hi")\nfor x in {1, 2}:\n    pass', '{"a": 1}', "", '"one" + "two"'])
def test_the_input_of_a_custom_tool_is_kept_whole(code):
    for body in (code, json.dumps({"input": code})):
        assert read("gptoss", gptoss("run", body)) == [("custom run", code)]
