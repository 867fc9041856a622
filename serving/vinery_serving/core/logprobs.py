"""Single tokens with their log-probabilities."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """A vocabulary token that the model could generate at one position."""

    id: int
    text: str  # `raw` decoded; U+FFFD for bytes that are no whole character
    raw: bytes  # the token's own bytes, perhaps a part of a character
    logprob: float  # natural logarithm


@dataclass(frozen=True, slots=True)
class Token:
    id: int
    text: str
    raw: bytes
    # None, as the rank, for the first token of a prompt: no token precedes it.
    logprob: float | None  # natural logarithm
    rank: int | None  # 1: the most likely token of this position
    others: tuple[TopLogprob, ...] = ()  # the most likely first


def without_leading_spaces(token: Token, count: int) -> Token:
    """Return the token without `count` spaces: many tokenizers write spaces before the first
    token that the text does not have."""
    return replace(token, raw=token.raw[count:], text=token.text.removeprefix(" " * count))
