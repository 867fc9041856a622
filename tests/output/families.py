"""How each family writes calls: one table for all tests, and what is read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from vinery_serving.constraints.arguments import PYTHON_NOTATION
from vinery_serving.core.request import Tool

from .builders import Folded, a_parser, folded

# A name, and the JSON text of the arguments; or the arguments themselves.
JsonCall = tuple[str, str]
Call = tuple[str, dict[str, Any]]


def _objects(calls: Sequence[JsonCall], key: str = "arguments") -> list[str]:
    return [f'{{"name": {json.dumps(name)}, "{key}": {args}}}' for name, args in calls]


def hermes(calls: Sequence[JsonCall]) -> str:
    return "\n".join(f"<tool_call>\n{each}\n</tool_call>" for each in _objects(calls))


def llama3(calls: Sequence[JsonCall]) -> str:
    return "; ".join(_objects(calls, "parameters"))


def llama3_tagged(calls: Sequence[JsonCall]) -> str:
    return f"<|python_tag|>{llama3(calls)}"


def phi4(calls: Sequence[JsonCall]) -> str:
    return f"functools[{', '.join(_objects(calls))}]"


def phi4_tagged(calls: Sequence[JsonCall]) -> str:
    return f"<|tool_call|>[{', '.join(_objects(calls))}]<|/tool_call|>"


def granite(calls: Sequence[JsonCall]) -> str:
    return f"<|tool_call|>[{', '.join(_objects(calls))}]"


def mistral(calls: Sequence[JsonCall]) -> str:
    return f"[TOOL_CALLS] [{', '.join(_objects(calls))}]"


def mistral_untagged(calls: Sequence[JsonCall]) -> str:
    return f"[{', '.join(_objects(calls))}]"


def devstral(calls: Sequence[JsonCall]) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{args}" for name, args in calls)


def devstral_with_ids(calls: Sequence[JsonCall]) -> str:
    return "".join(
        f"[TOOL_CALLS]{name}[CALL_ID]abcDEF12{at}[ARGS]{args}"
        for at, (name, args) in enumerate(calls)
    )


def deepseek_v3(calls: Sequence[JsonCall]) -> str:
    inner = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{args}\n```<｜tool▁call▁end｜>"
        for name, args in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def deepseek_v31(calls: Sequence[JsonCall]) -> str:
    inner = "".join(
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{args}<｜tool▁call▁end｜>"
        for name, args in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def kimi_k2(calls: Sequence[JsonCall]) -> str:
    inner = "".join(
        f"<|tool_call_begin|>functions.{name}:{at}<|tool_call_argument_begin|>{args}"
        "<|tool_call_end|>"
        for at, (name, args) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"


def _between_tags(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _python(calls: Sequence[Call]) -> str:
    written = PYTHON_NOTATION.value
    return "[{}]".format(
        ", ".join(
            f"{name}({', '.join(f'{key}={written(value)}' for key, value in args.items())})"
            for name, args in calls
        )
    )


def llama4_tagged(calls: Sequence[Call]) -> str:
    return f"<|python_start|>{_python(calls)}<|python_end|>"


def llama3_python_tagged(calls: Sequence[Call]) -> str:
    return f"<|python_tag|>{_python(calls)}"


def lfm2(calls: Sequence[Call]) -> str:
    return f"<|tool_call_start|>{_python(calls)}<|tool_call_end|>"


def qwen3coder(calls: Sequence[Call]) -> str:
    def call(name: str, args: dict[str, Any]) -> str:
        inner = "".join(
            f"<parameter={key}>\n{_between_tags(value)}\n</parameter>\n"
            for key, value in args.items()
        )
        return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"

    return "\n".join(call(*each) for each in calls)


def qwen3coder_untagged(calls: Sequence[Call]) -> str:
    return qwen3coder(calls).replace("<tool_call>\n", "").replace("\n</tool_call>", "")


def glm4(calls: Sequence[Call]) -> str:
    def call(name: str, args: dict[str, Any]) -> str:
        inner = "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{_between_tags(value)}</arg_value>\n"
            for key, value in args.items()
        )
        return f"<tool_call>{name}\n{inner}</tool_call>"

    return "\n".join(call(*each) for each in calls)


def newer_glm4(calls: Sequence[Call]) -> str:
    return "".join(
        f"<tool_call>{name}"
        + "".join(
            f"<arg_key>{key}</arg_key><arg_value>{_between_tags(value)}</arg_value>"
            for key, value in args.items()
        )
        + "</tool_call>"
        for name, args in calls
    )


def minicpm5(calls: Sequence[Call]) -> str:
    return "".join(
        f'<function name="{name}">'
        + "".join(
            f'<param name="{key}">{_in_section_if_needed(value)}</param>'
            for key, value in args.items()
        )
        + "</function>"
        for name, args in calls
    )


def _in_section_if_needed(value: Any) -> str:
    """Line breaks around a value are syntax."""
    text = _between_tags(value)
    return f"<![CDATA[{text}]]>" if "\n" in text else text


def minicpm5_in_sections(calls: Sequence[Call]) -> str:
    return "".join(
        f'<function name="{name}">'
        + "".join(
            f'<param name="{key}"><![CDATA[{_between_tags(value)}]]></param>'
            for key, value in args.items()
        )
        + "</function>"
        for name, args in calls
    )


def gemma4(calls: Sequence[Call]) -> str:
    return "".join(
        f"<|tool_call>call:{name}{_gemma_value(args)}<tool_call|>" for name, args in calls
    )


def _gemma_value(value: Any) -> str:
    match value:
        case str():
            return f'<|"|>{value}<|"|>'
        case dict():
            members = ",".join(f"{key}:{_gemma_value(each)}" for key, each in value.items())
            return f"{{{members}}}"
        case list():
            return f"[{','.join(map(_gemma_value, value))}]"
        case _:
            return json.dumps(value)


def onyx_block(calls: Sequence[Call]) -> str:
    inner = "\n".join(
        f'<atem:invoke name="{name}">\n'
        + "".join(
            f'<atem:parameter name="{key}">{_between_tags(value)}</atem:parameter>\n'
            for key, value in args.items()
        )
        + "</atem:invoke>"
        for name, args in calls
    )
    return f"<atem:function_calls>\n{inner}\n</atem:function_calls>"


def onyx(calls: Sequence[Call]) -> str:
    return "<|eom|><|start|>assistant".join(
        f" to={call[0]}<|message|>{onyx_block([call])}" for call in calls
    )


def gptoss(calls: Sequence[Call]) -> str:
    return "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
        f"{json.dumps(args, ensure_ascii=False)}<|call|>"
        for name, args in calls
    )


def gptoss_recipient_first(calls: Sequence[Call]) -> str:
    return "<|start|>assistant".join(
        f" to=functions.{name}<|channel|>commentary json<|message|>"
        f"{json.dumps(args, ensure_ascii=False)}<|call|>"
        for name, args in calls
    )


# The format that reads it, and how it is written.
JSON_WRITERS: dict[str, tuple[str, Callable[[Sequence[JsonCall]], str]]] = {
    "hermes": ("hermes", hermes),
    "llama3": ("llama3", llama3),
    "llama3 with its tag": ("llama3", llama3_tagged),
    "phi4": ("phi4", phi4),
    "phi4 with its tokens": ("phi4", phi4_tagged),
    "granite": ("granite", granite),
    "mistral": ("mistral", mistral),
    "mistral without its tag": ("mistral", mistral_untagged),
    "newer mistral": ("mistral", devstral_with_ids),
    "devstral": ("devstral", devstral),
    "older devstral": ("devstral", mistral),
    "deepseek_v3": ("deepseek_v3", deepseek_v3),
    "deepseek_v3 as v31": ("deepseek_v3", deepseek_v31),
    "deepseek_v31": ("deepseek_v31", deepseek_v31),
    "kimi_k2": ("kimi_k2", kimi_k2),
}
# The same of other families, whose calls may have text around them.
AMONG_TEXT: dict[str, tuple[str, Callable[[Sequence[Call]], str]]] = {
    "llama3_pythonic": ("llama3_pythonic", _python),
    "llama3_pythonic with its tag": ("llama3_pythonic", llama3_python_tagged),
    "llama4_pythonic": ("llama4_pythonic", llama4_tagged),
    "llama4_pythonic without its tags": ("llama4_pythonic", _python),
    "lfm2": ("lfm2", lfm2),
    "qwen3coder": ("qwen3coder", qwen3coder),
    "qwen3coder without its outer tags": ("qwen3coder", qwen3coder_untagged),
    "glm4": ("glm4", glm4),
    "newer glm4": ("glm4", newer_glm4),
    "minicpm5": ("minicpm5", minicpm5),
    "minicpm5 in sections": ("minicpm5", minicpm5_in_sections),
    "gemma4": ("gemma4", gemma4),
    "onyx without heads": ("onyx", onyx_block),
}
# In these every call is a message of its own.
AS_MESSAGES: dict[str, tuple[str, Callable[[Sequence[Call]], str]]] = {
    "onyx": ("onyx", onyx),
    "gptoss": ("gptoss", gptoss),
    "gptoss with the recipient first": ("gptoss", gptoss_recipient_first),
}
OTHER_WRITERS = AMONG_TEXT | AS_MESSAGES

_ANYTHING: dict[str, Any] = {}
TOOLS = [
    Tool(
        "get_weather",
        None,
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "at": {"type": "array"},
                "more": {"type": "object"},
                "is_hot": {"type": "boolean"},
                "any": _ANYTHING,
            },
        },
    ),
    Tool("get_time", None, {"type": "object", "properties": {"zone": {"type": "number"}}}),
    Tool("ping"),
]
PARIS: Call = ("get_weather", {"city": "Paris"})
NOON: Call = ("get_time", {"zone": 1.5})
PING: Call = ("ping", {})


def _with_json(write: Callable[[Sequence[JsonCall]], str]) -> Callable[[Sequence[Call]], str]:
    def written(calls: Sequence[Call]) -> str:
        return write([(name, json.dumps(args, ensure_ascii=False)) for name, args in calls])

    return written


# The format that reads it, and how it is written.
WRITERS = {
    **{way: (name, _with_json(write)) for way, (name, write) in JSON_WRITERS.items()},
    **OTHER_WRITERS,
}
# A test for every way; for those in which text may be around calls; and for the others.
ways = pytest.mark.parametrize("way", WRITERS)
among_text = pytest.mark.parametrize("way", [*JSON_WRITERS, *AMONG_TEXT])
as_messages = pytest.mark.parametrize("way", AS_MESSAGES)


def written(way: str, calls: Sequence[Call]) -> str:
    return WRITERS[way][1](calls)


def read(way: str, parts: str | Sequence[str]) -> Folded:
    parser = a_parser(WRITERS[way][0], tools=TOOLS)
    return folded(parser, [parts] if isinstance(parts, str) else parts)


def calls_in(read: Folded) -> list[Any]:
    """What was read, with the arguments as values."""
    return [
        (kind, text if kind in ("text", "reasoning") else json.loads(text)) for kind, text in read
    ]
