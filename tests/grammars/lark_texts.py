"""Checks whether a text fits a grammar: slowly, but plainly."""

from collections.abc import Mapping
from typing import assert_never

from vinery_serving.grammars.grammar.ebnf import Alt, Chars, Expr, Ref, Repeat, Seq, Text

Rules = Mapping[str, Expr]


def fits(root: Expr, rules: Rules, text: str) -> bool:
    """Return whether the whole text fits. The rules must not be left-recursive."""
    return len(text) in _Reader(rules, text).ends(root, 0)


class _Reader:
    def __init__(self, rules: Rules, text: str) -> None:
        self._rules = rules
        self._text = text
        self._known: dict[tuple[str, int], set[int]] = {}

    def ends(self, expr: Expr, at: int) -> set[int]:
        """Return all positions where a text that fits and begins here may end."""
        match expr:
            case Text(text):
                return {at + len(text)} if self._text.startswith(text, at) else set()
            case Chars(intervals):
                code = ord(self._text[at]) if at < len(self._text) else -1
                return {at + 1} if any(low <= code <= top for low, top in intervals) else set()
            case Ref(name):
                if (name, at) not in self._known:
                    self._known[name, at] = self.ends(self._rules[name], at)
                return self._known[name, at]
            case Seq(parts):
                found = {at}
                for part in parts:
                    found = {end for start in found for end in self.ends(part, start)}
                return found
            case Alt(options):
                return {end for each in options for end in self.ends(each, at)}
            case Repeat(part, least, most):
                return self._repeated(part, least, most, at)
            case _:
                assert_never(expr)

    def _repeated(self, part: Expr, least: int, most: int | None, at: int) -> set[int]:
        found: set[int] = set()
        starts, count = {at}, 0
        while starts and (most is None or count <= most):
            if count >= least:
                if starts <= found:
                    break
                found |= starts
            starts = {end for start in starts for end in self.ends(part, start)}
            count += 1
        return found
