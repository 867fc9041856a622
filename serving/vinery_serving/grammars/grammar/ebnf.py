"""Grammars as values, and their text in XGrammar's EBNF. `text_of` first removes the parts that can
never end, so a model can finish any text that the grammar lets it begin."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, assert_never

_SHORT_TIMES: Final = {(0, None): "*", (1, None): "+", (0, 1): "?"}

StructuralTag = Mapping[str, Any]  # a format of XGrammar's structural tags, as JSON. Formats nest.

# The first code points whose UTF-8 has two, three and four bytes.
_UTF8_STEPS: Final = (0x80, 0x800, 0x10000)

# Longer texts stay separate rules. If each rule repeats the former rule twice, inlining doubles the
# text at every rule.
_MAX_INLINED_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """A character of a set: code points as pairs of first and last, sorted and disjoint."""

    intervals: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Ref:
    name: str


@dataclass(frozen=True, slots=True)
class Seq:
    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """Any of the options. Without options no text fits."""

    options: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`least` to `most` repetitions. None: no upper bound."""

    part: Expr
    least: int
    most: int | None


Expr = Text | Chars | Ref | Seq | Alt | Repeat

EMPTY: Final = Text("")
NEVER: Final = Alt(())


def seq(*parts: Expr) -> Expr:
    flat: list[Expr] = []
    for part in parts:
        for each in part.parts if isinstance(part, Seq) else (part,):
            if isinstance(each, Text) and flat and isinstance(last := flat[-1], Text):
                flat[-1] = Text(last.text + each.text)
            elif each != EMPTY:
                flat.append(each)
    if not flat:
        return EMPTY
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def alt(options: Iterable[Expr]) -> Expr:
    flat: dict[Expr, None] = {}
    for option in options:
        flat |= dict.fromkeys(option.options if isinstance(option, Alt) else (option,))
    return next(iter(flat)) if len(flat) == 1 else Alt(tuple(flat))


def chars(intervals: tuple[tuple[int, int], ...]) -> Expr:
    [(first, last), *more] = intervals or ((0, -1),)
    return Text(chr(first)) if first == last and not more else Chars(intervals)


def _productive(rules: Mapping[str, Expr]) -> set[str]:
    """Return the names of the rules that some finite text fits."""
    users: dict[str, list[str]] = {}
    for name, body in rules.items():
        for used in set(_names(body)):
            users.setdefault(used, []).append(name)
    found: set[str] = set()
    queue = list(rules)
    while queue:
        name = queue.pop()
        if name not in found and _simplified(rules[name], found, {}) is not None:
            found.add(name)
            queue += users.get(name, ())
    return found


def text_of(rules: Mapping[str, Expr], root: str) -> str | None:
    """Return the grammar with the rule `root`, one rule a line; None if no text fits the grammar.
    Rules with one short text are inlined. Rules whose name ends with a digit are renumbered in the
    order of their first use, so that equal schemas have equal grammars."""
    ending = _productive(rules)
    if root not in ending:
        return None
    bodies: dict[str, Expr] = {}
    for name in _sorted_by_use(rules):
        if (body := _simplified(rules[name], ending, bodies)) is not None:
            bodies[name] = body
    names: dict[str, str] = {}
    for name in _reachable(bodies, root):
        names[name] = f"r{len(names)}" if name[-1].isdigit() else name
    return "".join(f"{names[name]} ::= {_written(bodies[name], names)}\n" for name in names)


def _sorted_by_use(rules: Mapping[str, Expr]) -> list[str]:
    """Return the names of the rules, each after the used rules, as far as recursion allows."""
    order: list[str] = []
    seen: set[str] = set()
    for root in rules:
        stack = [(root, iter((root,)))]
        while stack:
            user, used = stack[-1]
            name = next((each for each in used if each not in seen), None)
            if name is not None:
                seen.add(name)
                stack.append((name, _names(rules[name])))
                continue
            stack.pop()
            if stack:
                order.append(user)
    return order


def _reachable(rules: Mapping[str, Expr], root: str) -> list[str]:
    seen = {root: None}
    queue = [root]
    while queue:
        for name in _names(rules[queue.pop()]):
            if name not in seen:
                seen[name] = None
                queue.append(name)
    return list(seen)


