"""How much work a grammar is, counted in its text: the same on any machine at any time.

XGrammar tries the whole vocabulary at each position where characters may follow. It writes out up
to 128 repetitions of them, so positions multiply.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from vinery_serving.transport.messages import GrammarSpec

# Tokens that are tried. A position of any characters takes half a millisecond with 3,000 tokens.
_MAX_TRIES: Final = 6_000_000
_MAX_WRITTEN_OUT: Final = 128
# What is longer is as much work as its beginning.
_MAX_CHARS: Final = 200_000
# Strings, sets, escapes, counts, groups, and characters or names.
_TOKEN: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|\\.|\{(\d+),?(\d*)\}|[()]|[\w.-]+', re.DOTALL
)


def is_too_much(grammar: GrammarSpec, vocab_size: int) -> bool:
    """Whether the work exceeds its fixed budget."""
    source: Any = grammar.source
    try:
        source = msgspec.json.decode(source) if grammar.kind == "structural_tag" else source
    except msgspec.DecodeError:
        return False
    return sum(map(_num_positions, _texts(source))) * vocab_size > _MAX_TRIES


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:_MAX_CHARS]
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _num_positions(text: str) -> int:
    groups, newest = [0], 0
    for token in _TOKEN.finditer(text):
        least, most = token.groups()
        if token[0] == "(":
            groups.append(0)
            newest = 0
        elif token[0] == ")" and len(groups) > 1:
            newest = groups.pop()
            groups[-1] += newest
        elif least is not None:
            num_copies = min(int(most or least), _MAX_WRITTEN_OUT)
            groups[-1] += newest * (num_copies - 1)
            newest *= num_copies
        else:
            newest = 1
            groups[-1] += newest
    return sum(groups)
