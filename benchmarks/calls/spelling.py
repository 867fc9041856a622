"""How a value is spelled: in JSON, in Python, in both, or in Gemma's notation; and what goes wrong.

A spelling is a list of marks (brackets, quotes, commas) and texts, so that one of them can get
lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from random import Random
from typing import Any, Final

Escape = Callable[[str, str], str]


class Kind(Enum):
    """What a part of a spelling is."""

    TEXT = auto()
    OPEN = auto()
    CLOSE = auto()
    QUOTE = auto()
    COMMA = auto()
    COLON = auto()


@dataclass(frozen=True, slots=True)
class Part:
    kind: Kind
    text: str


def json_escape(text: str, _: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def ascii_escape(text: str, _: str) -> str:
    return json.dumps(text)[1:-1]


def python_escape(text: str, quote: str) -> str:
    """As Python writes it between this quote."""
    escaped = json_escape(text, quote)
    return escaped.replace('\\"', '"').replace("'", "\\'") if quote == "'" else escaped


def no_escape(text: str, _: str) -> str:
    return text


JSON_WORDS: Final[Mapping[Any, str]] = {True: "true", False: "false", None: "null"}
PYTHON_WORDS: Final[Mapping[Any, str]] = {True: "True", False: "False", None: "None"}


@dataclass(frozen=True, slots=True)
class Notation:
    """Where there are several quotes or words, one is drawn for each value."""

    quotes: tuple[str, ...] = ('"',)
    words: tuple[Mapping[Any, str], ...] = (JSON_WORDS,)
    escape: Escape = json_escape
    comma: str = ", "
    colon: str = ": "
    has_bare_keys: bool = False
    # White space that may be around all marks.
    spaces: tuple[str, ...] = field(default=("",))


JSON: Final = Notation()
PYTHON: Final = Notation(quotes=("'",), words=(PYTHON_WORDS,), escape=python_escape)
GEMMA: Final = Notation(
    quotes=('<|"|>',), escape=no_escape, comma=",", colon=":", has_bare_keys=True
)
FUNCTIONGEMMA: Final = replace(GEMMA, quotes=("<escape>",))


class Speller:
    def __init__(self, notation: Notation, random: Random) -> None:
        self._notation = notation
        self._random = random

    def value(self, value: Any) -> Iterator[Part]:
        match value:
            case dict():
                yield from self._bracketed("{", "}", [self.member(*item) for item in value.items()])
            case list():
                yield from self._bracketed("[", "]", [self.value(item) for item in value])
            case str():
                yield from self._string(value)
            case bool() | None:
                yield Part(Kind.TEXT, self._random.choice(self._notation.words)[value])
            case _:
                yield Part(Kind.TEXT, json.dumps(value))

    def member(self, key: str, value: Any, colon: str | None = None) -> Iterator[Part]:
        """A key and its value. With a `colon` of its own, the key is a name."""
        if colon is not None or (self._notation.has_bare_keys and key.isidentifier()):
            yield Part(Kind.TEXT, key)
        else:
            yield from self._string(key)
        yield Part(Kind.COLON, colon or self._spaced(self._notation.colon))
        yield from self.value(value)

    def separated(self, items: list[Iterator[Part]]) -> Iterator[Part]:
        for index, item in enumerate(items):
            if index:
                yield Part(Kind.COMMA, self._spaced(self._notation.comma))
            yield from item

    def _bracketed(self, begin: str, end: str, items: list[Iterator[Part]]) -> Iterator[Part]:
        yield Part(Kind.OPEN, begin + self._space())
        yield from self.separated(items)
        yield Part(Kind.CLOSE, self._space() + end)

    def _string(self, text: str) -> Iterator[Part]:
        quote = self._random.choice(self._notation.quotes)
        yield Part(Kind.QUOTE, quote)
        yield Part(Kind.TEXT, self._notation.escape(text, quote))
        yield Part(Kind.QUOTE, quote)

    def _spaced(self, mark: str) -> str:
        return f"{self._space()}{mark}{self._space()}"

    def _space(self) -> str:
        return self._random.choice(self._notation.spaces)


def joined(parts: list[Part]) -> str:
    return "".join(part.text for part in parts)
