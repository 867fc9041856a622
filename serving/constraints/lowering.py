"""Structural tags as plain grammars.

The engine takes a choice between tags only where all of them have an end of their own, or
none has. A row of calls has none, an answer in a shape has one; as grammars, both have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from serving.constraints.family import Shape
from serving.constraints.schema.ebnf import quoted, text_of
from serving.constraints.schema.pattern import pattern_grammar
from serving.constraints.schema.regular import (
    ANYTHING,
    Regular,
    as_rules,
    but_not,
    cat,
    either,
    literal,
    plain,
)

# Strings, sets and comments of a grammar hold no names.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|#[^\n]*|[A-Za-z_][\w.-]*')
_RULE: Final = re.compile(r"^\s*([A-Za-z_][\w.-]*)\s*::=", re.MULTILINE)


def lowered(shape: Shape) -> Shape | None:
    """The same shape as one grammar; None for free text with triggers in it, and for what
    only the engine can translate."""
    if shape["type"] == "grammar":
        return shape
    lowering = _Lowering()
    root = lowering.of(shape, ())
    if root is None:
        return None
    return {"type": "grammar", "grammar": f"root ::= {root}\n{''.join(lowering.grammars)}"}


class _Lowering:
    """Collects the grammars of the parts, each with names of its own."""

    def __init__(self) -> None:
        self.grammars: list[str] = []

    def of(self, shape: Shape, ends: Sequence[str]) -> str | None:
        """An expression. `ends` is what follows the shape: free text stops before it."""
        match shape["type"]:
            case "const_string":
                return quoted(shape["value"])
            case "grammar":
                return self._grammar(shape["grammar"])
            case "regex":
                return self._grammar(pattern_grammar(shape["pattern"]))
            case "any_text":
                return self._free_text([*ends, *shape.get("excludes", ())])
            case "sequence":
                return self._sequence(shape["elements"], ends)
            case "or":
                return self._either(shape["elements"], ends)
            case "tag":
                return self._tag(shape)
            case "tags_with_separator":
                return self._row(shape)
            case _:
                return None

    def _grammar(self, text: str) -> str:
        prefix = f"g{len(self.grammars)}_"
        names = set(_RULE.findall(text))

        def renamed(token: re.Match[str]) -> str:
            return prefix + token[0] if token[0] in names else token[0]

        self.grammars.append(_TOKEN.sub(renamed, text).rstrip() + "\n")
        return f"{prefix}root"

    def _free_text(self, ends: Sequence[str]) -> str:
        found: Regular = either(cat(ANYTHING, literal(end), ANYTHING) for end in ends if end)
        rules = as_rules(but_not(found), plain, "a0")
        text = text_of(rules, "a0")
        assert text is not None, "the empty text holds no end"
        return self._grammar("root ::= r0\n" + text)

    def _sequence(self, elements: Sequence[Shape], ends: Sequence[str]) -> str | None:
        last = len(elements) - 1
        return _joined(
            [self.of(each, ends if at == last else ()) for at, each in enumerate(elements)], " "
        )

    def _either(self, elements: Sequence[Shape], ends: Sequence[str]) -> str | None:
        return _joined([self.of(each, ends) for each in elements], " | ")

    def _tag(self, tag: Mapping[str, Any]) -> str | None:
        ends = [tag["end"]] if isinstance(tag["end"], str) else tag["end"]
        content = self.of(tag["content"], ends)
        closing = _joined([quoted(end) for end in ends], " | ")
        return _joined([quoted(tag["begin"]), content, closing], " ")

    def _row(self, row: Mapping[str, Any]) -> str | None:
        one = _joined([self._tag(tag) for tag in row["tags"]], " | ")
        if one is None:
            return None
        more = "" if row.get("stop_after_first") else f" ({quoted(row['separator'])} {one})*"
        return f"({one}{more})" if row.get("at_least_one") else f"({one}{more})?"


def _joined(parts: Sequence[str | None], between: str) -> str | None:
    kept = [part for part in parts if part is not None]
    return f"({between.join(kept)})" if len(kept) == len(parts) else None
