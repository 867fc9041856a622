"""Drawn calls in every family's way: as its template shows them, with odd strings, blanks between
all marks and quotes that have no escape, or cut. A person who reads the text knows the calls.

The same generator of random numbers gives the same samples.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from random import Random
from typing import Any, Final

from vinery_serving.core.output_formats import CALL_FORMATS
from vinery_serving.core.request import Tool

# -- Values: the tools of a sample, and calls of them

TOOLS: Final = (
    Tool(
        "get_weather",
        None,
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "note": {"type": "string"},
                "days": {"type": "integer"},
                "share": {"type": "number"},
                "is_hot": {"type": "boolean"},
                "at": {"type": "array"},
                "more": {"type": "object"},
                "any": {},
            },
        },
    ),
    Tool("set_alarm", None, {"type": "object", "properties": {"text": {"type": "string"}}}),
    Tool("ping"),
)

_WORDS: Final = (
    *("Paris", "New York", "2026-11-25", "a@b.example", "München", "東京", "naïve", "x_1"),
    *("😀 fine", "20 °C", "rain/snow", "line 1", "Ω", "a+b", "no. 7", "Łódź"),
)
# What readers of calls trip over. All can be written in every notation.
_ODD_STRINGS: Final = (
    *("", " ", "  blanks  ", "null", "None", "True", "5", "-", "}{][", "{", "]", "[1, 2"),
    *('a "quoted" word', '"', "it's", "'", '"""', "one; two", "a, b], c)", "x=1, y=2", ": ", ", "),
    *("back\\slash", "ends with \\", "\\d+\\s*", "C:\\new\\table", "\\\\server\\share", "\\u12"),
    *("two\nlines", "\ttabs\t", "a\r\nb", "<b>x</b>", "a < b", "&amp;", "</div>", "<|x|>"),
    *('{"name": "ping", "arguments": {}}', 'print(f"{x}")', "```json\n{}\n```", "[ping()]"),
    *("😀", "👩‍👩‍👧", "é", "\u2028", "\x7f", "ﷺ", "عربي", "a\u0301"),
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the model means it."""

    name: str
    arguments: dict[str, Any]


class Drawing:
    """Draws calls. The same generator of random numbers gives the same calls."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def calls(self, *, are_odd: bool = False) -> list[Call]:
        """Return one to three calls. One of them has arguments of every kind."""
        calls = [self._small_call() for _ in range(self.random.randint(0, 2))]
        calls.insert(self.random.randint(0, len(calls)), self.call(are_odd=are_odd))
        return calls

    def call(self, *, are_odd: bool = False) -> Call:
        """Return a call with strings, and more."""
        values = {
            "city": self.string(is_odd=are_odd),
            "note": self.string(is_odd=are_odd),
            "days": self.random.randint(-9, 99),
            "share": self.random.choice((0.5, -1.25, 2.0, 1e9)),
            "is_hot": self.random.random() < 0.5,
            "at": self._array(are_odd=are_odd),
            "more": self._object(are_odd=are_odd),
            "any": self.random.choice((None, True, 7, [1, "b"], {"c": None})),
        }
        chosen = self.random.sample(sorted(values), self.random.randint(2, 5))
        if not {"city", "note"} & set(chosen):
            chosen.insert(self.random.randint(0, len(chosen)), "city")
        return Call("get_weather", {key: values[key] for key in chosen})

    def string(self, *, is_odd: bool = False) -> str:
        if not is_odd:
            return self.random.choice(_WORDS)
        return self.random.choice((*_ODD_STRINGS, self._mixture()))

    def _mixture(self) -> str:
        return "".join(
            self.random.choices("ab{}[]()\"'\\;,=<>/|: \n😀é", k=self.random.randint(1, 12))
        )

    def _small_call(self) -> Call:
        if self.random.random() < 0.4:
            return Call("ping", {})
        return Call("set_alarm", {"text": self.string()})

    def _array(self, *, are_odd: bool) -> list[Any]:
        items = (self.string(is_odd=are_odd), 1, True, None, {"k": self.string(is_odd=are_odd)})
        return self.random.sample(items, self.random.randint(0, 3))

    def _object(self, *, are_odd: bool) -> dict[str, Any]:
        values = {"a": self.string(is_odd=are_odd), "b": {"c": [False, None]}, "d": 2, "e f": []}
        return {key: values[key] for key in self.random.sample(sorted(values), 2)}


# -- Notations: how a value is spelled

Escape = Callable[[str, str], str]


