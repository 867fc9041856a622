"""Known slips of models, each kind in every known form. Each text is also read character by
character, and in any two parts."""

from tests.tables import table
from vinery_serving.core.request import Tool

from . import forms
from .builders import Folded, object_of
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
]
PING = ("ping", {})


def read(name: str, text: str) -> Folded:
    """Read a text that the model has ended."""
    return forms.read(name, text, tools=TOOLS, is_whole=True)


def edit(**arguments: object) -> tuple[str, object]:
    return ("edit", arguments)


def gemma(arguments: str, name: str = "edit") -> str:
    return f"<|tool_call>call:{name}{{{arguments}}}<tool_call|>"


def hermes(arguments: str, end: str = "}\n</tool_call>") -> str:
    return f'<tool_call>\n{{"name": "edit", "arguments": {arguments}{end}'


def lfm2(arguments: str) -> str:
    return f"<|tool_call_start|>[edit({arguments}<|tool_call_end|>"


# The text before the missing last quote, and the string that is read.
LOST_QUOTES = {
    **{text: text for text in ("f(x)", "a[0]", "x = {1}", "d = dict(a=[1])", "ls;", "Rome,", ":)")},
    **{f"Rome{space}": "Rome" for space in ("", " ", "\n", " \n \n")},
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
        f"so does a string of python: {text!r}": row("lfm2", lfm2(f'new="{text}'), [edit(new=new)])
        for text, new in [
            *(("f(x)", "f(x)"), ("f(x))]", "f(x)"), ("a[0])]", "a[0]"), ("Rome)", "Rome")),
            *(("ls;", "ls;"), ("Rome \n", "Rome")),
        ]
    },
    **{
        f"and one of gemma: {text!r}": row(
            "gemma4", f'<|tool_call>call:edit{{new:<|"|>{text}<tool_call|>', [edit(new=new)]
        )
        for text, new in [("f(x)}", "f(x)"), ("{x}", "{x}"), ("a[0]", "a[0]"), ("Rome\n", "Rome")]
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
        for stray in ("'", '"', "' \"")
    },
}


@rows(STRINGS)
def test_a_string_ends_where_its_call_does(name, text, expected):
    check(read(name, text), expected)


PYTHON = "<|python_tag|>"
# The last call, without the closing tag: the text before the string, the string, the text after.
TAGS: Rows = {
    f"a tag in a string ends nothing: {before}{new}": row(
        name, before + new.replace('"', r"\"") + after, [edit(new=new)]
    )
    for name, before, new, after in [
        ("devstral", '[TOOL_CALLS]edit[ARGS]{"new": "', "see [TOOL_CALLS] here", '"}'),
        ("devstral", '[TOOL_CALLS]edit[ARGS]{"new": "', 'a [TOOL_CALLS] "b" c', '"}'),
        (
            "granite",
            '<|tool_call|>[{"name": "edit", "arguments": {"new": "',
            "<|tool_call|>",
            '"}}]',
        ),
        (
            "llama3",
            '<|python_tag|>{"name": "edit", "parameters": {"new": "',
            "<|python_tag|>",
            '"}}',
        ),
        ("hermes", hermes('{"new": "', ""), "see <tool_call> here", '"}}'),
        ("hermes", hermes('{"new": "', ""), "see </tool_call> here", '"}}\n'),
        ("lfm2", '<|tool_call_start|>[edit(new="', "a <|tool_call_end|> b", '")]'),
        ("gemma4", '<|tool_call>call:edit{new:<|"|>', "a <tool_call|> b", '<|"|>}'),
    ]
}


