"""What is blacked out of a text: built-in rules by their names, and literal texts.

Each takes time in proportion to the text, whatever the text is: patterns never give back what
they have taken (possessive repeats) or are bounded, and literals are found by `str.find`. Users
write no regular expressions, because Python's can be made to take for ever. When in doubt, a
rule takes too much.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from django.core.exceptions import ValidationError

MASK: Final = "█████"
MAX_RULES: Final = 20
MAX_LITERAL: Final = 200
# Of a text whose end is missing so much is blacked out, lest half of a literal stay.
_TORN: Final = MAX_LITERAL + 56

Span = tuple[int, int]

# Each begins with what is looked for quickly, so that texts without it are passed over.
_LOCAL: Final = re.compile(r"[\w.+%'-]")
_DOMAIN: Final = re.compile(r"@[\w-]++(?:\.[\w-]++)++")
# Groups of at least three digits, as they are printed on cards.
_CARD: Final = re.compile(r"\d{3,}+(?:[ -]\d{3,}+)*+", re.ASCII)
_PHONE: Final = re.compile(r"[+(\d][\d ().\-/]*+", re.ASCII)
_IPV4: Final = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}", re.ASCII)
# From the first colon on.
_IPV6: Final = re.compile(r"(?::[0-9A-Fa-f]{0,4}){2,8}")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_WORD: Final = re.compile(r"[\w+=-]{20,}+", re.ASCII)
# What comes before a secret, and what between them.
_NAMES: Final = {
    **dict.fromkeys(("bearer", "basic"), r"\s{1,4}"),
    **dict.fromkeys(
        ("password", "passwd", "secret", "token", "apikey", "api key", "api_key", "api-key"),
        r"\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?",
    ),
}
_NAMED: Final = {
    name: re.compile(between + r"([^\s\"',;\\]{4,}+)") for name, between in _NAMES.items()
}
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*+")


def _emails(text: str) -> Iterator[Span]:
    end_of_last = 0
    for domain in _DOMAIN.finditer(text):
        start = domain.start()
        while start > end_of_last and _LOCAL.match(text, start - 1):
            start -= 1
        if start < domain.start():
            yield start, domain.end()
        end_of_last = domain.end()


def _cards(text: str) -> Iterator[Span]:
    for found in _CARD.finditer(text):
        if sum(map(str.isdigit, found[0])) >= 13:
            yield found.span()


def _phones(text: str) -> Iterator[Span]:
    """Digits alone are a phone number only when they begin as one."""
    for found in _PHONE.finditer(text):
        number = found[0].rstrip(" ().-/")
        num_digits = sum(map(str.isdigit, number))
        if number[:1].isdigit() and text[max(0, found.start() - 1) : found.start()].isalnum():
            continue
        if num_digits >= 7 and (num_digits < len(number) or number.startswith("0")):
            yield found.start(), found.start() + len(number)


def _addresses(text: str) -> Iterator[Span]:
    for found in _IPV4.finditer(text):
        yield found.span()
    for found in _IPV6.finditer(text):
        start, end = found.span()
        first = start
        while start - first < 4 and first and text[first - 1] in _HEX:
            first -= 1
        if text[max(0, first - 1) : first].isalnum():  # the end of a word, as in C++
            first = start
        spans = [(at, stop) for at in (first, start + 1) for stop in (end, end - 1)]
        found_at = next((span for span in spans if _is_address(text[slice(*span)])), None)
        if found_at is not None:
            yield found_at


def _is_address(text: str) -> bool:
    # `::` is one that means none; the rest passes over most of what is no address quickly.
    num_colons = text.count(":")
    if len(text) < 3 or ":::" in text or not (num_colons == 7 or "::" in text):
        return False
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _secrets(text: str) -> Iterator[Span]:
    for found in _WORD.finditer(text):
        word = found[0]
        if any(map(str.isdigit, word)) and any(map(str.isalpha, word)):
            yield found.span()
    low = folded(text)
    for name, secret in _NAMED.items():
        at = low.find(name)
        while at >= 0:
            end = at + len(name)
            if named := secret.match(text, end):
                yield named.span(1)
                end = named.end()  # each character is looked at once
            at = low.find(name, end)
    for found in _PRIVATE_KEY.finditer(text):
        yield found.span()


BUILT_IN: Final[Mapping[str, Callable[[str], Iterator[Span]]]] = {
    "email": _emails,
    "card": _cards,
    "phone": _phones,
    "ip": _addresses,
    "secret": _secrets,
}


def check_redactions(value: object) -> None:
    """Raises ValidationError for what is no list of rules."""
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
    """Blacks out what any of the rules finds."""

    def __init__(self, rules: Iterable[str], spared: str = "") -> None:
        """`spared` is a text that built-in rules leave alone when it is all there is."""
        names = set(rules)
        self._spared = spared
        self._built_in = [find for name, find in BUILT_IN.items() if name in names]
        literals = names - set(BUILT_IN)
        self._literals = {folded(form) for each in literals for form in _forms(each)}

    def text(self, text: str) -> str:
        """The text with a mask for each stretch that was found."""
        return self.pieces([text])[0]

    def number(self, number: float) -> float | str:
        """A number, or a mask for it. Fractions are no numbers of anything."""
        text = str(number)
        found = self._spans(text) if isinstance(number, int) else self._of_literals(text)
        return MASK if any(found) else number

    def pieces(self, pieces: Sequence[str], *, is_torn: bool = False) -> list[str]:
        """Pieces of one text, which is searched as a whole; a mask is in the piece where what
        was found begins. `is_torn`: its end is missing."""
        text = "".join(pieces)
        spans = list(self._spans(text))
        if is_torn and text:
            spans.append((max(0, len(text) - _TORN), len(text)))
        if not spans:
            return list(pieces)
        return list(_masked(pieces, _merged(spans)))

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
    """Without upper case, and with as many characters as before, so that places stay."""
    short = text.casefold()
    if len(short) == len(text):
        return short
    return "".join(low if len(low := each.casefold()) == 1 else each for each in text)


def _forms(literal: str) -> set[str]:
    """As it is, and as JSON inside of a text has it: arguments of tools are such."""
    escaped = {json.dumps(literal, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)}
    return {literal, *escaped}


def _merged(spans: Iterable[Span]) -> list[Span]:
    """In order, those that overlap or touch as one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _masked(pieces: Sequence[str], spans: Sequence[Span]) -> Iterator[str]:
    """Each piece without what lies in spans, and with a mask where one begins in it."""
    at = first = 0
    for piece in pieces:
        end = at + len(piece)
        while first < len(spans) and spans[first][1] <= at:
            first += 1
        kept, place, number = [], at, first
        while number < len(spans) and spans[number][0] < end:
            start, stop = spans[number]
            if start >= at:
                kept += [piece[place - at : start - at], MASK]
            place = max(place, min(stop, end))
            number += 1
        yield "".join([*kept, piece[place - at :]])
        at = end
