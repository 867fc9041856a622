"""Redaction of texts by built-in rules and by literal texts.

Every rule takes time proportional to the text: patterns have possessive or bounded repeats, and
literals use `str.find`. Users cannot give regular expressions, because Python's may need
exponential time. When in doubt, a rule redacts too much.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from django.core.exceptions import ValidationError

MASK: Final = "█████"
MAX_RULES: Final = 20
MAX_LITERAL: Final = 200
# So much is redacted at the end of a truncated text, because a literal may be cut there.
_TRUNCATED: Final = MAX_LITERAL + 56

Span = tuple[int, int]

_EMAIL: Final = re.compile(r"(?<![\w.+%'-])[\w.+%'-]++@[\w-]++(?:\.[\w-]++)++")
# Groups of at least three digits, as on payment cards.
_CARD: Final = re.compile(r"\d{3,}+(?:[ -]\d{3,}+)*+", re.ASCII)
_PHONE: Final = re.compile(r"[+(\d][\d ().\-/]*+", re.ASCII)
_GROUP: Final = "[0-9A-Fa-f]{1,4}"
_GROUPS: Final = f"{_GROUP}(?::{_GROUP}){{0,6}}"
_IP: Final = re.compile(
    r"\d{1,3}(?:\.\d{1,3}){3}"
    rf"|(?<!\w)(?:{_GROUPS}::(?:{_GROUPS})?|::{_GROUPS}|(?:{_GROUP}:){{7}}{_GROUP})",
    re.ASCII,
)
_WORD: Final = re.compile(r"[\w+=-]{20,}+", re.ASCII)
# What stands behind such words, and a private key.
_SECRET: Final = re.compile(
    r"(?:(?:bearer|basic)\s{1,4}|(?:password|passwd|secret|token|api[ _-]?key)"
    r"\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?)(?P<named>[^\s\"',;\\]{4,}+)"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*+",
    re.IGNORECASE,
)


def _emails(text: str) -> Iterator[Span]:
    return (found.span() for found in _EMAIL.finditer(text))


def _cards(text: str) -> Iterator[Span]:
    for found in _CARD.finditer(text):
        if sum(map(str.isdigit, found[0])) >= 13:
            yield found.span()


def _phones(text: str) -> Iterator[Span]:
    for found in _PHONE.finditer(text):
        number = found[0].rstrip(" ().-/")
        num_digits = sum(map(str.isdigit, number))
        if number[:1].isdigit() and text[max(0, found.start() - 1) : found.start()].isalnum():
            continue
        if num_digits >= 7 and (num_digits < len(number) or number.startswith("0")):
            yield found.start(), found.start() + len(number)


def _addresses(text: str) -> Iterator[Span]:
    return (found.span() for found in _IP.finditer(text))


def _secrets(text: str) -> Iterator[Span]:
    for found in _WORD.finditer(text):
        if any(map(str.isdigit, found[0])) and any(map(str.isalpha, found[0])):
            yield found.span()
    for found in _SECRET.finditer(text):
        yield found.span("named") if found["named"] else found.span()


BUILT_IN: Final[Mapping[str, Callable[[str], Iterator[Span]]]] = {
    "email": _emails,
    "card": _cards,
    "phone": _phones,
    "ip": _addresses,
    "secret": _secrets,
}


def check_redactions(value: object) -> None:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValidationError('Give a list of texts, such as ["email", "Project Nightingale"].')
    if len(value) > MAX_RULES:
        raise ValidationError(f"Give at most {MAX_RULES} entries.")
    for each in value:
        if not each.strip() or len(each) > MAX_LITERAL:
            raise ValidationError(f"An entry has 1 to {MAX_LITERAL} characters, not only blanks.")
        if MASK[0] in each or "\0" in each:
            raise ValidationError(f"An entry has neither {MASK[0]} nor a NUL in it.")


class Redactor:
    def __init__(self, rules: Iterable[str], spared: str = "") -> None:
        """`spared` is a whole text that the built-in rules do not redact."""
        names = set(rules)
        self._spared = spared
        self._built_in = [find for name, find in BUILT_IN.items() if name in names]
        literals = names - set(BUILT_IN)
        self._literals = {folded(form) for each in literals for form in _forms(each)}

    def text(self, text: str) -> str:
        return self.parts([text])[0]

    def number(self, number: float) -> float | str:
        text = str(number)
        found = self._spans(text) if isinstance(number, int) else self._of_literals(text)
        return MASK if any(found) else number

    def parts(self, parts: Sequence[str], *, is_truncated: bool = False) -> list[str]:
        """Redact consecutive parts of one text, which is searched as a whole. A mask is in the part
        where its span begins. `is_truncated`: the end of the text is missing."""
        text = "".join(parts)
        spans = list(self._spans(text))
        if is_truncated and text:
            spans.append((max(0, len(text) - _TRUNCATED), len(text)))
        if not spans:
            return list(parts)
        return list(_masked(parts, _merged(spans)))

    def _spans(self, text: str) -> Iterator[Span]:
        if text != self._spared:
            for find in self._built_in:
                yield from find(text)
        yield from self._of_literals(text)

    def _of_literals(self, text: str) -> Iterator[Span]:
        if not self._literals:
            return
        haystack = folded(text)
        for literal in self._literals:
            at = haystack.find(literal)
            while at >= 0:
                yield at, at + len(literal)
                at = haystack.find(literal, at + len(literal))


def folded(text: str) -> str:
    """The text in lower case with the same number of characters, so that indexes stay valid."""
    short = text.casefold()
    if len(short) == len(text):
        return short
    return "".join(low if len(low := each.casefold()) == 1 else each for each in text)


def _forms(literal: str) -> set[str]:
    """The literal, and its escaped forms in JSON, such as the arguments of tool calls."""
    escaped = {json.dumps(literal, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)}
    return {literal, *escaped}


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _masked(parts: Sequence[str], spans: Sequence[Span]) -> Iterator[str]:
    at = first = 0
    for part in parts:
        end = at + len(part)
        while first < len(spans) and spans[first][1] <= at:
            first += 1
        kept, done, number = [], at, first
        while number < len(spans) and spans[number][0] < end:
            start, stop = spans[number]
            if start >= at:
                kept += [part[done - at : start - at], MASK]
            done = max(done, min(stop, end))
            number += 1
        yield "".join([*kept, part[done - at :]])
        at = end