def _names(expr: Expr) -> Iterator[str]:
    stack = [expr]
    while stack:
        match stack.pop():
            case Ref(name):
                yield name
            case Seq(parts) | Alt(parts):
                stack += reversed(parts)
            case Repeat(part):
                stack.append(part)


def _simplified(expr: Expr, ending: set[str], bodies: Mapping[str, Expr]) -> Expr | None:
    """Return the expression without parts that never end, and with the short texts of `bodies`
    instead of references; None if no text fits."""
    match expr:
        case Ref(name):
            if name not in ending:
                return None
            body = bodies.get(name)  # None for a rule that uses itself
            is_short = isinstance(body, Text) and len(body.text) <= _MAX_INLINED_CHARS
            return body if isinstance(body, Ref) or is_short else expr
        case Seq(parts) | Alt(parts):
            found = [_simplified(part, ending, bodies) for part in parts]
            kept = [each for each in found if each is not None]
            if isinstance(expr, Seq):
                return seq(*kept) if len(kept) == len(parts) else None
            return alt(kept) if kept else None
        case Repeat(part, least, most):
            body = _simplified(part, ending, bodies)
            if body is None:
                return EMPTY if least == 0 else None
            return Repeat(body, least, most)
        case Chars(intervals):
            return expr if intervals else None
        case Text():
            return expr
        case _:
            assert_never(expr)


def _written(expr: Expr, names: Mapping[str, str]) -> str:
    match expr:
        case Text(text):
            return quoted(text)
        case Chars(intervals):
            return _written_set(intervals)
        case Ref(name):
            return names[name]
        case Seq(parts):
            return " ".join(_grouped(part, names, Alt) for part in parts)
        case Alt(options):
            return " | ".join(_written(option, names) for option in options)
        case Repeat(part, least, most):
            end = "" if most is None else most
            times = f"{{{least}}}" if least == most else f"{{{least},{end}}}"
            written = _grouped(part, names, Alt | Seq | Repeat)
            return written + _SHORT_TIMES.get((least, most), times)
        case _:
            assert_never(expr)


def _grouped(part: Expr, names: Mapping[str, str], loose: type | object) -> str:
    written = _written(part, names)
    return f"({written})" if isinstance(part, loose) else written  # type: ignore[arg-type]


def quoted(text: str) -> str:
    if text.isprintable():
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    escaped = "".join(_escaped(each, '"\\') for each in text)
    return f'"{escaped}"'


@lru_cache(maxsize=256)
def _written_set(intervals: tuple[tuple[int, int], ...]) -> str:
    """Split the intervals where the length of UTF-8 changes. XGrammar compiles a longer range
    too loosely: it accepts bytes that are no valid UTF-8."""
    written = ""
    for begin, end in intervals:
        starts = [begin, *(start for start in _UTF8_STEPS if begin < start <= end)]
        for codes in zip(starts, [*(start - 1 for start in starts[1:]), end], strict=True):
            first, last = (_escaped(chr(code), "\\]^-[", raw_to=0x7E) for code in codes)
            written += first if first == last else f"{first}-{last}"
    return f"[{written}]"


@lru_cache(maxsize=1024)
def _escaped(character: str, special: str, raw_to: int = 0x10FFFF) -> str:
    code = ord(character)
    if character in special:
        return f"\\{character}"
    if character.isprintable() and code <= raw_to:
        return character
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# Strings, character sets and comments, which contain no names; or a name.
TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|#[^\n]*|[A-Za-z_][\w.-]*')
_RULE: Final = re.compile(r"^\s*([A-Za-z_][\w.-]*)\s*::=", re.MULTILINE)


def prefixed(grammar: str, prefix: str) -> str:
    """Return a grammar in EBNF with a prefix before the names of its own rules."""
    names = set(_RULE.findall(grammar))
    return TOKEN.sub(
        lambda token: f"{prefix}{token[0]}" if token[0] in names else token[0], grammar
    )


def grammar_tag(text: str) -> StructuralTag:
    return {"type": "grammar", "grammar": text}