# Slips of Gemma.
GEMMA: Rows = {
    f"{arguments}": row("gemma4", gemma(arguments), [edit(**meant)])
    for arguments, meant in [
        # The first mark of a string is missing.
        ('new:Rome in May<|"|>', {"new": "Rome in May"}),
        ('path:Rome, Italy<|"|>,limit:5', {"path": "Rome, Italy", "limit": 5}),
        ('limit:5,new:12345<|"|>', {"limit": 5, "new": "12345"}),
        ('new:<b>a, b: c</b>\n(x)<|"|>,limit:3', {"new": "<b>a, b: c</b>\n(x)", "limit": 3}),
        ('new:f{"a": 1, b: [2]}<|"|>,limit:3', {"new": 'f{"a": 1, b: [2]}', "limit": 3}),
        ('items:[a b<|"|>,<|"|>c<|"|>]', {"items": ["a b", "c"]}),
        ('opts:{a:b c<|"|>},limit:3', {"opts": {"a": "b c"}, "limit": 3}),
        # Both are.
        ('new:New York,path:<|"|>x<|"|>', {"new": "New York", "path": "x"}),
        ('items:[a b,<|"|>c<|"|>]', {"items": ["a b", "c"]}),
        # Another sign, and no comma.
        ('new=<|"|>a<|"|>,limit=1', {"new": "a", "limit": 1}),
        ('path:<|"|>look<|"|>limit:90', {"path": "look", "limit": 90}),
        ('path:<|"|>look<|"|>new=<|"|>x<|"|>', {"path": "look", "new": "x"}),
    ]
}


