"""Redaction of texts by built-in rules and by literal texts.

Every rule takes time proportional to the text: patterns have possessive or bounded repeats, and
literals use `str.find`. Users cannot give regular expressions, because Python's may need
exponential time. When in doubt, a rule redacts too much.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from django.core.exceptions import ValidationError

MASK: Final = "█████"
MAX_RULES: Final = 20
MAX_LITERAL: Final = 200
# So much is redacted at the end of a truncated text, because a literal may be cut there.
_TRUNCATED: Final = MAX_LITERAL + 56

Span = tuple[int, int]

# Each pattern begins with characters that are rare, so texts without them are scanned quickly.
_LOCAL: Final = re.compile(r"[\w.+%'-]")
_DOMAIN: Final = re.compile(r"@[\w-]++(?:\.[\w-]++)++")
# Groups of at least three digits, as on payment cards.
_CARD: Final = re.compile(r"\d{3,}+(?:[ -]\d{3,}+)*+", re.ASCII)
_PHONE: Final = re.compile(r"[+(\d][\d ().\-/]*+", re.ASCII)
_IPV4: Final = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}", re.ASCII)
# The part from the first colon on.
_IPV6: Final = re.compile(r"(?::[0-9A-Fa-f]{0,4}){2,8}")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_WORD: Final = re.compile(r"[\w+=-]{20,}+", re.ASCII)
# Words before a secret, and the characters between the word and the secret.
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
    """Phone numbers. Digits without separators count only if they begin with 0."""
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
    # `::` is not redacted; the other conditions quickly exclude most texts that are no address.
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
                end = named.end()  # each character is scanned once
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
    """Replaces what the rules find by `MASK`."""

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
