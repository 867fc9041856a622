"""The `text_offset` of a completion's tokens."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.core.events import (
    Completed,
    Finished,
    FinishReason,
    Started,
    TextDelta,
    Token,
    TokenCounts,
    TopLogprob,
)
from vinery_serving.core.request import Endpoint
from vinery_serving.protocols.common.encoding import TextLogprobs

from .clients import payloads
from .exchanges import answered, exchange, streamed


def tokens_of(*parts: bytes) -> list[Token]:
    return [Token(at, "?", part, logprob=-1.0, rank=1) for at, part in enumerate(parts)]


def test_each_part_of_a_character_has_a_name_of_its_own() -> None:
    parts = [b"\xf0\x9f", b"\xf0", b"\x98\x80", "\ufffd".encode(), b"a"]
    others = [
        TopLogprob(at, raw.decode(errors="replace"), raw, -at) for at, raw in enumerate(parts)
    ]
    token = Token(0, "\ufffd", parts[0], logprob=0.0, rank=1, others=tuple(others))
    by_number = Token(7, "token_id:7", b"\xf0", logprob=0.0, rank=1)

    found = TextLogprobs().of([token, by_number])

    names = [r"bytes:\xf0\x9f", r"bytes:\xf0", r"bytes:\x98\x80", "\ufffd", "a"]
    assert [*(found.top_logprobs[0] or ())] == names
    assert found.tokens == [names[0], "token_id:7"]


def offsets(
    tokens: list[Token], batch_size: int, prompt_chars: tuple[int, ...] = ()
) -> list[list[int]]:
    """Return the offsets of the body, and of a stream with `batch_size` tokens in a delta."""
    deltas = [
        TextDelta(0, "x", tuple(tokens[at : at + batch_size]))
        for at in range(0, len(tokens), batch_size)
    ]
    started = Started(prompt_chars=prompt_chars)
    events = [started, *deltas, Finished(0, FinishReason.STOP), Completed(TokenCounts(), at=0)]
    options: dict[str, Any] = {"logprobs": 1}
    whole = answered(exchange(Endpoint.COMPLETIONS, **options), events)
    chunks = payloads(streamed(exchange(Endpoint.COMPLETIONS, stream=True, **options), events))
    returned = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"]]
    in_stream = [at for each in returned if each is not None for at in each["text_offset"]]
    return [whole["choices"][0]["logprobs"]["text_offset"], in_stream]


@given(st.text("aé中🍇 ", max_size=8), st.data(), st.integers(1, 4))
def test_the_offset_of_a_token_is_the_character_in_which_it_begins(
    text: str, data: st.DataObject, batch_size: int
) -> None:
    raw = text.encode()
    cuts = data.draw(st.sets(st.integers(0, len(raw))))
    borders = sorted({0, len(raw), *cuts})
    owners = [at for at, character in enumerate(text) for _ in character.encode()]

    returned = offsets(tokens_of(*(raw[start:end] for start, end in pairwise(borders))), batch_size)

    assert returned == [[owners[start] for start in borders[:-1]]] * 2


@table(
    "parts, expected",
    [
        # The part of an incomplete character is shown as one character, and counts as one.
        ([b"a", b"\xf0\x9f", b"b", b"c"], [0, 1, 2, 3]),
        ([b"\x82", b"e"], [0, 1]),
        ([b"\xf0", b"\xf0\x9f\x8d\x87", b"!"], [0, 1, 2]),
        # A token without text, such as the end token.
        ([b"ab", b""], [0, 2]),
        ([b"\xf0\x9f", b"", b"\x8d\x87", b"!"], [0, 0, 0, 1]),
    ],
)
@table("batch_size", [1, 9])
def test_broken_characters_and_empty_tokens_have_offsets_too(
    parts: list[bytes], expected: list[int], batch_size: int
) -> None:
    assert offsets(tokens_of(*parts), batch_size) == [expected] * 2
