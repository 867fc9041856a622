"""Grammars as values, and their text in the engine's EBNF.

A grammar is a set of named rules. Before it is written, what can never end is cut out: an
alternative whose required part nothing fits, a rule that only leads to itself. What is left
is what a model can really finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

# The first code points whose UTF-8 has two, three and four bytes.
_UTF8_STEPS: Final = (0x80, 0x800, 0x10000)

# Longer texts stay rules of their own: rules that say the one before twice would make texts of
# any length.
_MAX_INLINED_CHARS: Final = 200

# Code points, as pairs of first and last: sorted, apart from each other.
Intervals = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Text:
    """These characters. None: nothing to write."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    intervals: Intervals


@dataclass(frozen=True, slots=True)
class Ref:
    """Whatever the rule of this name says."""

    name: str


@dataclass(frozen=True, slots=True)
class Seq:
    """One part after the other."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of the options. Without any, nothing fits."""

    options: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """From `least` to `most` times; `most` None is as often as one likes."""

    part: Expr
    least: int
    most: int | None


Expr = Text | Chars | Ref | Seq | Alt | Repeat

EMPTY: Final = Text("")
NEVER: Final = Alt(())


def seq(*parts: Expr) -> Expr:
    """One after the other; texts that meet become one."""
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
    """One of these, each named once."""
    flat: dict[Expr, None] = {}
    for option in options:
        flat |= dict.fromkeys(option.options if isinstance(option, Alt) else (option,))
    return next(iter(flat)) if len(flat) == 1 else Alt(tuple(flat))


def chars(intervals: Intervals) -> Expr:
    """One character of a set."""
    [(first, last), *more] = intervals or ((0, -1),)
    return Text(chr(first)) if first == last and not more else Chars(intervals)


def productive(rules: Mapping[str, Expr]) -> set[str]:
    """The rules that some finite text fits."""
    found: set[str] = set()
    waiting = {name: _names(body) for name, body in rules.items()}
    users: dict[str, list[str]] = {}
    for name, used in waiting.items():
        for each in used:
            users.setdefault(each, []).append(name)
    queue = list(rules)
    while queue:
        name = queue.pop()
        if name not in found and name in rules and _ends(rules[name], found):
            found.add(name)
            queue += users.get(name, ())
    return found


def text_of(rules: Mapping[str, Expr], root: str) -> str | None:
    """The grammar of what `root` says, a rule a line; None when nothing fits it.

    Rules that say only one short thing are put where they are used. Those whose name has a digit
    are numbered anew, in the order in which they are met: equal schemas have equal grammars.
    """
    kept = productive(rules)
    if root not in kept:
        return None
    bodies = {name: _pruned(rules[name], kept) for name in rules if name in kept}
    while (smaller := {name: _inlined(body, bodies) for name, body in bodies.items()}) != bodies:
        bodies = smaller
    names: dict[str, str] = {}
    for name in _reachable(bodies, root):
        is_own = not name[-1].isdigit()
        names[name] = name if is_own else f"r{len(names)}"
    return "".join(f"{names[name]} ::= {_written(bodies[name], names)}\n" for name in names)


def dead_end(rules: Mapping[str, Expr], root: str) -> list[str]:
    """The rules on the way from a root that nothing fits to the reason, as far as there is
    only one way."""
    ending = productive(rules)
    way: list[str] = []
    expr: Expr = Ref(root)
    while True:
        match expr:
            case Ref(name) if name not in way:
                way.append(name)
                expr = rules[name]
            case Seq(parts):
                expr = next(part for part in parts if not _ends(part, ending))
            case Repeat(part):
                expr = part
            case _:
                return way


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
            case Text() | Chars():
                pass


def _ends(expr: Expr, ending: set[str]) -> bool:
    match expr:
        case Ref(name):
            return name in ending
        case Seq(parts):
            return all(_ends(part, ending) for part in parts)
        case Alt(options):
            return any(_ends(option, ending) for option in options)
        case Repeat(part, least):
            return least == 0 or _ends(part, ending)
        case Chars(intervals):
            return bool(intervals)
        case Text():
            return True
        case _:
            assert_never(expr)


def _pruned(expr: Expr, ending: set[str]) -> Expr:
    """The same without what never ends. `expr` itself does."""
    match expr:
        case Seq(parts):
            return seq(*(_pruned(part, ending) for part in parts))
        case Alt(options):
            return alt(_pruned(option, ending) for option in options if _ends(option, ending))
        case Repeat(part, least, most):
            return Repeat(_pruned(part, ending), least, most) if _ends(part, ending) else EMPTY
        case _:
            return expr


def _inlined(expr: Expr, rules: Mapping[str, Expr]) -> Expr:
    match expr:
        case Ref(name):
            seen = {name}
            while isinstance(body := rules[name], Ref) and body.name not in seen:
                name = body.name
                seen.add(name)
            is_short = isinstance(body, Text) and len(body.text) <= _MAX_INLINED_CHARS
            return body if is_short else Ref(name)
        case Seq(parts):
            return seq(*(_inlined(part, rules) for part in parts))
        case Alt(options):
            return alt(_inlined(option, rules) for option in options)
        case Repeat(part, least, most):
            return Repeat(_inlined(part, rules), least, most)
        case _:
            return expr


def _written(expr: Expr, names: Mapping[str, str]) -> str:
    match expr:
        case Text(text):
            return quoted(text)
        case Chars(intervals):
            return f"[{''.join(_written_interval(*each) for each in _cut(intervals))}]"
        case Ref(name):
            return names[name]
        case Seq(parts):
            return " ".join(_grouped(part, names, Alt) for part in parts)
        case Alt(options):
            return " | ".join(_written(option, names) for option in options)
        case Repeat(part, least, most):
            return _grouped(part, names, Alt | Seq | Repeat) + _times(least, most)
        case _:
            assert_never(expr)


def _grouped(part: Expr, names: Mapping[str, str], loose: type | object) -> str:
    written = _written(part, names)
    return f"({written})" if isinstance(part, loose) else written  # type: ignore[arg-type]


def _times(least: int, most: int | None) -> str:
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case _ if least == most:
            return f"{{{least}}}"
        case _:
            return f"{{{least},{'' if most is None else most}}}"


def quoted(text: str) -> str:
    """A string of the grammar."""
    return '"' + "".join(_escaped(character, '"\\') for character in text) + '"'


def _cut(intervals: Intervals) -> Iterator[tuple[int, int]]:
    """The same, cut where UTF-8 gets longer. The engine reads a range over such a place too
    loosely: it lets bytes through that are no text."""
    for first, last in intervals:
        starts = [first, *(start for start in _UTF8_STEPS if first < start <= last)]
        yield from zip(starts, [*(start - 1 for start in starts[1:]), last], strict=True)


def _written_interval(first: int, last: int) -> str:
    start, end = (_escaped(chr(code), "\\]^-[", raw_to=0x7E) for code in (first, last))
    return start if first == last else f"{start}-{end}"


def _escaped(character: str, special: str, raw_to: int = 0x10FFFF) -> str:
    code = ord(character)
    if character in special:
        return f"\\{character}"
    if character.isprintable() and code <= raw_to:
        return character
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def choice_grammar(choices: Sequence[str]) -> str:
    """The grammar of exactly one of these texts."""
    return f"root ::= {' | '.join(quoted(choice) for choice in dict.fromkeys(choices))}\n"
