"""How the families that do not write arguments as one JSON object write their calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from serving.constraints.arguments import python_value

# A name, and the arguments.
Call = tuple[str, dict[str, Any]]


def _between_tags(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _python(calls: Sequence[Call]) -> str:
    return "[{}]".format(
        ", ".join(
            f"{name}({', '.join(f'{key}={python_value(value)}' for key, value in args.items())})"
            for name, args in calls
        )
    )


def llama4_tagged(calls: Sequence[Call]) -> str:
    return f"<|python_start|>{_python(calls)}<|python_end|>"


def llama3_tagged(calls: Sequence[Call]) -> str:
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
            f'<param name="{key}">{_between_tags(value)}</param>' for key, value in args.items()
        )
        + "</function>"
        for name, args in calls
    )


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


# The format that reads it, and how it is written. In these, text may stand around calls.
AMONG_TEXT: dict[str, tuple[str, Callable[[Sequence[Call]], str]]] = {
    "llama3_pythonic": ("llama3_pythonic", _python),
    "llama3_pythonic with its tag": ("llama3_pythonic", llama3_tagged),
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
WRITERS = AMONG_TEXT | AS_MESSAGES
