"""All families of model output, and how to find the family of a model. A name is that of a family
of calls (`hermes`), of reasoning tags (`think`), or of both (`think+hermes`). `plain`, also called
`none`, is neither."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from vinery_serving.core.tasks import CALL_FORMATS, PLAIN, check_output_format
from vinery_serving.grammars import families
from vinery_serving.grammars.family import Family, GrammarFamily, Marks
from vinery_serving.output.parsers import base as parsers


def _call_families() -> Iterator[Family]:
    for file in iter_modules(families.__path__, f"{families.__name__}."):
        if file.name != __name__:
            values = vars(import_module(file.name)).values()
            yield from (value for value in values if isinstance(value, Family))


_PLAIN: Final = Family(PLAIN, (), parsers.PLAIN, GrammarFamily())
_CALLS: Final = sorted(_call_families(), key=lambda family: CALL_FORMATS.index(family.name))
# A template is searched in this order, too. Some templates only open reasoning, at the end of the
# prompt; some only cut old reasoning out.
_REASONING: Final[Mapping[str, tuple[parsers.ReasoningTags, Marks]]] = {
    "mistral_think": (parsers.MISTRAL_THINK, (("[THINK]",),)),
    "granite_think": (
        parsers.GRANITE_THINK,
        (("Here is my thought process",), ("<think>", "<response>")),
    ),
    "cohere_think": (parsers.COHERE_THINK, (("<|START_THINKING|>",), ("<|START_RESPONSE|>",))),
    "hunyuan_think": (parsers.HUNYUAN_THINK, (("<think>", "<answer>", "<tool_calls>"),)),
    "think": (parsers.THINK, (("<think>",), ("</think>",))),
    "deepseek_r1": (parsers.DEEPSEEK_R1, ()),
}
FAMILIES: Final[Mapping[str, Family]] = {
    each.name: each
    for family in (_PLAIN, *_CALLS)
    for each in (
        family,
        *(family.with_reasoning(name, tags) for name, (tags, _) in _REASONING.items()),
    )
}


def detect(template_text: str | None) -> Family:
    """Return the family that a chat template was written for; `plain` without any mark."""
    text = template_text or ""
    family = next((each for each in _CALLS if _has_marks(text, each.marks)), _PLAIN)
    for name, (tags, marks) in _REASONING.items():
        if _has_marks(text, marks):
            return family.with_reasoning(name, tags)
    return family


def _has_marks(text: str, alternatives: Marks) -> bool:
    return any(all(mark in text for mark in marks) for marks in alternatives)


def by_name(name: str) -> Family:
    """Return the family of this name, such as `plain`, `hermes`, `think` or `think+hermes`. Raises
    ValueError, with the known names."""
    return FAMILIES[check_output_format(name)]


def select_family(name: str, template_text: str | None) -> Family:
    """Return the family of this name, or that of the chat template if the name is empty. Raises
    ValueError, with the known names."""
    return by_name(name) if name else detect(template_text)