@table("name", ["google:tools:edit", "fs.edit", "edit.edit", "edit"])
def test_a_name_space_before_a_known_name_is_dropped_in_every_form(name):
    ways = [
        ("gemma4", gemma("", name)),
        ("hermes", f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>'),
        ("qwen3coder", f"<tool_call>\n<function={name}>\n</function>\n</tool_call>"),
        ("gptoss", f"<|channel|>commentary to={name}<|message|>{{}}<|call|>"),
    ]
    assert [read(*way) for way in ways] == [[("edit", "{}")]] * len(ways)
    other = gemma("", name.replace("edit", "other"))
    assert read("gemma4", other) == [(name.replace("edit", "other"), "{}")]


def qwen(arguments: str) -> str:
    return f"<tool_call>\n<function=edit>\n{arguments}\n</function>\n</tool_call>"


def argument(head: str, value: str = "a") -> str:
    return f"<parameter={head}>\n{value}\n</parameter>"


LIMIT = argument("limit", "3")
OF_TWO = "use </parameter> or </parameter> here"
# A value that holds its own closing tag, and damaged heads of arguments.
ARGUMENTS: Rows = {
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
            (
                "onyx",
                '<atem:invoke name="edit"><atem:parameter name="new">',
                "</atem:parameter>",
                "</atem:invoke>",
                {},
            ),
        ]
    },
    "so may one of qwen, more than once": row(
        "qwen3coder", qwen(f"{argument('new', OF_TWO)}\n{LIMIT}"), [edit(new=OF_TWO, limit=3)]
    ),
    "words that no closing tag follows are no part of it": row(
        "qwen3coder",
        "<function=edit>\n" + LIMIT + "\nand so on",
        [edit(limit=3), ("text", "\nand so on")],
    ),
    **{
        f"a damaged head leaves the others: {head!r}": row(
            "qwen3coder", qwen(f"{head}\n{argument('path')}"), [edit(**more, path="a")]
        )
        for head, more in [
            ("<parameter=\n7\n</parameter>", {}),
            ("<parameter=limit: 3\n</parameter>", {"limit": 3}),
            ("<parameter=limit = 3</parameter>", {"limit": 3}),
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
}


END = "<|tool_call_end|>"
LISTED = f"<|tool_call_start|>[edit(limit=1)]{END}"
ONE = edit(limit=1)
# A list that LFM2 repeats is read once.
ECHOES: Rows = {
    "a list that is repeated is one": row("lfm2", f"{LISTED}\n[edit(limit=1)]{END}", [ONE]),
    "so are calls without arguments, and what follows is text": row(
        "lfm2",
        f"<|tool_call_start|>[ping(), ping()]{END}[ping(), ping()]{END}Done.",
        [PING, PING, ("text", "Done.")],
    ),
    "another list is not": row("lfm2", f"{LISTED}[edit(limit=2)]{END}", [ONE, edit(limit=2)]),
    "nor is one with its opening tag": row("lfm2", LISTED * 2, [ONE, ONE]),
    "nor is a link": row("lfm2", f"{LISTED}[edit](x)", [ONE, ("text", "[edit](x)")]),
    "the closing tag is never text": row("lfm2", f"Hi. {END}", [("text", "Hi. ")]),
}


# Python that is no JSON: sets, calls of `dict`, and comments.
IN_PYTHON: Rows = {
    text: row("lfm2", lfm2(f"{text})]"), [edit(**meant)])
    for text, meant in [
        ('items={"a", "b"}', {"items": ["a", "b"]}),
        ("items={'it, is}', 'b',}, limit=1", {"items": ["it, is}", "b"], "limit": 1}),
        ("opts={'a': {1, 2}, 'b': {True}}", {"opts": {"a": [1, 2], "b": [True]}}),
        ("opts={'a': {(1, 2), (3, 4)}}", {"opts": {"a": [[1, 2], [3, 4]]}}),
        ("opts={}", {"opts": {}}),
        ("opts={ }", {"opts": {}}),
        ('opts=dict(a=1, b="x", c = [1])', {"opts": {"a": 1, "b": "x", "c": [1]}}),
        ("opts=dict(), limit=1", {"opts": {}, "limit": 1}),
        ("opts={'a': dict(b={1}), 'c': 2}", {"opts": {"a": {"b": [1]}, "c": 2}}),
        ("limit=3  # at most\n", {"limit": 3}),
        ("# of all\nlimit=3, path='a' # 'b'\n", {"limit": 3, "path": "a"}),
        ("items=[ # some\n 'a', # one\n # two\n 'b' # three\n]", {"items": ["a", "b"]}),
        ("opts={ # some\n'a': # one\n 1, # two\n 'b': 2}", {"opts": {"a": 1, "b": 2}}),
        ("path='a # b', new='#'", {"path": "a # b", "new": "#"}),
        ("path=issue #5, limit=3", {"path": "issue #5", "limit": 3}),
    ]
}


OOPS = '{"name": "edit", "parameters": {oops}'
CALLS = '[{"name": "edit", "arguments": {"limit": 3}}, {"name": "ping", "arguments": {}}]'
# Damaged calls leave no markup.
MARKUP: Rows = {
    **{
        f"a missing value is null: {text}": row(name, text, [edit(**meant)])
        for name, text, meant in [
            ("devstral", '[TOOL_CALLS]edit[ARGS]{"limit": 1, "new": ', {"limit": 1, "new": None}),
            ("hermes", hermes('{"new": ', "</tool_call>"), {"new": None}),
            (
                "hermes",
                hermes('{"new": , "items": [{"a":}]}'),
                {"new": None, "items": [{"a": None}]},
            ),
            ("lfm2", lfm2("new=, limit=)]"), {"new": None, "limit": None}),
            ("gemma4", gemma("new:,path:"), {"new": "", "path": ""}),
        ]
    },
    **{
        f"the calls are read and nothing else is: {text}": row(name, text, [edit(limit=3), PING])
        for name, text in [
            ("llama3", CALLS.replace("arguments", "parameters")),
            ("granite", f"<tool_call>{CALLS}"),
            ("hermes", f"<tool_call>\n<tool_call>\n{CALLS}\n</tool_call>"),
            ("qwen3coder", f"<tool_call>{qwen(LIMIT)}<function=ping></function>"),
            ("gemma4", f"<|tool_call>:call:edit{{limit:3}}<tool_call|>{gemma('', 'ping')}"),
            ("gemma4", f"call:edit{{limit:3}}<tool_call|>{gemma('', 'ping')}"),
        ]
    },
    "a channel of gemma without its name is reasoning": row(
        "gemma4", "<|channel>Hm.<channel|>call:edit{limit:1}", [("reasoning", "Hm."), edit(limit=1)]
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
    "a call of llama may have none": row("llama3", '{"name": "ping", "parameters": {}}', [PING]),
}


@rows(TAGS | GEMMA | ARGUMENTS | ECHOES | IN_PYTHON | MARKUP)
def test_calls_with_slips_are_read_as_they_were_meant(name, text, expected):
    check(read(name, text), expected)
