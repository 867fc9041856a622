"""Grammars as values, and their text in XGrammar's EBNF.

A grammar is a set of named rules. `text_of` removes what can never end before it writes them:
an alternative whose required part no text fits, a rule that only leads to itself. So a model
can finish whatever the grammar lets it begin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, assert_never

from vinery_serving.grammars.grammar.steps import spend

_SHORT_TIMES: Final = {(0, None): "*", (1, None): "+", (0, 1): "?"}

# A format of XGrammar's structural tags, as JSON. Formats nest.
StructuralTag = Mapping[str, Any]

# The first code points whose UTF-8 has two, three and four bytes.
_UTF8_STEPS: Final = (0x80, 0x800, 0x10000)

# Longer texts stay rules of their own. If each rule repeats the one before twice, inlining
# doubles the text at every rule.
_MAX_INLINED_CHARS: Final = 200
# Each part of an expression is counted, pruned, inlined and written.
_STEPS_OF_A_NODE: Final = 4


@dataclass(frozen=True, slots=True)
class Text:
    """Exactly these characters, possibly none."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set: code points as pairs of first and last, sorted and disjoint."""

    intervals: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """The rule of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Seq:
    """All parts in order."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of the options. Without options no text fits."""

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
    """Return the parts in order. Adjacent texts become one."""
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
    """Return the choice between the options, without duplicates."""
    flat: dict[Expr, None] = {}
    for option in options:
        flat |= dict.fromkeys(option.options if isinstance(option, Alt) else (option,))
    return next(iter(flat)) if len(flat) == 1 else Alt(tuple(flat))


def chars(intervals: tuple[tuple[int, int], ...]) -> Expr:
    """Return one character of a set."""
    [(first, last), *more] = intervals or ((0, -1),)
    return Text(chr(first)) if first == last and not more else Chars(intervals)


@dataclass(slots=True)
class _Goal:
    """What can end once `num_missing` of its parts can: a rule, or a part of `parent`."""

    num_missing: int
    parent: _Goal | None = None
    rule: str = ""


def productive(rules: Mapping[str, Expr]) -> set[str]:
    """Return the names of the rules that some finite text fits."""
    found: set[str] = set()
    users: dict[str, list[_Goal]] = {}
    reached: list[_Goal] = []
    for name, body in rules.items():
        reached += _goals(body, _Goal(1, rule=name), users)
    while reached:
        goal = reached.pop()
        goal.num_missing -= 1
        if goal.num_missing != 0:
            continue
        if goal.parent is not None:
            reached.append(goal.parent)
        else:
            found.add(goal.rule)
            reached += users.get(goal.rule, ())
    return found


def _goals(body: Expr, whole: _Goal, users: dict[str, list[_Goal]]) -> Iterator[_Goal]:
    """Yield the goals that are reached once more already, and add those of each rule to `users`."""
    stack = [(body, whole)]
    num_nodes = 0
    while stack:
        num_nodes += 1
        expr, goal = stack.pop()
        match expr:
            case Ref(name):
                users.setdefault(name, []).append(goal)
            case Seq(parts):
                each = _Goal(len(parts), goal)
                stack += [(part, each) for part in parts]
            case Alt(options):
                one = _Goal(1, goal)
                stack += [(option, one) for option in options]
            case Repeat(part, least) if least > 0:
                stack.append((part, goal))
            case Chars(intervals) if not intervals:
                pass
            case Text() | Chars() | Repeat():
                yield goal
            case _:
                assert_never(expr)
    spend(_STEPS_OF_A_NODE * num_nodes)


def text_of(rules: Mapping[str, Expr], root: str) -> str | None:
    """Return the grammar with the rule `root`, one rule a line; None if no text fits it.

    Rules with one short text are inlined. Rules whose name ends with a digit are renumbered in
    the order of their first use, so that equal schemas have equal grammars.
    """
    kept = productive(rules)
    if root not in kept:
        return None
    bodies = {
        name: body
        for name in rules
        if name in kept and (body := _pruned(rules[name], kept)) is not None
    }
    _inline(bodies)
    names: dict[str, str] = {}
    for name in _reachable(bodies, root):
        names[name] = f"r{len(names)}" if name[-1].isdigit() else name
    return "".join(f"{names[name]} ::= {_written(bodies[name], names)}\n" for name in names)


def _inline(bodies: dict[str, Expr]) -> None:
    """Replace references by short texts and by what they lead to, until nothing changes. Rules
    come after those that they use, so only rules that use themselves may change again."""
    order, looping = _users_last(bodies)
    _ = _inline_each(order, bodies)
    is_changed = _inline_each(looping, bodies)
    while is_changed:
        spend(len(order))
        is_changed = _inline_each(order, bodies)


