"""How the families that write arguments as JSON write their calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

# A name, and the JSON text of the arguments.
Call = tuple[str, str]


def _objects(calls: Sequence[Call], key: str = "arguments") -> list[str]:
    return [f'{{"name": {json.dumps(name)}, "{key}": {args}}}' for name, args in calls]


def hermes(calls: Sequence[Call]) -> str:
    return "\n".join(f"<tool_call>\n{each}\n</tool_call>" for each in _objects(calls))


def llama3(calls: Sequence[Call]) -> str:
    return "; ".join(_objects(calls, "parameters"))


def llama3_tagged(calls: Sequence[Call]) -> str:
    return f"<|python_tag|>{llama3(calls)}"


def phi4(calls: Sequence[Call]) -> str:
    return f"functools[{', '.join(_objects(calls))}]"


def phi4_tagged(calls: Sequence[Call]) -> str:
    return f"<|tool_call|>[{', '.join(_objects(calls))}]<|/tool_call|>"


def granite(calls: Sequence[Call]) -> str:
    return f"<|tool_call|>[{', '.join(_objects(calls))}]"


def mistral(calls: Sequence[Call]) -> str:
    return f"[TOOL_CALLS] [{', '.join(_objects(calls))}]"


def mistral_untagged(calls: Sequence[Call]) -> str:
    return f"[{', '.join(_objects(calls))}]"


def devstral(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{args}" for name, args in calls)


def devstral_with_ids(calls: Sequence[Call]) -> str:
    return "".join(
        f"[TOOL_CALLS]{name}[CALL_ID]abcDEF12{at}[ARGS]{args}"
        for at, (name, args) in enumerate(calls)
    )


def deepseek_v3(calls: Sequence[Call]) -> str:
    inner = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{args}\n```<｜tool▁call▁end｜>"
        for name, args in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def deepseek_v31(calls: Sequence[Call]) -> str:
    inner = "".join(
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{args}<｜tool▁call▁end｜>"
        for name, args in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def kimi_k2(calls: Sequence[Call]) -> str:
    inner = "".join(
        f"<|tool_call_begin|>functions.{name}:{at}<|tool_call_argument_begin|>{args}"
        "<|tool_call_end|>"
        for at, (name, args) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"


# The format that reads it, and how it is written.
WRITERS: dict[str, tuple[str, Callable[[Sequence[Call]], str]]] = {
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
