"""Single tokens with their log-probabilities, and the options that concern single tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """A vocabulary token that the model could generate at one position."""

    id: int
    text: str  # `raw` decoded; U+FFFD for bytes that are no whole character
    raw: bytes  # the token's own bytes, perhaps a part of a character
    logprob: float  # natural logarithm


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a prompt or an answer, with its alternatives.

    `logprob` and `rank` are None for the first token of a prompt: no token precedes it.
    """

    id: int
    text: str
    raw: bytes
    logprob: float | None  # natural logarithm
    rank: int | None  # 1: the most likely token of this position
    others: tuple[TopLogprob, ...] = ()  # the most likely first


def without_leading_spaces(token: Token, count: int) -> Token:
    """Return `token` without its first `count` spaces, for the first token of a text. Many
    tokenizers write a space there that the text does not have."""
    return replace(token, raw=token.raw[count:], text=token.text.removeprefix(" " * count))


@dataclass(frozen=True, slots=True)
class LogprobsOptions:
    """The log-probabilities that the client wants. They describe the model's own
    distribution, unless `is_temperature_scaled` or `is_top_p_normalized` is set."""

    # Alternatives for each token of the answer. None: no log-probabilities.
    num_top: int | None = None
    # Alternatives for each token of the prompt. None: no log-probabilities.
    num_top_of_prompt: int | None = None
    # Tokens to report at each position, whatever their rank.
    token_ids: tuple[int, ...] = ()
    # Divide the logits by the temperature first.
    is_temperature_scaled: bool = False
    # Exclude the tokens that `top_p` excludes.
    is_top_p_normalized: bool = False
    # Write tokens as `token_id:7` instead of their text.
    tokens_as_ids: bool = False


@dataclass(frozen=True, slots=True)
class Steering:
    """The client's changes to the logits. Token ids are unchecked: only the model's
    tokenizer knows the vocabulary."""

    bias: tuple[tuple[int, float], ...] = ()  # (token id, addend to its logit)
    bad_words: tuple[str, ...] = ()
    bad_word_ids: tuple[tuple[int, ...], ...] = ()
    allowed_ids: tuple[int, ...] = ()  # empty: all
    # Arguments for the administrator's logits processors. None: they do not run.
    processor_args: Mapping[str, Any] | None = None
    # The client's name for these arguments, for error messages.
    processor_param: str = "logits_processors_args"

    @property
    def first_field(self) -> str | None:
        """The name of the first request field that is set. None: no field is set."""
        fields = {
            "logit_bias": self.bias,
            "bad_words": self.bad_words,
            "bad_words_token_ids": self.bad_word_ids,
            "allowed_token_ids": self.allowed_ids,
            self.processor_param: self.processor_args,
        }
        return next((name for name, value in fields.items() if value), None)


# The values of requests that set none of these options.
NO_LOGPROBS: Final = LogprobsOptions()
UNSTEERED: Final = Steering()
