"""Which fast tokenizers surely encode a small text within milliseconds, and decode any token.

A tokenizer's file has patterns that may backtrack without end, and replacements that may grow a
text without limit. Only what is known to be harmless counts as quick; a worker process encodes with
other tokenizers.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from re import _constants as ops
from re import _parser
from typing import Any, Final

from tokenizers import Tokenizer as RawTokenizer

from vinery_serving.prompting.folder import UnusableFolder

_MAX_GROWTH: Final = 64
_MAX_TOKEN_CHARS: Final = 2**16
_MAX_WORD_CHARS: Final = 200  # WordPiece needs their square
_MAX_POST_BYTES: Final = 2**16
# A repetition up to so often is no loop.
_FEW: Final = 16
_MAX_LOOPS: Final = 2
_MAX_CHOICES: Final = 5  # among them the alternatives of a group
_SINGLE: Final = (ops.LITERAL, ops.NOT_LITERAL, ops.IN, ops.ANY, ops.AT)
_REPEATS: Final = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)
_BODIES: Final[dict[Any, Callable[[Any], Any]]] = {
    ops.BRANCH: lambda value: value[1],
    ops.SUBPATTERN: lambda value: value[-1:],
    ops.ASSERT: lambda value: value[1:],
    ops.ASSERT_NOT: lambda value: value[1:],
    ops.ATOMIC_GROUP: lambda value: [value],
}
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]")
_REPEATED_FLAT: Final = re.compile(r"\((?:\?:)?[^()|]*\)[*+{]")
_READ_OTHERWISE: Final = ("&&", "[:", "}+", "}?")
_PROPERTY: Final = re.compile(r"\\[pP](?:\{\^?\w+\}|[A-Z])")


def check_decoder(raw: RawTokenizer) -> None:
    """Raises `UnusableFolder` for a tokenizer that may write texts without limit."""
    longest = max(map(len, raw.get_vocab(with_added_tokens=True)), default=0)
    if longest > _MAX_TOKEN_CHARS or not _is_harmless(raw.decoder, "decoders"):
        raise UnusableFolder("The tokenizer's decoder may write more text than any model's.")


def is_quick(raw: RawTokenizer) -> bool:
    post = raw.post_processor
    if post is not None and len(post.__getstate__()) > _MAX_POST_BYTES:
        return False
    if getattr(raw.model, "max_input_chars_per_word", 0) > _MAX_WORD_CHARS:
        return False
    return _is_harmless(raw.normalizer, "normalizers") and _is_harmless(
        raw.pre_tokenizer, "pretokenizers"
    )


def _is_harmless(component: Any, members: str) -> bool:
    if component is None:
        return True
    growth = 1.0
    for part in _flat(json.loads(component.__getstate__()), members):
        pattern = part.get("pattern") or {}
        if isinstance(pattern, dict) and "Regex" in pattern and not is_plain(pattern["Regex"]):
            return False
        if part["type"] == "Replace":
            replaced = pattern.get("String") or "a"
            growth *= max(1.0, len(part["content"]) / len(replaced))
        if part["type"] == "Precompiled":
            growth *= _longest_mapped(part["precompiled_charsmap"])
    return growth <= _MAX_GROWTH


def _flat(part: dict[str, Any], members: str) -> Iterator[dict[str, Any]]:
    if part["type"] == "Sequence":
        for each in part[members]:
            yield from _flat(each, members)
    else:
        yield part


def _longest_mapped(charsmap: str) -> int:
    """The length of the longest text that a character becomes: after the size of a table and the
    table come texts that end in zero."""
    data = base64.b64decode(charsmap)
    start = 4 + int.from_bytes(data[:4], "little")
    return max(map(len, data[start:].split(b"\0")))


def is_plain(pattern: str) -> bool:
    """Whether the pattern needs at most the square of a text's length: no loop has another in it or
    alternatives, an alternative has at most two, and nothing must follow the second."""
    # Classes do not matter, only where loops are. Python would join alternatives to a class.
    pattern = _PROPERTY.sub(r"\\w", pattern)
    # Oniguruma reads these otherwise: a sign after `{1,3}` repeats or omits the repetition.
    has_others = any(each in pattern for each in _READ_OTHERWISE)
    num_flat = len(_REPEATED_FLAT.findall(pattern))
    if has_others or num_flat != len(_REPEATED_GROUP.findall(pattern)):
        return False
    try:
        _cost(_parser.parse(pattern))
    except (re.error, OverflowError, RecursionError, FutureWarning, _NotPlain):
        return False
    return True


class _NotPlain(Exception):
    """A part of the pattern may take long."""


def _cost(tree: Any) -> tuple[int, int]:
    """The loops of an alternative, and the parts that may be there or not. Raises `_NotPlain`."""
    num_loops = num_choices = 0
    for kind, value in tree:
        loops, choices, is_optional = 0, 0, False
        if kind in _REPEATS:
            least, most, body = value
            loops, choices = _cost(body)
            width = body.getwidth()
            if loops or (most > 1 and (choices or width[0] != width[1])):
                raise _NotPlain
            loops, is_optional = int(most > _FEW), not least
            choices += most <= _FEW and least != most
        elif kind in _BODIES:
            costs = [_cost(body) for body in _BODIES[kind](value)]
            loops, choices = (max(each) for each in zip(*costs, strict=True))
            choices += kind is ops.BRANCH
        elif kind not in _SINGLE:
            raise _NotPlain
        if num_loops >= _MAX_LOOPS and not is_optional:
            raise _NotPlain
        num_loops, num_choices = num_loops + loops, num_choices + choices
        if num_loops > _MAX_LOOPS or num_choices > _MAX_CHOICES:
            raise _NotPlain
    return num_loops, num_choices
