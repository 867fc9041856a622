"""Generates texts of a grammar, and checks whether a text fits: slowly, but plainly."""

from collections.abc import Mapping
from random import Random
from typing import assert_never

from vinery_serving.grammars.grammar.ebnf import Alt, Chars, Expr, Ref, Repeat, Seq, Text

Rules = Mapping[str, Expr]


def generated_text(root: Expr, rules: Rules, seed: int) -> str:
    """Return a text that fits, of a moderate length."""
    return _Writer(rules, Random(seed)).of(root, 12)


def fits(root: Expr, rules: Rules, text: str) -> bool:
    """Return whether the whole text fits. The rules must not be left-recursive."""
    return len(text) in _Reader(rules, text).ends(root, 0)


class _Writer:
    def __init__(self, rules: Rules, random: Random) -> None:
        self._rules = rules
        self._random = random
        self._heights = _heights(rules)

    def of(self, expr: Expr, depth: int) -> str:
        match expr:
            case Text(text):
                return text
            case Chars(intervals):
                first, last = self._random.choice(intervals)
                return chr(self._random.randint(first, min(last, first + 80)))
            case Ref(name):
                return self.of(self._rules[name], depth - 1)
            case Seq(parts):
                return "".join(self.of(each, depth) for each in parts)
            case Alt(options):
                low = min(options, key=lambda each: _height(each, self._heights))
                return self.of(self._random.choice(options) if depth > 0 else low, depth)
            case Repeat(part, least, most):
                top = least if depth <= 0 else min(least + 3, least + 3 if most is None else most)
                return "".join(
                    self.of(part, depth) for _ in range(self._random.randint(least, top))
                )
            case _:
                assert_never(expr)


def _heights(rules: Rules) -> dict[str, int]:
    """The smallest depth of references below each rule."""
    heights = dict.fromkeys(rules, 1000)
    while True:
        lower = {name: 1 + _height(body, heights) for name, body in rules.items()}
        if lower == heights:
            return heights
        heights = lower


def _height(expr: Expr, heights: Mapping[str, int]) -> int:
    match expr:
        case Ref(name):
            return heights[name]
        case Seq(parts):
            return max((_height(each, heights) for each in parts), default=0)
        case Alt(options):
            return min(_height(each, heights) for each in options)
        case Repeat(part, least):
            return _height(part, heights) if least else 0
        case _:
            return 0


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
