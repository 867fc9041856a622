"""How each family writes calls, as its template shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from benchmarks.calls.spelling import FUNCTIONGEMMA, GEMMA, JSON, PYTHON, Notation, Speller, joined
from vinery_serving.core.output_formats import CALL_FORMATS


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
                return joined(list(speller.value(arguments)))
            case Style.NAMED:
                members = [speller.member(*item, colon="=") for item in arguments.items()]
                return joined(list(speller.separated(members)))
            case Style.TAGS:
                return "".join(
                    self.argument(
                        key, value if isinstance(value, str) else joined(list(speller.value(value)))
                    )
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
