"""Several calls where a template shows one: how models join them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from benchmarks.calls.forms import FORMS

# Names and arguments as text.
Written = Sequence[tuple[str, str]]
Join = Callable[[Written, Random], str]


def _hermes(calls: Written, random: Random) -> str:
    """In one pair of tags, as an array or one after the other."""
    objects = [FORMS["phi4"].call(*call) for call in calls]
    if random.random() < 0.3:
        inside = f"[{', '.join(objects)}]"
    else:
        inside = random.choice(("\n", ", ", ",\n", "")).join(objects)
    return f"<tool_call>\n{inside}\n</tool_call>"


def _llama3(calls: Written, random: Random) -> str:
    separator = random.choice(("; ", ";\n", "\n", ", ", ""))
    return separator.join(FORMS["llama3"].call(*call) for call in calls)


def _array(family: str, begin: str, end: str = "]") -> Join:
    def join(calls: Written, random: Random) -> str:
        separator = random.choice((",", ",\n", "\n", " ", "; "))
        return begin + separator.join(FORMS[family].call(*call) for call in calls) + end

    return join


def _devstral(calls: Written, random: Random) -> str:
    """Calls without arguments are written as a name alone."""
    return random.choice(("", "\n", " ")).join(
        f"[TOOL_CALLS]{name}[ARGS]{'' if text == '{}' and random.random() < 0.7 else text}"
        for name, text in calls
    )


def _inside(family: str, begin: str, end: str, separators: Sequence[str]) -> Join:
    """All calls in one pair of the tags that are around each. `begin` and `end` are these."""

    def join(calls: Written, random: Random) -> str:
        written = [FORMS[family].call(*call) for call in calls]
        bare = [each.removeprefix(begin).removesuffix(end) for each in written]
        return f"{begin}{random.choice(separators).join(bare)}{end}"

    return join


def _gemma(begin: str, end: str) -> Join:
    def join(calls: Written, random: Random) -> str:
        blank = random.choice(("", " ", ""))
        bare = [f"call:{blank}{name}{arguments}" for name, arguments in calls]
        return f"{begin}{random.choice(('', ',', ' ', chr(10))).join(bare)}{end}"

    return join


def _pythonic(begin: str, end: str) -> Join:
    """In one list with line breaks, in several lists, or without brackets on lines of their own."""

    def join(calls: Written, random: Random) -> str:
        bare = [f"{name}({arguments})" for name, arguments in calls]
        if begin and random.random() < 0.3:
            return f"{begin}{chr(10).join(bare)}{end}"
        if random.random() < 0.5:
            return "".join(f"{begin}[{each}]{end}" for each in bare)
        return f"{begin}[\n{(',' + chr(10)).join(bare)}\n]{end}"

    return join


def _spread(family: str) -> Join:
    """With blanks and line breaks between them, or none."""

    def join(calls: Written, random: Random) -> str:
        return random.choice(("", "\n", "\n\n", " ")).join(
            FORMS[family].call(*call) for call in calls
        )

    return join


TOGETHER: Final[dict[str, Join]] = {
    "hermes": _hermes,
    "llama3": _llama3,
    "phi4": _array("phi4", "functools["),
    "granite": _array("granite", "<|tool_call|>["),
    "mistral": _array("mistral", "[TOOL_CALLS]["),
    "nemotron": _array("nemotron", "<TOOLCALL>[", "]</TOOLCALL>"),
    "hunyuan": _array("hunyuan", "<tool_calls>[", "]</tool_calls>"),
    "cohere": _array("cohere", "<|START_ACTION|>[", "]<|END_ACTION|>"),
    "devstral": _devstral,
    "gemma4": _gemma("<|tool_call>", "<tool_call|>"),
    "functiongemma": _gemma("<start_function_call>", "<end_function_call>"),
    "lfm2": _pythonic("<|tool_call_start|>", "<|tool_call_end|>"),
    "llama3_pythonic": _pythonic("", ""),
    "llama4_pythonic": _pythonic("<|python_start|>", "<|python_end|>"),
    "qwen3coder": _inside("qwen3coder", "<tool_call>\n", "\n</tool_call>", ("\n", "")),
    "glm4": _spread("glm4"),
    "minicpm5": _spread("minicpm5"),
    "onyx": _inside("onyx", "<atem:function_calls>\n", "\n</atem:function_calls>", ("\n", "")),
    "gptoss": lambda calls, random: random.choice(("<|start|>assistant", "")).join(
        FORMS["gptoss"].call(*call) for call in calls
    ),
    "deepseek_v3": _spread("deepseek_v3"),
    "deepseek_v31": _spread("deepseek_v31"),
    "kimi_k2": _spread("kimi_k2"),
}
