"""Single tokens and how likely they were, for clients that want to look that closely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class TokenChance:
    """A token that stood or stands at some place. `raw` are its own bytes, which may be only
    a part of a character; `text` shows them, broken ones as U+FFFD."""

    id: int
    text: str
    raw: bytes
    logprob: float  # natural logarithm


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a prompt or an answer, with those that might have stood in its place, the
    likeliest first. The first token of a prompt follows nothing: `chance` and `rank` are
    None."""

    id: int
    text: str
    raw: bytes
    logprob: float | None
    rank: int | None  # 1: no other was likelier
    others: tuple[TokenChance, ...] = ()


def without_leading_spaces(token: Token, count: int) -> Token:
    """The first token of a text that lacks the spaces with which its tokens begin: many
    tokenizers drop one, or those of the first token."""
    return replace(token, raw=token.raw[count:], text=token.text.removeprefix(" " * count))


@dataclass(frozen=True, slots=True)
class LogprobsOptions:
    """Which log-probabilities a client wants. They are of the model's own distribution,
    unless one of the switches asks for another."""

    # Of the answer's tokens: how many others with each; None: nothing at all.
    num_top: int | None = None
    # Of the prompt's tokens, likewise.
    num_top_of_prompt: int | None = None
    # Tokens to tell of at each place, whatever their rank.
    token_ids: tuple[int, ...] = ()
    # Divide the logits by the temperature first; leave out what `top_p` cuts off.
    is_temperature_scaled: bool = False
    is_top_p_normalized: bool = False
    # Show a token as `token_id:7` instead of its text.
    tokens_as_ids: bool = False


@dataclass(frozen=True, slots=True)
class Steering:
    """What a client does to the choice of tokens. Token ids are not checked here: only the
    model knows its vocabulary."""

    # (token id, what is added to its logit)
    bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[str, ...] = ()
    bad_word_ids: tuple[tuple[int, ...], ...] = ()
    allowed_ids: tuple[int, ...] = ()  # empty: all
    # Arguments for the administrator's own processors; None: they are not asked.
    processor_args: Mapping[str, Any] | None = None
    processor_param: str = "logits_processors_args"  # what the client calls them

    @property
    def first_field(self) -> str | None:
        """The request's name of the first wish; None when there is none."""
        named = {
            "logit_bias": self.bias,
            "bad_words": self.bad_words,
            "bad_words_token_ids": self.bad_word_ids,
            "allowed_token_ids": self.allowed_ids,
            self.processor_param: self.processor_args,
        }
        return next((name for name, value in named.items() if value), None)


# What nearly all requests want.
NO_LOGPROBS: Final = LogprobsOptions()
UNSTEERED: Final = Steering()
