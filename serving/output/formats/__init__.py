"""One small file for each family of model output, and how to find a model's family.

A name is that of a family of calls (`hermes`), of a form of thoughts (`think`), or of both
(`think+hermes`). `plain`, also called `none`, is neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from serving.constraints.answers import answer_grammar
from serving.constraints.grammars import tool_grammar
from serving.output.formats.base import Format
from serving.output.formats.deepseek import DeepSeekV3, DeepSeekV31
from serving.output.formats.devstral import Devstral
from serving.output.formats.gemma4 import Gemma4
from serving.output.formats.glm4 import Glm4
from serving.output.formats.gptoss import GptOss
from serving.output.formats.granite import Granite
from serving.output.formats.hermes import Hermes
from serving.output.formats.lfm2 import Lfm2
from serving.output.formats.llama3 import Llama3
from serving.output.formats.llama_pythonic import Llama3Pythonic, Llama4Pythonic
from serving.output.formats.minicpm5 import MiniCpm5
from serving.output.formats.mistral import Mistral
from serving.output.formats.onyx import Onyx
from serving.output.formats.phi4 import Phi4
from serving.output.formats.plain import Plain
from serving.output.formats.qwen3coder import Qwen3Coder
from serving.output.formats.think import (
    DEEPSEEK_R1,
    GRANITE_THINK,
    MISTRAL_THINK,
    THINK,
    Think,
    ThoughtForm,
)

__all__ = ["Format", "answer_grammar", "by_name", "detect", "format_names", "tool_grammar"]

T = TypeVar("T")

# What in a chat template gives a family away: all texts of a row, in the order to look.
# Families that write more come before those whose marks they contain.
_CALLS_BY_MARKS: tuple[tuple[tuple[str, ...], Format], ...] = (
    (("<atem:",), Onyx()),
    (("<|channel|>", "<|message|>"), GptOss()),
    (("<|tool_call>",), Gemma4()),
    (("<|tool_call_start|>",), Lfm2()),
    (("<|tool_list_start|>",), Lfm2()),
    (("List of tools: ", "<|im_start|>"), Lfm2()),
    (('<function name="', '<param name="'), MiniCpm5()),
    (("<function=", "<parameter="), Qwen3Coder()),
    (("<arg_key>",), Glm4()),
    # What such templates tell the model to write.
    (("<|start_header_id|>", "func_name1("), Llama3Pythonic()),
    (("<|header_start|>", "func_name1("), Llama4Pythonic()),
    (("<｜tool▁calls▁begin｜>", "```json"), DeepSeekV3()),
    (("<｜tool▁calls▁begin｜>",), DeepSeekV31()),
    (("functools[",), Phi4()),
    (("<|tool|>", "<|/tool|>"), Phi4()),
    (("<|start_of_role|>", "<|tool_call|>"), Granite()),
    (("[TOOL_CALLS]", "[ARGS]"), Devstral()),
    (("[TOOL_CALLS]",), Mistral()),
    (("<|start_header_id|>", "<|python_tag|>"), Llama3()),
    (("<|start_header_id|>", '"parameters": '), Llama3()),
    (("<tool_call>",), Hermes()),
)
# Some templates only open a thought, at the end of the prompt; some only cut old ones out.
_THOUGHTS_BY_MARKS: tuple[tuple[tuple[str, ...], ThoughtForm], ...] = (
    (("[THINK]",), MISTRAL_THINK),
    ((GRANITE_THINK.open.text.removesuffix(":"),), GRANITE_THINK),
    ((THINK.open.text, "<response>"), GRANITE_THINK),
    ((THINK.open.text,), THINK),
    ((THINK.close.text,), THINK),
)
_THOUGHTS = (THINK, DEEPSEEK_R1, GRANITE_THINK, MISTRAL_THINK)

_PLAIN = Plain()
_FAMILIES: tuple[Format, ...] = (_PLAIN, *(family for _, family in _CALLS_BY_MARKS))
_BY_NAME: Mapping[str, Format] = {
    format_.name: format_
    for family in _FAMILIES
    for format_ in (family, *(Think(family, form) for form in _THOUGHTS))
}
# What model servers that people come from call the same.
_OTHER_NAMES = {"none": "plain", "hermes3": "hermes", "qwen3": "think"}


def detect(template_text: str | None) -> Format:
    """The family that a chat template was written for; plain text without any mark."""
    text = template_text or ""
    family = _first(_CALLS_BY_MARKS, text) or _PLAIN
    form = _first(_THOUGHTS_BY_MARKS, text)
    return family if form is None else Think(family, form)


def _first(by_marks: Sequence[tuple[tuple[str, ...], T]], text: str) -> T | None:
    """What belongs to the first row whose marks are all in the text."""
    return next((found for marks, found in by_marks if all(mark in text for mark in marks)), None)


def by_name(name: str) -> Format:
    """The family of this name, such as `plain`, `hermes`, `think` or `think+hermes`.

    Raises ValueError, with the names that there are.
    """
    usual = "+".join(_OTHER_NAMES.get(part, part) for part in name.split("+"))
    try:
        return _BY_NAME[usual]
    except KeyError:
        known = ", ".join(sorted({part for each in _BY_NAME for part in each.split("+")}))
        raise ValueError(
            f"there is no output format {name!r}; known are {known}, and thoughts with calls "
            "such as think+hermes"
        ) from None


def format_names() -> tuple[str, ...]:
    """The names of all families, sorted."""
    return tuple(sorted(_BY_NAME))
