"""Single tokens and counts of them, as chats and completions tell them."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from serving.protocols.openapi.answers.base import ABSENT, Answer, Count


class TokenChance(Answer):
    """A token that might have stood here."""

    token: str
    logprob: float | None
    bytes: list[int]


class TokenLogprob(TokenChance):
    """A token of the answer."""

    top_logprobs: list[TokenChance]


class ChatLogprobs(Answer):
    """The tokens of a chat's answer, or of a piece of it."""

    content: list[TokenLogprob]
    refusal: None


class TextLogprobs(Answer):
    """The tokens of a completion, or of a piece of it, as parallel lists."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None] | None]
    text_offset: list[int]


class RankedToken(Answer):
    """How likely a token of a prompt was."""

    logprob: float | None
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, RankedToken] | None]


class PromptDetails(Answer):
    """Part of the prompt's tokens."""

    cached_tokens: Count = Field(description="Taken from the prefix cache.")


class CompletionDetails(Answer):
    """Part of the answer's tokens."""

    reasoning_tokens: Count
    accepted_prediction_tokens: Count = ABSENT
    rejected_prediction_tokens: Count = ABSENT


class Usage(Answer):
    """Tokens of the whole request, all its answers together."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


# With `return_token_ids`, as FastDeploy tells them.
PROMPT_TOKENS: Final[Any] = Field(default=ABSENT, description="Their text.")
COMPLETION_TOKENS: Final[Any] = Field(
    default=ABSENT, description="Their text, special tokens included and nothing taken out."
)