def _inline_each(names: Iterable[str], bodies: dict[str, Expr]) -> bool:
    """Return whether anything changed."""
    is_changed = False
    for name in names:
        body = bodies[name]
        bodies[name] = smaller = _inlined(body, bodies)
        is_changed = is_changed or (smaller is not body and smaller != body)
    return is_changed


def _users_last(rules: Mapping[str, Expr]) -> tuple[list[str], list[str]]:
    """The names of the rules, each after those that it uses, as far as there is such an order;
    and those that use a rule which comes later."""
    order: dict[str, None] = {}
    seen: set[str] = set()
    looping: dict[str, None] = {}
    for root in rules:
        stack = [(root, iter((root,)))]
        while stack:
            user, used = stack[-1]
            for name in used:
                if name not in seen:
                    seen.add(name)
                    stack.append((name, _names(rules[name])))
                    break
                if name not in order:
                    looping[user] = None
            else:
                stack.pop()
                order[user] = None
    return list(order), list(looping)


def dead_end(rules: Mapping[str, Expr], root: str) -> list[str]:
    """Return the rules from a root that no text fits to the cause. The path ends at the first
    rule that has several causes."""
    ending = productive(rules)
    path: dict[str, None] = {}
    expr: Expr = Ref(root)
    while True:
        match expr:
            case Ref(name) if name not in path:
                path[name] = None
                expr = rules[name]
            case Seq(parts):
                expr = next(part for part in parts if not _ends(part, ending))
            case Repeat(part):
                expr = part
            case _:
                return list(path)


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


def _pruned(expr: Expr, ending: set[str]) -> Expr | None:
    """The expression without what never ends; None if it never ends itself."""
    match expr:
        case Ref(name):
            return expr if name in ending else None
        case Seq(parts):
            kept = [each for part in parts if (each := _pruned(part, ending)) is not None]
            return seq(*kept) if len(kept) == len(parts) else None
        case Alt(options):
            kept = [each for part in options if (each := _pruned(part, ending)) is not None]
            return alt(kept) if kept else None
        case Repeat(part, least, most):
            body = _pruned(part, ending)
            if body is None:
                return EMPTY if least == 0 else None
            return Repeat(body, least, most)
        case Chars(intervals):
            return expr if intervals else None
        case Text():
            return expr
        case _:
            assert_never(expr)


def _inlined(expr: Expr, rules: Mapping[str, Expr]) -> Expr:
    match expr:
        case Ref():
            return _led_to(expr, rules)
        case Seq(parts) | Alt(parts):
            changed = [_inlined(part, rules) for part in parts]
            if all(one is other for one, other in zip(parts, changed, strict=True)):
                return expr
            return seq(*changed) if isinstance(expr, Seq) else alt(changed)
        case Repeat(part, least, most):
            body = _inlined(part, rules)
            return expr if body is part else Repeat(body, least, most)
        case Chars() | Text():
            return expr
        case _:
            assert_never(expr)


def _led_to(ref: Ref, rules: Mapping[str, Expr]) -> Expr:
    """The text of a rule if it is short, or the rule at the end of references alone."""
    name, seen = ref.name, {ref.name}
    while isinstance(body := rules[name], Ref) and body.name not in seen:
        spend()
        name = body.name
        seen.add(name)
    is_short = isinstance(body, Text) and len(body.text) <= _MAX_INLINED_CHARS
    if is_short:
        return body
    return ref if name == ref.name else Ref(name)


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
            return _grouped(part, names, Alt | Seq | Repeat) + _times(least, most)
        case _:
            assert_never(expr)


def _grouped(part: Expr, names: Mapping[str, str], loose: type | object) -> str:
    written = _written(part, names)
    return f"({written})" if isinstance(part, loose) else written  # type: ignore[arg-type]


def _times(least: int, most: int | None) -> str:
    if (least, most) in _SHORT_TIMES:
        return _SHORT_TIMES[least, most]
    return f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"


def quoted(text: str) -> str:
    """Return the text as a string literal of the grammar."""
    if text.isprintable():
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return f'"{"".join(map(_quoted_character, text))}"'


@lru_cache(maxsize=1024)
def _quoted_character(character: str) -> str:
    return _escaped(character, '"\\')


@lru_cache(maxsize=256)
def _written_set(intervals: tuple[tuple[int, int], ...]) -> str:
    return f"[{''.join(_written_interval(*each) for each in _split(intervals))}]"


def _split(intervals: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Split the intervals where the length of UTF-8 changes. XGrammar compiles a longer range
    too loosely: it accepts bytes that are no valid UTF-8."""
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
    """Return a grammar in EBNF as a structural tag."""
    return {"type": "grammar", "grammar": text}
