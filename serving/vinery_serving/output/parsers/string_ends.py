"""Finds the end of a string in a call where quotes lack escapes, or the last quote is missing.

    {"text": "cry "hi" to all", "city": "Paris, "days": 3}

A quote ends a string if the text after it fits: closing brackets, or a comma and another member.
Another quote is text, unless it begins a member: then the string ended before the quote.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

# The most characters that are read ahead after a quote, and held back before a quote.
MAX_AHEAD: Final = 256
MAX_TAIL: Final = 64

_SPACE: Final = " \t\r\n"
_CLOSING_RUN: Final = re.compile(r"[}\])\s]*")
# The pattern of a text, and the pattern of its unfinished beginnings.
_Expected = tuple[re.Pattern[str], re.Pattern[str]]
# The marks of Gemma's notations, and their beginnings.
_MARK: Final = r'<(?:\|"\||escape)>'
_BEGUN_MARK: Final = r"<(?:[|e][^<>]{0,6})?"
_KEY: Final[_Expected] = (
    re.compile(
        r""""(?:[^"\\\n]|\\.)*"\s*:|'(?:[^'\\\n]|\\.)*'\s*:|[\w.\-]+["']?\s*:"""
        rf"|{_MARK}[^<]*{_MARK}\s*:"
    ),
    re.compile(
        r""""(?:[^"\\\n]|\\.)*\\?"?\s*|'(?:[^'\\\n]|\\.)*\\?'?\s*|[\w.\-]*["']?\s*"""
        rf"|{_BEGUN_MARK}|{_MARK}[^<]*(?:{_BEGUN_MARK}|{_MARK}\s*)?"
    ),
)
# A key before a colon or an equals sign.
_NAMED_KEY: Final[_Expected] = (re.compile(_KEY[0].pattern.replace(r"\s*:", r"\s*[:=]")), _KEY[1])
_ITEM: Final[_Expected] = (
    re.compile(r"""["'\[{(\d-]|<[|e]|(?:true|True|false|False|null|None)\s*[,\])}]"""),
    re.compile(r"<?|[TFN]?[a-z]{0,5}\s{0,64}"),
)
_WHOLE_ITEM: Final[_Expected] = (
    re.compile(r""""[^"\n]*"\s*[,\]]|'[^'\n]*'\s*[,\]]"""),
    re.compile(r""""[^"\n]*"?\s*|'[^'\n]*'?\s*"""),
)
_NAME: Final[_Expected] = (re.compile(r"\*\*|[\w.\-]+\s*="), re.compile(r"\*?|[\w.\-]+\s*"))

# The possible end of a value, and the beginning of the next text.
_TAIL: Final = re.compile(r"\s*(?:[}\]),;][\s}\]),;\[{]*)?\Z")
_TAIL_WITH_NAME: Final = re.compile(
    r"\s*(?:[}\]),;][\s}\]),;\[{]*(?:(?<=[,{\s])[\w.\-]+\s*[:=]?\s*)?)?\Z"
)
_LAST_CLOSING: Final = re.compile(r"[\s}\])]*\Z")
_OPENING: Final = {"{": "}", "[": "]", "(": ")"}
_BRACKETS: Final = re.compile(r"[{}\[\]()]")
_SEPARATED_NAME: Final = re.compile(r"[\s}\])]*,\s*[\w.\-]+\s*[:=]\s*")
_COMMENT: Final = re.compile(r"(?<=[\s,])#[^\n]*\n")
_UNFINISHED_COMMENT: Final = re.compile(r"(?<=[\s,])#[^\n]*\Z")
_BLANK: Final = re.compile(r"[\s}\]),;\[{]*")


class Context(Enum):
    """The position of a string: in an object, in an array, or as a named argument."""

    MEMBER = auto()
    ITEM = auto()
    NAMED = auto()


_FOLLOWING: Final = {Context.ITEM: _ITEM, Context.NAMED: _NAME}


