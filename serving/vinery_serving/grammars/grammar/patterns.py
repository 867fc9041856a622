"""Regular expressions as regular languages: ECMA 262's, which JSON Schema uses, as far as they are
regular. The usual notation of Python and PCRE is the same. Assertions and back references describe
no regular language."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from vinery_serving.core.field_limits import PATTERN
from vinery_serving.grammars.grammar.languages import (
    ANYTHING,
    EMPTY,
    Chars,
    Intervals,
    Language,
    NotRegular,
    cat,
    inverted,
    merged,
    times,
    union,
)

_MAX_TIMES: Final = 10_000
_MAX_NESTING: Final = 50
# Larger sets are whole scripts: only their ASCII letters get a second case.
_MAX_CASELESS: Final = 1000

_DIGITS: Final[Intervals] = ((48, 57),)
_WORD: Final[Intervals] = ((48, 57), (65, 90), (95, 95), (97, 122))
# ECMA 262: WhiteSpace and LineTerminator.
_SPACE: Final[Intervals] = (
    *((9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
_NEWLINES: Final[Intervals] = ((10, 10), (13, 13), (0x2028, 0x2029))
_CLASSES: Final = {
    "d": _DIGITS,
    "D": inverted(_DIGITS),
    "w": _WORD,
    "W": inverted(_WORD),
    "s": _SPACE,
    "S": inverted(_SPACE),
}
_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
SHORT_QUANTIFIERS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_QUANTIFIER: Final = re.compile(r"\*|\+|\?|\{(\d+)(?:(,)(\d*))?\}")
_HEX: Final = {
    "x": re.compile(r"[0-9a-fA-F]{2}"),
    "u": re.compile(r"[0-9a-fA-F]{4}|\{[0-9a-fA-F]{1,6}\}"),
}
_NAMED_GROUP: Final = re.compile(r"\(\?P?<[A-Za-z_]\w*>")


class InvalidPattern(Exception):
    """A text that is not a regular expression. The message is the reason."""


@dataclass(frozen=True, slots=True)
class _Branch:
    body: Language
    is_start_anchored: bool
    is_end_anchored: bool


# A schema is checked with the same patterns that it is translated with.
@lru_cache(maxsize=64)
def search_language(pattern: str) -> Language:
    """Return the texts in which the pattern is found somewhere, as JSON Schema means it. Raises
    `InvalidPattern` or `NotRegular`."""
    return union(
        cat(
            EMPTY if branch.is_start_anchored else ANYTHING,
            branch.body,
            EMPTY if branch.is_end_anchored else ANYTHING,
        )
        for branch in _Parser(pattern).pattern()
    )


def fullmatch_language(
    pattern: str, *, is_caseless: bool = False, dot: Intervals | None = None
) -> Language:
    """Return the texts that the pattern matches from start to end. Anchors change nothing.
    `is_caseless`: ignore the case of letters. `dot`: the characters that a dot matches; None: all
    except line ends. Raises `InvalidPattern` or `NotRegular`."""
    parser = _Parser(pattern, is_caseless=is_caseless, dot=dot)
    return union(branch.body for branch in parser.pattern())


def caseless(intervals: Intervals) -> Intervals:
    """Return the characters and their letters in the other case. Of an interval of more than
    1,000 characters only the ASCII letters count."""
    found = [intervals]
    for first, last in intervals:
        codes = range(first, last + 1)
        if len(codes) > _MAX_CASELESS:
            codes = range(max(first, 65), min(last, 122) + 1)
        swapped = (chr(code).swapcase() for code in codes)
        found += [((ord(each), ord(each)),) for each in swapped if len(each) == 1]
    return merged(*found)


class _Parser:
    def __init__(
        self, pattern: str, *, is_caseless: bool = False, dot: Intervals | None = None
    ) -> None:
        if len(pattern) > PATTERN.value:
            raise NotRegular(f"it is longer than {PATTERN.value} characters")
        self._text = pattern
        self._dot = inverted(_NEWLINES) if dot is None else dot
        self._is_caseless = is_caseless
        self._at = 0
        self._depth = 0

    def pattern(self) -> list[_Branch]:
        """Return the branches of the whole pattern. Raises `InvalidPattern` or `NotRegular`."""
        found = self._branches()
        if self._at < len(self._text):
            raise self._invalid("a closing parenthesis has no opening one")
        return found

    def _branches(self) -> list[_Branch]:
        found = [self._branch()]
        while self._take("|"):
            found.append(self._branch())
        return found

    def _branch(self) -> _Branch:
        starts = ends = False
        while self._take("^"):
            starts = True
        parts = []
        while self._peek() not in ("", "|", ")", "$"):
            parts.append(self._quantified(self._atom()))
        while self._take("$"):
            ends = True
        if self._peek() not in ("", "|", ")"):
            raise NotRegular("it has an anchor that is not at its start or end")
        return _Branch(cat(*parts), starts, ends)

    def _quantified(self, part: Language) -> Language:
        quantifier = _QUANTIFIER.match(self._text, self._at)
        if quantifier is None:
            return part
        self._at = quantifier.end()
        _ = self._take("?")  # a lazy quantifier matches the same texts
        if self._peek() in ("*", "+") or _QUANTIFIER.match(self._text, self._at):
            raise self._invalid("a quantifier follows a quantifier")
        if (short := quantifier[0]) in SHORT_QUANTIFIERS:
            return times(part, *SHORT_QUANTIFIERS[short])
        least = int(quantifier[1])
        most: int | None = least
        if quantifier[2]:
            most = int(quantifier[3]) if quantifier[3] else None
        if most is not None and most < least:
            raise self._invalid("the bounds of a repetition are reversed")
        if max(least, most or 0) > _MAX_TIMES:
            raise NotRegular(f"it repeats something more than {_MAX_TIMES} times")
        return times(part, least, most)

    def _atom(self) -> Language:
        character = self._next()
        match character:
            case "(":
                return self._group()
            case "[":
                return Chars(self._set())
            case ".":
                return Chars(self._dot)
            case "\\":
                return Chars(self._cased(self._escape(is_in_set=False)))
            case "^":
                raise NotRegular("it has an anchor that is not at its start or end")
            case "*" | "+" | "?":
                raise self._invalid("there is nothing to repeat")
        return Chars(self._cased(((ord(character), ord(character)),)))

    def _cased(self, intervals: Intervals) -> Intervals:
        return caseless(intervals) if self._is_caseless else intervals

    def _group(self) -> Language:
        if self._peek() == "?":
            self._group_mark()
        self._depth += 1
        if self._depth > _MAX_NESTING:
            raise NotRegular(f"its groups nest more than {_MAX_NESTING} levels")
        branches = self._branches()
        if not self._take(")"):
            raise self._invalid("a parenthesis is not closed")
        self._depth -= 1
        if any(each.is_start_anchored or each.is_end_anchored for each in branches):
            raise NotRegular("it has an anchor inside a group")
        return union(branch.body for branch in branches)

    def _group_mark(self) -> None:
        named = _NAMED_GROUP.match(self._text, self._at - 1)
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif named is not None:
            self._at = named.end()
        elif self._text.startswith(("?=", "?!", "?<=", "?<!"), self._at):
            raise NotRegular("it uses lookahead or lookbehind")
        else:
            raise NotRegular("it has a group with flags")

    def _set(self) -> Intervals:
        is_negated = self._take("^")
        found: list[Intervals] = []
        while not self._take("]"):
            start = self._set_member()
            is_range = self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in "]"
            if not is_range:
                found.append(start)
                continue
            self._next()
            end = self._set_member()
            if not (_is_single(start) and _is_single(end)) or end[0][0] < start[0][0]:
                raise self._invalid("a range of characters is reversed")
            found.append(((start[0][0], end[0][0]),))
        chosen = self._cased(merged(*found))
        # Inverted twice: without surrogates.
        return inverted(chosen if is_negated else inverted(chosen))

    def _set_member(self) -> Intervals:
        character = self._next(missing="a bracket is not closed")
        if character == "\\":
            return self._escape(is_in_set=True)
        return ((ord(character), ord(character)),)

    def _escape(self, *, is_in_set: bool) -> Intervals:
        character = self._next(missing="it ends with a backslash")
        if character in _CLASSES:
            return _CLASSES[character]
        if character == "b" and is_in_set:
            return ((8, 8),)
        if character in _HEX:
            code = self._hex(character)
        elif character in _CONTROLS:
            code = _CONTROLS[character]
        elif character in "bB" or character in "123456789k":
            raise NotRegular("it has a word boundary or a back reference")
        elif character in "pP":
            raise NotRegular("it uses a Unicode property")
        elif character.isalnum():
            raise self._invalid(f"\\{character} is not a known escape")
        else:
            code = ord(character)
        return ((code, code),)

    def _hex(self, kind: str) -> int:
        found = _HEX[kind].match(self._text, self._at)
        if found is None:
            raise self._invalid(f"\\{kind} needs hexadecimal digits")
        self._at = found.end()
        code = int(found[0].strip("{}"), 16)
        if code > 0x10FFFF:
            raise self._invalid("a code point is too large")
        return code

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self, missing: str = "it ends too early") -> str:
        character = self._peek()
        if not character:
            raise self._invalid(missing)
        self._at += 1
        return character

    def _take(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._at += 1
        return True

    def _invalid(self, reason: str) -> InvalidPattern:
        return InvalidPattern(f"{reason}, at character {self._at}")


def _is_single(intervals: Intervals) -> bool:
    return len(intervals) == 1 and intervals[0][0] == intervals[0][1]
