"""The shapes in which the protocols tell log-probabilities."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence

from serving.core.logprobs import Token, TopLogprob

# What other servers write where nothing can be told.
_UNKNOWN = -9999.0


def content_logprobs(tokens: Sequence[Token]) -> list[dict[str, object]]:
    """Chat's `logprobs.content`, and Responses' `logprobs`."""
    return [
        {**_chance(token), "top_logprobs": [_chance(other) for other in token.others]}
        for token in tokens
    ]


def _chance(token: Token | TopLogprob) -> dict[str, object]:
    logprob = _UNKNOWN if token.logprob is None else token.logprob
    return {"token": token.text, "logprob": logprob, "bytes": list(token.raw)}


class TextLogprobs:
    """Completions' `logprobs`: parallel lists, with the place of each token in the text.

    One for each choice of a stream, so that the places go on.
    """

    def __init__(self) -> None:
        self._places = _Places()

    def of(self, tokens: Sequence[Token]) -> dict[str, object]:
        """Of the choice's next tokens."""
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [_others_by_text(token) for token in tokens],
            "text_offset": [self._places.next(token.raw) for token in tokens],
        }


class _Places:
    """Counts the characters before each token. One that begins inside of a character has the
    place of that character; bytes that never become one are shown as U+FFFD, and counted."""

    def __init__(self) -> None:
        self._num_chars = 0
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def next(self, raw: bytes) -> int:
        is_continued = not raw or raw[0] & 0xC0 == 0x80
        if not is_continued:
            self._num_chars += len(self._decoder.decode(b"", final=True))
        place = self._num_chars
        self._num_chars += len(self._decoder.decode(raw))
        return place


def _others_by_text(token: Token) -> Mapping[str, float] | None:
    """With the token itself, as OpenAI does: one more than were asked for when it was not
    among the likeliest."""
    if token.logprob is None:
        return None
    by_text: dict[str, float] = {}
    for other in token.others:
        by_text.setdefault(other.text, other.logprob)
    by_text.setdefault(token.text, token.logprob)
    return by_text


def prompt_logprobs(tokens: Sequence[Token]) -> list[dict[str, object] | None]:
    """vLLM's `prompt_logprobs`: for each token of the prompt an object by token id, with the
    token itself first; null for the first token, which follows nothing."""
    return [None if token.logprob is None else _ranked(token) for token in tokens]


def _ranked(token: Token) -> dict[str, object]:
    others = sorted(token.others, key=lambda other: -other.logprob)
    told: dict[str, object] = {
        str(token.id): {"logprob": token.logprob, "rank": token.rank, "decoded_token": token.text}
    }
    for rank, other in enumerate(others, start=1):
        entry = {"logprob": other.logprob, "rank": rank, "decoded_token": other.text}
        told.setdefault(str(other.id), entry)
    return told