@dataclass(frozen=True, slots=True)
class StringContext:
    """The surroundings of a string. `closing`: the closing brackets that the call needs, the
    innermost last. `around_call`: the closing brackets after the call. `tags` end the call or begin
    another call. `has_names`: keys have no quotes. `has_mark`: the quote is a mark that no text
    has. `has_comments`: Python comments may stand between values."""

    context: Context
    closing: str
    tags: tuple[str, ...]
    has_names: bool = False
    around_call: str = ""
    has_mark: bool = False
    has_comments: bool = False

    @property
    def _key(self) -> _Expected:
        return _NAMED_KEY if self.has_names and self.context is not Context.NAMED else _KEY

    @property
    def _following(self) -> _Expected:
        return self._key if self.context is Context.MEMBER else _FOLLOWING[self.context]

    def ends_at(self, text: str, at: int) -> bool | None:
        """Whether the string ends with a quote before this index. None: more text decides."""
        rest = text[at : at + MAX_AHEAD]
        fits = self._fits(self._without_comments(rest) if self.has_comments else rest)
        return len(rest) == MAX_AHEAD if fits is None and len(rest) == MAX_AHEAD else fits

    def begins_member(self, tail: str, text: str, at: int) -> bool | None:
        """Whether a quote at this index begins another member. `tail`: the text before the quote,
        which must have a separator."""
        if not tail.strip():
            return False
        if self.has_names and _SEPARATED_NAME.fullmatch(tail):
            return True
        if not _BLANK.fullmatch(tail):
            return False
        is_item = self.context is Context.ITEM and not tail.strip(f"{_SPACE},")
        begins = _matches(_WHOLE_ITEM if is_item else self._key, text[at : at + MAX_AHEAD])
        return False if begins is None and len(text) - at >= MAX_AHEAD else begins

    def tail_at(self, text: str, start: int, end: int) -> int:
        """Return the first index where the string up to `end` may have ended."""
        pattern = _TAIL_WITH_NAME if self.has_names else _TAIL
        found = pattern.search(text, max(start, end - MAX_TAIL), end)
        assert found is not None
        return found.start()

    def end_before(self, text: str, start: int, end: int, own: Counter[str]) -> tuple[int, bool]:
        """Return the end of a string without its quote, at most `end`, and whether brackets close
        after the string. `own`: the closing brackets that the string before `start` needs. Such
        brackets, and brackets that cannot close here, belong to the string."""
        own = own.copy()
        last = _LAST_CLOSING.search(text, self.tail_at(text, start, end), end)
        assert last is not None
        count_brackets(text[start : last.start()], own)
        first_closing, string_end = last.start(), end
        for at in range(last.start(), end):
            if own[text[at]]:
                own[text[at]] -= 1
                first_closing = at + 1
        open_brackets = iter(self.around_call + self.closing)
        for at in range(end - 1, first_closing - 1, -1):
            if not text[at].isspace() and text[at] not in open_brackets:
                break
            if not text[at].isspace():
                string_end = at
        has_closing = string_end < end
        while string_end > first_closing and text[string_end - 1].isspace():
            string_end -= 1
        return string_end, has_closing

    def _without_comments(self, rest: str) -> str:
        """A comment ends with its line. Text with a tag, or with no end in sight, is no comment."""
        rest_without = _COMMENT.sub("", rest)
        begun = _UNFINISHED_COMMENT.search(rest_without)
        if begun is None or len(rest) == MAX_AHEAD or any(tag in begun[0] for tag in self.tags):
            return rest_without
        return rest_without[: begun.start()]

    def _fits(self, rest: str) -> bool | None:
        bare = rest.lstrip(_SPACE)
        if not bare:
            return None
        if (is_tag := _begins_any(self.tags, bare)) is not False:
            return is_tag
        if bare[0] in "}])":
            return self._fits_closing(bare)
        if bare[0] != ",":
            # A comma may be missing.
            has_gap = self.has_mark or len(bare) < len(rest)
            return _matches(self._following, bare) if has_gap else False
        bare = bare.lstrip(f"{_SPACE},")
        if not bare:
            return None
        return bare[0] in "}])" or _matches(self._following, bare)

    def _fits_closing(self, bare: str) -> bool | None:
        """Whether closing brackets close the value: all open brackets, or with fitting text after
        them."""
        if bare[0] not in self.closing:
            return False
        run = _CLOSING_RUN.match(bare)
        assert run is not None
        num_closed = len(run[0]) - sum(map(str.isspace, run[0]))
        after = bare[run.end() :]
        if not after:
            return None
        if num_closed >= len(self.closing):
            # Quotes that are too many may stand before a tag.
            bare = after.lstrip(f"\"'{_SPACE}")
            return len(bare) == len(after) or (_begins_any(self.tags, bare) if bare else None)
        if after[0] in ",;{<" or (is_tag := _begins_any(self.tags, after)):
            return True
        return None if is_tag is None else _matches(self._key, after)


def count_brackets(text: str, own: Counter[str]) -> None:
    """Add the brackets of a text to `own`, the closing brackets that are still needed."""
    for mark in _BRACKETS.findall(text):
        if mark in _OPENING:
            own[_OPENING[mark]] += 1
        elif own[mark]:
            own[mark] -= 1


def _matches(expected: _Expected, text: str) -> bool | None:
    """Whether `text` begins as expected. None: more text decides."""
    whole, begin = expected
    if whole.match(text):
        return True
    return None if begin.fullmatch(text) else False


def _begins_any(tags: Sequence[str], text: str) -> bool | None:
    """Whether `text` begins with a tag. None: more text decides."""
    if text.startswith(tuple(tags)):
        return True
    return None if any(tag.startswith(text) for tag in tags) else False
