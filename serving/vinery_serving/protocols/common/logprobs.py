"""Single tokens in answers: log-probabilities, token ids, and the tokens' text."""

from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import Any

from vinery_serving.core.events import Token, TopLogprob
from vinery_serving.protocols.common.encoding import Answer

_UNKNOWN = -9999.0  # the value of OpenAI and vLLM for an unknown log-probability
_REPLACED = "\ufffd"  # the text of bytes that are no whole character


class TokenChance(Answer, kw_only=True):
    token: str
    logprob: float | None
    bytes: list[int]


class TokenLogprob(TokenChance, kw_only=True):
    top_logprobs: list[TokenChance]


class CompletionLogprobs(Answer, kw_only=True):
    """The tokens of a completion, or of a chunk, as parallel lists."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class RankedToken(Answer, kw_only=True):
    """The log-probability of a token of the prompt, and its rank; 1 is the most likely."""

    logprob: float | None
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, RankedToken] | None]


def content_logprobs(tokens: Sequence[Token]) -> list[TokenLogprob]:
    """Return the `logprobs.content` of chats, which is the `logprobs` of Responses."""
    return [
        TokenLogprob(
            token=token.text,
            logprob=_known(token.logprob),
            bytes=list(token.raw),
            top_logprobs=[
                TokenChance(token=other.text, logprob=_known(other.logprob), bytes=list(other.raw))
                for other in token.others
            ],
        )
        for token in tokens
    ]


def _known(logprob: float | None) -> float:
    return _UNKNOWN if logprob is None else logprob


class TextLogprobs:
    """The `logprobs` of completions: parallel lists. One object for each choice of a stream,
    because `text_offset` counts on from one delta to the next."""

    def __init__(self, num_chars_before: int = 0) -> None:
        """`num_chars_before`: the `text_offset` of the first token."""
        self._num_chars = num_chars_before
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def of(self, tokens: Sequence[Token]) -> CompletionLogprobs:
        return CompletionLogprobs(
            tokens=[_name(token) for token in tokens],
            token_logprobs=[token.logprob for token in tokens],
            top_logprobs=[_others_by_text(token) for token in tokens],
            text_offset=[self._offset(token.raw) for token in tokens],
        )

    def _offset(self, raw: bytes) -> int:
        """Return the number of characters before a token. A token that begins inside of a
        character has the offset of that character. Invalid bytes count as U+FFFD."""
        is_continued = not raw or raw[0] & 0xC0 == 0x80
        if not is_continued:
            self._num_chars += len(self._decoder.decode(b"", final=True))
        offset = self._num_chars
        self._num_chars += len(self._decoder.decode(raw))
        return offset


def _others_by_text(token: Token) -> dict[str, float] | None:
    """Include the sampled token, as OpenAI does, even if it is not among the most likely."""
    if token.logprob is None:
        return None
    by_text: dict[str, float] = {}
    for other in token.others:
        by_text.setdefault(_name(other), other.logprob)
    by_text.setdefault(_name(token), token.logprob)
    return by_text


def _name(token: Token | TopLogprob) -> str:
    """The text, or as in OpenAI's answers the bytes of a part of a character, `bytes:\\xf0\\x9f`:
    the texts of all parts are equal."""
    try:
        _ = token.raw.decode() if _REPLACED in token.text else ""
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.raw)
    return token.text


def prompt_logprobs(tokens: Sequence[Token]) -> PromptLogprobs:
    """Return vLLM's `prompt_logprobs`: for each token of the prompt an object by token id, with
    the token itself first; None for the first token, which has no log-probability."""
    return [None if token.logprob is None else _ranked(token) for token in tokens]


def _ranked(token: Token) -> dict[str, RankedToken]:
    others = sorted(token.others, key=lambda other: -other.logprob)
    ranks: list[tuple[Token | TopLogprob, int | None]] = [(token, token.rank)]
    ranks += [(other, rank) for rank, other in enumerate(others, start=1)]
    entries: dict[str, RankedToken] = {}
    for each, rank in ranks:
        entry = RankedToken(logprob=each.logprob, rank=rank, decoded_token=each.text)
        entries.setdefault(str(each.id), entry)
    return entries


def prompt_tokens(token_ids: Sequence[int], text: str) -> dict[str, Any]:
    """Return FastDeploy's members of `return_token_ids` for the prompt. vLLM has
    `prompt_token_ids` too, in the same or another object."""
    return {"prompt_token_ids": token_ids, "prompt_tokens": text}


def completion_tokens(token_ids: Sequence[int], text: str) -> dict[str, Any]:
    """Return FastDeploy's members of `return_token_ids` for the answer. `text` includes special
    tokens, reasoning and tool calls. vLLM's name is `token_ids`."""
    return {"completion_token_ids": token_ids, "completion_tokens": text}
