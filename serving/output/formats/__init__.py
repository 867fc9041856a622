"""One small file for each family of model output, and how to find a model's family."""

from __future__ import annotations

from serving.output.formats.base import Format
from serving.output.formats.grammars import answer_grammar, tool_grammar
from serving.output.formats.hermes import Hermes
from serving.output.formats.plain import Plain
from serving.output.formats.think import Think

__all__ = ["Format", "answer_grammar", "by_name", "detect", "tool_grammar"]

# By the text in a chat template that gives the family away, in the order to look for it.
_CALLS_BY_MARK: tuple[tuple[str, Format], ...] = (("<tool_call>", Hermes()),)
_THOUGHT_MARK = "</think>"

_PLAIN = Plain()
_FAMILIES: tuple[Format, ...] = (_PLAIN, *(family for _, family in _CALLS_BY_MARK))
_BY_NAME = {format_.name: format_ for family in _FAMILIES for format_ in (family, Think(family))}


def detect(template_text: str | None) -> Format:
    """The family that a chat template was written for; plain text without any mark."""
    text = template_text or ""
    family = next((family for mark, family in _CALLS_BY_MARK if mark in text), _PLAIN)
    return Think(family) if _THOUGHT_MARK in text else family


def by_name(name: str) -> Format:
    """The family of this name, such as `plain`, `hermes`, `think` or `think+hermes`.

    Raises ValueError, with the names that there are.
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        known = ", ".join(sorted(_BY_NAME))
        raise ValueError(f"there is no output format {name!r}; known are {known}") from None
