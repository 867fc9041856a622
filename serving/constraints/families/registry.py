"""All families of model output, and how to find the family of a model.

A name is that of a family of calls (`hermes`), of reasoning tags (`think`), or of both
(`think+hermes`). `plain`, also called `none`, is neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from serving.constraints.families.base import AfterReasoning, Answers
from serving.constraints.families.gemma4 import GEMMA4_CALLS
from serving.constraints.families.gptoss import GPTOSS_CALLS
from serving.constraints.families.json_calls import (
    DEEPSEEK_V3_CALLS,
    DEEPSEEK_V31_CALLS,
    DEVSTRAL_CALLS,
    GRANITE_CALLS,
    HERMES_CALLS,
    LLAMA3_CALLS,
    MISTRAL_CALLS,
    PHI4_CALLS,
)
from serving.constraints.families.kimi_k2 import KIMI_K2_CALLS
from serving.constraints.families.pythonic import (
    LFM2_CALLS,
    LLAMA3_PYTHONIC_CALLS,
    LLAMA4_PYTHONIC_CALLS,
)
from serving.constraints.families.tagged import (
    GLM4_CALLS,
    MINICPM5_CALLS,
    ONYX_CALLS,
    QWEN3CODER_CALLS,
)
from serving.constraints.family import GrammarFamily
from serving.core.output_formats import check_output_format
from serving.output.parsers.base import PLAIN, ParserFamily, ReasoningTags
from serving.output.parsers.deepseek import DEEPSEEK
from serving.output.parsers.gemma4 import GEMMA4
from serving.output.parsers.glm4 import GLM4
from serving.output.parsers.gptoss import GPTOSS
from serving.output.parsers.granite import GRANITE
from serving.output.parsers.hermes import HERMES
from serving.output.parsers.kimi_k2 import KIMI_K2
from serving.output.parsers.llama3 import LLAMA3
from serving.output.parsers.minicpm5 import MINICPM5
from serving.output.parsers.mistral import MISTRAL
from serving.output.parsers.onyx import ONYX
from serving.output.parsers.phi4 import PHI4
from serving.output.parsers.pythonic import LFM2, LLAMA3_PYTHONIC, LLAMA4_PYTHONIC
from serving.output.parsers.qwen3coder import QWEN3CODER
from serving.output.parsers.reasoning import (
    DEEPSEEK_R1,
    GRANITE_THINK,
    MISTRAL_THINK,
    THINK,
    with_reasoning,
)

T = TypeVar("T")
# Texts of chat templates: a template that holds all texts of one tuple is the family's.
Marks = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A family of model output. `name` is what configuration calls it."""

    name: str
    marks: Marks
    parser: ParserFamily
    grammar: GrammarFamily

    def with_reasoning(self, name: str, tags: ReasoningTags) -> Family:
        """Return the same family with reasoning before its answers."""
        name = name if self.name == _PLAIN.name else f"{name}+{self.name}"
        parser, grammar = with_reasoning(self.parser, tags), AfterReasoning(self.grammar, tags)
        return Family(name, (), parser, grammar)


_PLAIN: Final = Family("plain", (), PLAIN, Answers())
# A template is searched in this order. Families that write more come before those whose marks
# they contain.
_FAMILIES: Final = (
    Family("onyx", (("<atem:",),), ONYX, ONYX_CALLS),
    Family("gptoss", (("<|channel|>", "<|message|>"),), GPTOSS, GPTOSS_CALLS),
    Family("gemma4", (("<|tool_call>",),), GEMMA4, GEMMA4_CALLS),
    Family(
        "lfm2",
        (("<|tool_call_start|>",), ("<|tool_list_start|>",), ("List of tools: ", "<|im_start|>")),
        LFM2,
        LFM2_CALLS,
    ),
    Family("minicpm5", (('<function name="', '<param name="'),), MINICPM5, MINICPM5_CALLS),
    Family("qwen3coder", (("<function=", "<parameter="),), QWEN3CODER, QWEN3CODER_CALLS),
    Family("glm4", (("<arg_key>",),), GLM4, GLM4_CALLS),
    # `func_name1` is in the instructions of these templates.
    Family(
        "llama3_pythonic",
        (("<|start_header_id|>", "func_name1("),),
        LLAMA3_PYTHONIC,
        LLAMA3_PYTHONIC_CALLS,
    ),
    Family(
        "llama4_pythonic",
        (("<|header_start|>", "func_name1("),),
        LLAMA4_PYTHONIC,
        LLAMA4_PYTHONIC_CALLS,
    ),
    Family("deepseek_v3", (("<｜tool▁calls▁begin｜>", "```json"),), DEEPSEEK, DEEPSEEK_V3_CALLS),
    Family("deepseek_v31", (("<｜tool▁calls▁begin｜>",),), DEEPSEEK, DEEPSEEK_V31_CALLS),
    Family("kimi_k2", (("<|tool_calls_section_begin|>",),), KIMI_K2, KIMI_K2_CALLS),
    Family("phi4", (("functools[",), ("<|tool|>", "<|/tool|>")), PHI4, PHI4_CALLS),
    Family("granite", (("<|start_of_role|>", "<|tool_call|>"),), GRANITE, GRANITE_CALLS),
    Family("devstral", (("[TOOL_CALLS]", "[ARGS]"),), MISTRAL, DEVSTRAL_CALLS),
    Family("mistral", (("[TOOL_CALLS]",),), MISTRAL, MISTRAL_CALLS),
    Family(
        "llama3",
        (("<|start_header_id|>", "<|python_tag|>"), ("<|start_header_id|>", '"parameters": ')),
        LLAMA3,
        LLAMA3_CALLS,
    ),
    Family("hermes", (("<tool_call>",),), HERMES, HERMES_CALLS),
)
_REASONING: Final = {
    "think": THINK,
    "deepseek_r1": DEEPSEEK_R1,
    "granite_think": GRANITE_THINK,
    "mistral_think": MISTRAL_THINK,
}
# Some templates only open reasoning, at the end of the prompt; some only cut old reasoning out.
_REASONING_MARKS: Final[tuple[tuple[str, Marks], ...]] = (
    ("mistral_think", (("[THINK]",),)),
    ("granite_think", (("Here is my thought process",), ("<think>", "<response>"))),
    ("think", (("<think>",), ("</think>",))),
)

_BY_NAME: Final[Mapping[str, Family]] = {
    each.name: each
    for family in (_PLAIN, *_FAMILIES)
    for each in (family, *(family.with_reasoning(*item) for item in _REASONING.items()))
}


def detect(template_text: str | None) -> Family:
    """Return the family that a chat template was written for; `plain` without any mark."""
    text = template_text or ""
    family = _first(((each, each.marks) for each in _FAMILIES), text) or _PLAIN
    name = _first(_REASONING_MARKS, text)
    return family.with_reasoning(name, _REASONING[name]) if name else family


def _first(candidates: Iterable[tuple[T, Marks]], text: str) -> T | None:
    for found, alternatives in candidates:
        if any(all(mark in text for mark in marks) for marks in alternatives):
            return found
    return None


def by_name(name: str) -> Family:
    """Return the family of this name, such as `plain`, `hermes`, `think` or `think+hermes`.

    Raises ValueError, with the known names.
    """
    return _BY_NAME[check_output_format(name)]


def select_family(name: str, template_text: str | None) -> Family:
    """Return the family of this name, or that of the chat template if the name is empty.

    Raises ValueError, with the known names.
    """
    return by_name(name) if name else detect(template_text)


def family_names() -> tuple[str, ...]:
    """Return the names of all families, sorted."""
    return tuple(sorted(_BY_NAME))
