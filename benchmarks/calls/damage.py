"""Samples: calls as a model means them, and the text that it writes, odd or damaged in one way.

A kind of damage leaves the meaning plain: a person who reads the text knows the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from benchmarks.calls.forms import FORMS, Form, Style
from benchmarks.calls.spelling import (
    FUNCTIONGEMMA,
    GEMMA,
    JSON,
    JSON_WORDS,
    PYTHON,
    PYTHON_WORDS,
    Kind,
    Notation,
    Part,
    Speller,
    ascii_escape,
    joined,
    no_escape,
    python_escape,
)
from benchmarks.calls.together import TOGETHER
from benchmarks.calls.values import Call, Drawing

_PROSE: Final = ("", "", "I look.\n")
_QUOTED_PARTS: Final = (
    'cry "hi" to all',
    'the "best" one',
    'a 5" pipe',
    'he wrote "no", then left',
)
_APOSTROPHES: Final = ("it's fine", "O'Neil's", "the dogs' home", "don't, won't")
_BACKSLASHES: Final = (
    *("C:\\Users\\me", "C:\\Program Files\\x", "D:\\work\\new", "\\d+", "\\w*\\.py", "a\\_b"),
    *("two\nlines", "a\tb", "100\\%"),
)
_SPACES: Final = ("", "", " ", "\n", "\n    ", "\t")


@dataclass(frozen=True, slots=True)
class Sample:
    """A text, and what it means. `damaged`: the index of the call that is written oddly; None:
    all are. `is_cut`: the text ends inside that call."""

    text: str
    prose: str
    meant: tuple[Call, ...]
    damaged: int | None
    is_cut: bool = False


# Writes the arguments of one call oddly. None: not in this form.
Damage = Callable[[Form, Call, Drawing], str | None]


def samples(family: str, kind: str, number: int, seed: int) -> Iterator[Sample]:
    """Yield samples of one kind of damage; none where the family cannot have it."""
    form = FORMS[family]
    for index in range(number):
        drawing = Drawing(Random(f"{seed} {family} {kind} {index}"))
        sample = KINDS[kind](family, form, drawing)
        if sample is None:
            return
        yield sample


def _in_one_call(damage: Damage, *, are_odd: bool = False) -> Callable[..., Sample | None]:
    """A sample with one call whose arguments are damaged."""

    def sample(_: str, form: Form, drawing: Drawing) -> Sample | None:
        calls = drawing.calls(are_odd=are_odd)
        damaged = max(range(len(calls)), key=lambda at: len(calls[at].arguments))
        text = damage(form, calls[damaged], drawing)
        if text is None:
            return None
        speller = Speller(form.notation, drawing.random)
        arguments = [form.arguments(call.arguments, speller) for call in calls]
        arguments[damaged] = text
        return _sample(form, calls, arguments, drawing, damaged)

    return sample


def _sample(
    form: Form,
    calls: Sequence[Call],
    arguments: Sequence[str],
    drawing: Drawing,
    damaged: int | None = None,
) -> Sample:
    written = [form.call(call.name, text) for call, text in zip(calls, arguments, strict=True)]
    prose = drawing.pick(_PROSE) if form is not FORMS["gptoss"] else ""
    return Sample(prose + form.block(written), prose, tuple(calls), damaged)


def _spelled(notation_of: Callable[[Form], Notation | None]) -> Damage:
    """Arguments in another notation."""

    def damage(form: Form, call: Call, drawing: Drawing) -> str | None:
        notation = notation_of(form)
        if notation is None:
            return None
        return form.arguments(call.arguments, Speller(notation, drawing.random))

    return damage


def _of_parts(change: Callable[[list[Part], Random], None]) -> Damage:
    """Arguments of which some marks are lost, or too many. In a family with tags these are in an
    object between them."""

    def damage(form: Form, call: Call, drawing: Drawing) -> str:
        speller = Speller(form.notation, drawing.random)
        if form.style is not Style.TAGS:
            parts = _parts_of(form, call, speller)
            change(parts, drawing.random)
            return joined(parts)
        call.arguments.pop("more", None)
        others = form.arguments(call.arguments, speller)
        call.arguments["more"] = {"k": drawing.string(), "l": [drawing.string(), 2], "m": 1}
        parts = list(speller.value(call.arguments["more"]))
        change(parts, drawing.random)
        return others + form.argument("more", joined(parts))

    return damage


def _parts_of(form: Form, call: Call, speller: Speller) -> list[Part]:
    if form.style is Style.OBJECT:
        return list(speller.value(call.arguments))
    members = [speller.member(*item, colon="=") for item in call.arguments.items()]
    return list(speller.separated(members))


def _some(parts: Sequence[Part], kind: Kind) -> list[int]:
    return [index for index, part in enumerate(parts) if part.kind is kind]


def _lose_a_quote(parts: list[Part], random: Random) -> None:
    parts.pop(random.choice(_some(parts, Kind.QUOTE)))


def _miscount_brackets(parts: list[Part], random: Random) -> None:
    """One closing bracket at the end is missing, or one is there too many."""
    last = parts[-1] if parts[-1].kind is Kind.CLOSE else Part(Kind.CLOSE, ")")
    if random.random() < 0.5 and last.text != ")":
        parts.pop()
    else:
        parts.append(last)


def _spoil_a_comma(parts: list[Part], random: Random) -> None:
    """A comma is lost, doubled, or stands before a closing bracket."""
    commas, closing = _some(parts, Kind.COMMA), _some(parts, Kind.CLOSE)
    match random.randrange(3):
        case 0 if commas:
            parts[random.choice(commas)] = Part(Kind.COMMA, " ")
        case 1 if commas:
            parts.insert(random.choice(commas), Part(Kind.COMMA, ","))
        case _ if closing:
            at = random.choice(closing)
            if parts[at - 1].kind is not Kind.OPEN:
                parts.insert(at, Part(Kind.COMMA, ","))
        case _:
            parts.append(Part(Kind.COMMA, ","))


def _with_strings(
    texts: Callable[[Form], Sequence[str]], notation_of: Callable[[Form], Notation | None]
) -> Damage:
    """Arguments with one string of these texts, in this notation."""

    def damage(form: Form, call: Call, drawing: Drawing) -> str | None:
        notation = notation_of(form)
        if notation is None:
            return None
        text = drawing.pick(texts(form))
        if form.style is Style.TAGS:
            call.arguments["more"] = {"k": text, "l": 1}
        else:
            call.arguments[drawing.pick(("city", "note"))] = text
        return form.arguments(call.arguments, Speller(notation, drawing.random))

    return damage


def _other_literals(form: Form) -> Notation:
    if form.style is Style.NAMED or form.notation in (GEMMA, FUNCTIONGEMMA):
        return JSON
    return PYTHON


def _mixed(_: Form) -> Notation:
    return Notation(("'", '"'), (JSON_WORDS, PYTHON_WORDS), python_escape)


def _bare_keys(form: Form) -> Notation | None:
    if form.notation in (GEMMA, FUNCTIONGEMMA):
        return replace(form.notation, has_bare_keys=False)
    return replace(form.notation, has_bare_keys=True)


def _without_escapes(form: Form) -> Notation | None:
    return (
        None
        if form.notation in (GEMMA, FUNCTIONGEMMA)
        else replace(form.notation, escape=no_escape)
    )


def _inner_quotes(form: Form) -> Sequence[str]:
    return _APOSTROPHES if form.notation is PYTHON else _QUOTED_PARTS


def _lost_tags(family: str, form: Form, drawing: Drawing) -> Sample | None:
    """A closing tag is missing, or there twice."""
    sample = _plain(family, form, drawing)
    tags = [tag for tag in (form.call_end, form.end, form.value_end) if tag.strip()]
    if not tags:
        return None
    tag = drawing.pick(tags)
    starts = [at for at in range(len(sample.text)) if sample.text.startswith(tag, at)]
    if not starts:
        return sample
    at = drawing.pick(starts)
    is_doubled = tag != form.value_end and drawing.random.random() < 0.4
    text = sample.text[:at] + tag * 2 * is_doubled + sample.text[at + len(tag) :]
    return replace(sample, text=text)


def _together(family: str, form: Form, drawing: Drawing) -> Sample | None:
    """Several calls where the template shows one."""
    if family not in TOGETHER:
        return None
    calls = [*drawing.calls(), drawing.call()]
    speller = Speller(form.notation, drawing.random)
    written = [(call.name, form.arguments(call.arguments, speller)) for call in calls]
    return Sample(TOGETHER[family](written, drawing.random), "", tuple(calls), None)


def _plain(_: str, form: Form, drawing: Drawing, *, are_odd: bool = False) -> Sample:
    calls = drawing.calls(are_odd=are_odd)
    notation = form.notation
    if notation is JSON and form.style is Style.OBJECT:
        notation = replace(JSON, escape=drawing.pick((JSON.escape, ascii_escape)))
    speller = Speller(notation, drawing.random)
    return _sample(form, calls, [form.arguments(c.arguments, speller) for c in calls], drawing)


def _odd(family: str, form: Form, drawing: Drawing) -> Sample:
    return _plain(family, form, drawing, are_odd=True)


def _cut(_: str, form: Form, drawing: Drawing) -> Sample:
    """The last call is cut before its arguments are complete."""
    calls = [*drawing.calls(), drawing.call()]
    speller = Speller(form.notation, drawing.random)
    written = [form.call(c.name, form.arguments(c.arguments, speller)) for c in calls]
    last = written.pop().removesuffix(form.call_end)[:-2]
    before = form.block([*written, "!"]).removesuffix(f"!{form.end}")
    text = before + last[: drawing.random.randint(1, len(last))]
    return Sample(text, "", tuple(calls), len(calls) - 1, is_cut=True)


def _spaces(form: Form) -> Notation:
    return replace(form.notation, spaces=_SPACES)


KINDS: Final[dict[str, Callable[[str, Form, Drawing], Sample | None]]] = {
    "plain": _plain,
    "odd strings": _odd,
    "spaces": _in_one_call(_spelled(_spaces)),
    "other literals": _in_one_call(_spelled(_other_literals)),
    "mixed": _in_one_call(_spelled(_mixed)),
    "keys": _in_one_call(_spelled(_bare_keys)),
    "inner quotes": _in_one_call(_with_strings(_inner_quotes, _without_escapes)),
    "lost quote": _in_one_call(_of_parts(_lose_a_quote)),
    "brackets": _in_one_call(_of_parts(_miscount_brackets)),
    "commas": _in_one_call(_of_parts(_spoil_a_comma)),
    "backslashes": _in_one_call(_with_strings(lambda _: _BACKSLASHES, _without_escapes)),
    "tags": _lost_tags,
    "together": _together,
    "cut": _cut,
}