def json_escape(text: str, _: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def ascii_escape(text: str, _: str) -> str:
    return json.dumps(text)[1:-1]


def python_escape(text: str, quote: str) -> str:
    """As Python writes it between this quote."""
    escaped = json_escape(text, quote)
    return escaped.replace('\\"', '"').replace("'", "\\'") if quote == "'" else escaped


def no_escape(text: str, _: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Notation:
    """`spaces`: white space that may be around all marks. One is drawn for each place."""

    quote: str = '"'
    words: tuple[str, str, str] = ("true", "false", "null")
    escape: Escape = json_escape
    comma: str = ", "
    colon: str = ": "
    has_bare_keys: bool = False
    spaces: tuple[str, ...] = ("",)


JSON: Final = Notation()
PYTHON: Final = Notation("'", ("True", "False", "None"), python_escape)
GEMMA: Final = Notation('<|"|>', escape=no_escape, comma=",", colon=":", has_bare_keys=True)
FUNCTIONGEMMA: Final = replace(GEMMA, quote="<escape>")


@dataclass(frozen=True, slots=True)
class Speller:
    notation: Notation
    random: Random

    def value(self, value: Any) -> str:
        match value:
            case dict():
                members = [self.member(*item) for item in value.items()]
                return f"{{{self._space()}{self.separated(members)}{self._space()}}}"
            case list():
                items = [self.value(item) for item in value]
                return f"[{self._space()}{self.separated(items)}{self._space()}]"
            case str():
                return self._string(value)
            case bool() | None:
                return self.notation.words[(True, False, None).index(value)]
            case _:
                return json.dumps(value)

    def member(self, key: str, value: Any, colon: str | None = None) -> str:
        """A key and its value. With a `colon` of its own, the key is a name."""
        is_bare = colon is not None or (self.notation.has_bare_keys and key.isidentifier())
        written = key if is_bare else self._string(key)
        return f"{written}{colon or self._spaced(self.notation.colon)}{self.value(value)}"

    def separated(self, items: Iterable[str]) -> str:
        return self._spaced(self.notation.comma).join(items)

    def _string(self, text: str) -> str:
        quote = self.notation.quote
        return f"{quote}{self.notation.escape(text, quote)}{quote}"

    def _spaced(self, mark: str) -> str:
        return f"{self._space()}{mark}{self._space()}"

    def _space(self) -> str:
        return self.random.choice(self.notation.spaces)


# -- Forms: how each family writes calls, as its template shows them


class Style(Enum):
    """What the arguments of a call are."""

    OBJECT = auto()  # an object in the family's notation
    NAMED = auto()  # keys and values in parentheses
    TAGS = auto()  # tags around each value


@dataclass(frozen=True, slots=True)
class Form:
    """One family's way. `call` writes one call of a name and its arguments, `block` all calls.
    `call_end` and `end` are the closing tags of both, where there are some."""

    style: Style
    call: Callable[[str, str], str]
    notation: Notation = JSON
    begin: str = ""
    separator: str = ""
    end: str = ""
    call_end: str = ""
    # One argument of a family with tags: its opening, and its closing tag.
    key: str = ""
    value_end: str = ""
    # All that must not be in the answer's text.
    markup: tuple[str, ...] = field(default=())

    def block(self, calls: Sequence[str]) -> str:
        return f"{self.begin}{self.separator.join(calls)}{self.end}"

    def arguments(self, arguments: dict[str, Any], speller: Speller) -> str:
        """The arguments of one call, undamaged."""
        match self.style:
            case Style.OBJECT:
                return speller.value(arguments)
            case Style.NAMED:
                members = [speller.member(*item, colon="=") for item in arguments.items()]
                return speller.separated(members)
            case Style.TAGS:
                return "".join(
                    self.argument(key, value if isinstance(value, str) else speller.value(value))
                    for key, value in arguments.items()
                )

    def argument(self, key: str, text: str) -> str:
        return f"{self.key.format(key=key)}{text}{self.value_end}"


def _around(before: str, between: str, after: str = "") -> Callable[[str, str], str]:
    def call(name: str, arguments: str) -> str:
        return f"{before}{name}{between}{arguments}{after}"

    return call


def _object(key: str = "arguments", before: str = "", after: str = "") -> Callable[[str, str], str]:
    return _around(f'{before}{{"name": "', f'", "{key}": ', f"}}{after}")


def _array(begin: str, *markup: str, end: str = "]") -> Form:
    markup = (*markup, "arguments")
    return Form(Style.OBJECT, _object(), JSON, begin, ", ", end, markup=markup)


def _named(begin: str, end: str) -> Form:
    markup = tuple(filter(None, (begin.rstrip("["), end.lstrip("]"), "(")))
    return Form(Style.NAMED, _around("", "(", ")"), PYTHON, begin, ", ", end, markup=markup)


_HERMES_END: Final = "\n</tool_call>"
_ONYX_END: Final = "</atem:invoke>\n</atem:function_calls>"
_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>")
_DEEPSEEK_MARKUP: Final = ("<｜tool",)

FORMS: Final[dict[str, Form]] = {
    "hermes": Form(
        Style.OBJECT,
        _object("arguments", "<tool_call>\n", _HERMES_END),
        separator="\n",
        call_end=_HERMES_END,
        markup=("tool_call>", "arguments"),
    ),
    "llama3": Form(Style.OBJECT, _object("parameters"), separator="; ", markup=("parameters",)),
    "phi4": _array("functools[", "functools"),
    "granite": _array("<|tool_call|>[", "tool_call"),
    "mistral": _array("[TOOL_CALLS][", "TOOL_CALLS"),
    "devstral": Form(
        Style.OBJECT, _around("[TOOL_CALLS]", "[ARGS]"), markup=("TOOL_CALLS", "ARGS")
    ),
    "deepseek_v3": Form(
        Style.OBJECT,
        _around(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", f"\n```{_DEEPSEEK[2]}"
        ),
        JSON,
        _DEEPSEEK[0],
        "\n",
        _DEEPSEEK[1],
        f"\n```{_DEEPSEEK[2]}",
        markup=(*_DEEPSEEK_MARKUP, "```"),
    ),
    "deepseek_v31": Form(
        Style.OBJECT,
        _around("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", _DEEPSEEK[2]),
        JSON,
        _DEEPSEEK[0],
        "",
        *_DEEPSEEK[1:],
        markup=_DEEPSEEK_MARKUP,
    ),
    "kimi_k2": Form(
        Style.OBJECT,
        _around(
            "<|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>", "<|tool_call_end|>"
        ),
        JSON,
        "<|tool_calls_section_begin|>",
        "",
        "<|tool_calls_section_end|>",
        "<|tool_call_end|>",
        markup=("<|tool_call",),
    ),
    "gptoss": Form(
        Style.OBJECT,
        _around("<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>"),
        separator="<|start|>assistant",
        call_end="<|call|>",
        markup=("<|", "functions."),
    ),
    "lfm2": _named("<|tool_call_start|>[", "]<|tool_call_end|>"),
    "llama3_pythonic": _named("[", "]"),
    "llama4_pythonic": _named("<|python_start|>[", "]<|python_end|>"),
    "gemma4": Form(
        Style.OBJECT,
        _around("<|tool_call>call:", "", "<tool_call|>"),
        GEMMA,
        call_end="<tool_call|>",
        markup=("tool_call", "call:", '<|"|>'),
    ),
    "functiongemma": Form(
        Style.OBJECT,
        _around("<start_function_call>call:", "", "<end_function_call>"),
        FUNCTIONGEMMA,
        call_end="<end_function_call>",
        markup=("_function_call", "call:", "<escape>"),
    ),
    "nemotron": _array("<TOOLCALL>[", "TOOLCALL", end="]</TOOLCALL>"),
    "hunyuan": _array("<tool_calls>[", "tool_calls", end="]</tool_calls>"),
    "cohere": Form(
        Style.OBJECT,
        _around('{"tool_call_id": "0", "tool_name": "', '", "parameters": ', "}"),
        JSON,
        "<|START_ACTION|>[",
        ", ",
        "]<|END_ACTION|>",
        markup=("ACTION", "parameters"),
    ),
    "qwen3coder": Form(
        Style.TAGS,
        _around("<tool_call>\n<function=", ">\n", "</function>\n</tool_call>"),
        separator="\n",
        call_end="</function>\n</tool_call>",
        key="<parameter={key}>\n",
        value_end="\n</parameter>\n",
        markup=("tool_call>", "function", "parameter"),
    ),
    "glm4": Form(
        Style.TAGS,
        _around("<tool_call>", "\n", "</tool_call>"),
        separator="\n",
        call_end="</tool_call>",
        key="<arg_key>{key}</arg_key>\n<arg_value>",
        value_end="</arg_value>\n",
        markup=("tool_call>", "arg_"),
    ),
    "minicpm5": Form(
        Style.TAGS,
        _around('<function name="', '">', "</function>"),
        call_end="</function>",
        key='<param name="{key}">',
        value_end="</param>",
        markup=("function", "param"),
    ),
    "onyx": Form(
        Style.TAGS,
        _around('<atem:function_calls>\n<atem:invoke name="', '">\n', _ONYX_END),
        separator="\n",
        call_end=_ONYX_END,
        key='<atem:parameter name="{key}">',
        value_end="</atem:parameter>\n",
        markup=("atem:",),
    ),
}
assert FORMS.keys() == set(CALL_FORMATS)


# -- Samples

_PROSE: Final = ("", "", "I look.\n")
_QUOTED_PARTS: Final = (
    'cry "hi" to all',
    'the "best" one',
    'a 5" pipe',
    'he wrote "no", then left',
)
_APOSTROPHES: Final = ("it's fine", "O'Neil's", "the dogs' home", "don't, won't")
_BACKSLASHES: Final = (
    *("C:\\Users\\me", "C:\\Program Files\\x", "D:\\work\\new", "\\d+", "\\w*\\.py", "a\\_b"),
    *("two\nlines", "a\tb", "100\\%"),
)
_SPACES: Final = ("", "", " ", "\n", "\n    ", "\t")


@dataclass(frozen=True, slots=True)
class Sample:
    """A text, and the calls that it means. `is_cut`: it ends inside one more call."""

    text: str
    meant: tuple[Call, ...]
    is_cut: bool = False


def samples(family: str, kind: str, number: int, seed: int) -> list[Sample]:
    """Samples of one kind; none where the family cannot have it."""
    drawn = (Drawing(Random(f"{seed} {family} {kind} {index}")) for index in range(number))
    return [each for drawing in drawn if (each := KINDS[kind](FORMS[family], drawing)) is not None]


def _plain(form: Form, drawing: Drawing, *, are_odd: bool = False) -> Sample:
    notation = form.notation
    if notation is JSON and form.style is Style.OBJECT:
        notation = replace(JSON, escape=drawing.random.choice((json_escape, ascii_escape)))
    return _written(form, drawing.calls(are_odd=are_odd), drawing, notation)


def _odd(form: Form, drawing: Drawing) -> Sample:
    return _plain(form, drawing, are_odd=True)


def _with_spaces(form: Form, drawing: Drawing) -> Sample:
    return _written(form, drawing.calls(), drawing, replace(form.notation, spaces=_SPACES))


def _without_escapes(texts: Callable[[Form], Sequence[str]]) -> Callable[..., Sample | None]:
    """One call has one of these texts, between quotes that it does not escape."""

    def sample(form: Form, drawing: Drawing) -> Sample | None:
        if form.notation in (GEMMA, FUNCTIONGEMMA):
            return None
        calls, text = drawing.calls(), drawing.random.choice(texts(form))
        largest = max(calls, key=lambda call: len(call.arguments))
        if form.style is Style.TAGS:
            largest.arguments["more"] = {"k": text, "l": 1}
        else:
            largest.arguments[drawing.random.choice(("city", "note"))] = text
        notation = replace(form.notation, escape=no_escape)
        return _written(form, calls, drawing, form.notation, {largest.name: notation})

    return sample


def _inner_quotes(form: Form) -> Sequence[str]:
    return _APOSTROPHES if form.notation is PYTHON else _QUOTED_PARTS


def _written(
    form: Form,
    calls: Sequence[Call],
    drawing: Drawing,
    notation: Notation,
    others: Mapping[str, Notation] | None = None,
) -> Sample:
    """`others` are notations of some calls by their names."""
    written = []
    for call in calls:
        speller = Speller((others or {}).get(call.name, notation), drawing.random)
        written.append(form.call(call.name, form.arguments(call.arguments, speller)))
    prose = drawing.random.choice(_PROSE) if form is not FORMS["gptoss"] else ""
    return Sample(prose + form.block(written), tuple(calls))


def _cut(form: Form, drawing: Drawing) -> Sample:
    """The last call is cut before its arguments are complete."""
    calls = [*drawing.calls(), drawing.call()]
    speller = Speller(form.notation, drawing.random)
    written = [form.call(c.name, form.arguments(c.arguments, speller)) for c in calls]
    last = written.pop().removesuffix(form.call_end)[:-2]
    before = form.block([*written, "!"]).removesuffix(f"!{form.end}")
    text = before + last[: drawing.random.randint(1, len(last))]
    return Sample(text, tuple(calls[:-1]), is_cut=True)


KINDS: Final[Mapping[str, Callable[[Form, Drawing], Sample | None]]] = {
    "plain": _plain,
    "odd strings": _odd,
    "spaces": _with_spaces,
    "inner quotes": _without_escapes(_inner_quotes),
    "backslashes": _without_escapes(lambda _: _BACKSLASHES),
    "cut": _cut,
}
