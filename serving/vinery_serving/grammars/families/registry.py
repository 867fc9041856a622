"""All families of model output, and how to find the family of a model.

A name is that of a family of calls (`hermes`), of reasoning tags (`think`), or of both
(`think+hermes`). `plain`, also called `none`, is neither.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from vinery_serving.core.output_formats import CALL_FORMATS, PLAIN, check_output_format
from vinery_serving.grammars import families
from vinery_serving.grammars.family import Family, GrammarFamily, Marks
from vinery_serving.output.parsers import base as parsers
from vinery_serving.output.parsers.base import (
    COHERE_THINK,
    DEEPSEEK_R1,
    GRANITE_THINK,
    HUNYUAN_THINK,
    MISTRAL_THINK,
    THINK,
    ReasoningTags,
)


def _call_families() -> Iterator[Family]:
    for file in iter_modules(families.__path__, f"{families.__name__}."):
        if file.name != __name__:
            values = vars(import_module(file.name)).values()
            yield from (value for value in values if isinstance(value, Family))


_PLAIN: Final = Family(PLAIN, (), parsers.PLAIN, GrammarFamily())
_FAMILIES: Final = sorted(_call_families(), key=lambda family: CALL_FORMATS.index(family.name))
# A template is searched in this order, too. Some templates only open reasoning, at the end of the
# prompt; some only cut old reasoning out.
_REASONING: Final[Mapping[str, tuple[ReasoningTags, Marks]]] = {
    "mistral_think": (MISTRAL_THINK, (("[THINK]",),)),
    "granite_think": (GRANITE_THINK, (("Here is my thought process",), ("<think>", "<response>"))),
    "cohere_think": (COHERE_THINK, (("<|START_THINKING|>",), ("<|START_RESPONSE|>",))),
    "hunyuan_think": (HUNYUAN_THINK, (("<think>", "<answer>", "<tool_calls>"),)),
    "think": (THINK, (("<think>",), ("</think>",))),
    "deepseek_r1": (DEEPSEEK_R1, ()),
}
_BY_NAME: Final[Mapping[str, Family]] = {
    each.name: each
    for family in (_PLAIN, *_FAMILIES)
    for each in (
        family,
        *(family.with_reasoning(name, tags) for name, (tags, _) in _REASONING.items()),
    )
}


def detect(template_text: str | None) -> Family:
    """Return the family that a chat template was written for; `plain` without any mark."""
    text = template_text or ""
    family = next((each for each in _FAMILIES if _has_marks(text, each.marks)), _PLAIN)
    for name, (tags, marks) in _REASONING.items():
        if _has_marks(text, marks):
            return family.with_reasoning(name, tags)
    return family


def _has_marks(text: str, alternatives: Marks) -> bool:
    return any(all(mark in text for mark in marks) for marks in alternatives)


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
    return tuple(sorted(_BY_NAME))
