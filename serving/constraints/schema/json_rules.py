"""The rules of JSON itself, and the small expressions that all schemas share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from serving.constraints.schema import regular
from serving.constraints.schema.ebnf import EMPTY, NEVER, Chars, Expr, Ref, Repeat, Text, alt, seq
from serving.constraints.schema.pattern import fully
from serving.constraints.schema.vocabulary import TYPES

COMMA: Final = seq(Text(","), Ref("sp"))
COLON: Final = seq(Text(":"), Ref("sp"))
ANY_MEMBER: Final = seq(Ref("string"), COLON, Ref("value"))


def basics(blank: str) -> Iterator[tuple[str, Expr]]:
    """The rules by their names; `blank` may stand after a comma or a colon."""
    digit, hexadecimal = _set("0-9"), _set("0-9A-Fa-f")
    # Half a surrogate pair is no character, and a whole one is better written as itself.
    code = alt(
        (
            seq(_set("0-9A-CE-Fa-ce-f"), Repeat(hexadecimal, 3, 3)),
            seq(_set("Dd"), _set("0-7"), Repeat(hexadecimal, 2, 2)),
        )
    )
    yield "sp", Repeat(Text(blank), 0, 1) if blank else EMPTY
    yield "char", alt((Chars(regular.RAW_IN_JSON), seq(Text("\\"), Ref("escape"))))
    yield "escape", alt((_set(r'"/bfnrt\\'), seq(Text("u"), code)))
    control = seq(Text("u00"), _set("01"), hexadecimal)
    yield "special", seq(Text("\\"), alt((_set(r'"bfnrt\\'), control)))
    yield "string", seq(Text('"'), Repeat(Ref("char"), 0, None), Text('"'))
    yield "natural", alt((Text("0"), seq(_set("1-9"), Repeat(digit, 0, 14))))
    yield "integer", seq(Repeat(Text("-"), 0, 1), Ref("natural"))
    fraction = seq(Text("."), Repeat(digit, 1, 16))
    exponent = seq(_set("Ee"), Repeat(_set(r"+\-"), 0, 1), Repeat(digit, 1, 2))
    yield "positive", seq(Ref("natural"), Repeat(fraction, 0, 1), Repeat(exponent, 0, 1))
    yield "number", seq(Repeat(Text("-"), 0, 1), Ref("positive"))
    yield "boolean", alt((Text("true"), Text("false")))
    yield "null", Text("null")
    yield "value", alt(Ref(kind) for kind in TYPES if kind != "integer")
    yield "object", seq(Text("{"), some_of(ANY_MEMBER, 0, None, is_first=True), Text("}"))
    yield "array", seq(Text("["), some_of(Ref("value"), 0, None, is_first=True), Text("]"))


def _set(members: str) -> Expr:
    """A set of characters, as regular expressions write it between brackets."""
    found = fully(f"[{members}]")
    assert isinstance(found, regular.Chars)
    return Chars(found.intervals)


def some_of(part: Expr, least: int, most: int | None, *, is_first: bool) -> Expr:
    """`part` so many times, with commas between, and before the first unless `is_first`."""
    if most is not None and most < least:
        return NEVER
    following = seq(COMMA, part)
    if not is_first:
        return Repeat(following, least, most)
    if most == 0:
        return EMPTY
    top = None if most is None else most - 1
    whole = seq(part, Repeat(following, max(0, least - 1), top))
    return whole if least else Repeat(whole, 0, 1)


def json_text(text: str) -> Text:
    """A JSON string."""
    return Text(json.dumps(text, ensure_ascii=False))
