"""The members that several answers have, and errors.

A member without a default is always present. A member with `ABSENT` may be absent.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

# The default of a member that may be absent, but is never null.
ABSENT: Final[Any] = None

# The stop string or stop token that ended the answer, `repetition_detected` or
# `quota_exceeded`. Null: another reason.
StopReason = str | int | None
Count = int


def _open(schema: dict[str, Any]) -> None:
    """Later versions may add members."""
    schema.pop("additionalProperties", None)


class Answer(BaseModel):
    """Base of all answers. In tests, an undescribed member is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra=_open)


class TokenChance(Answer):
    """An alternative to a token."""

    token: str
    logprob: float | None
    bytes: list[int]


class TokenLogprob(TokenChance):
    """A token of the answer."""

    top_logprobs: list[TokenChance]


class ChatLogprobs(Answer):
    """The tokens of a chat's answer, or of a chunk."""

    content: list[TokenLogprob]
    refusal: None


class TextLogprobs(Answer):
    """The tokens of a completion, or of a chunk, as parallel lists."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None] | None]
    text_offset: list[int]


class RankedToken(Answer):
    """The log-probability of a token of the prompt, and its rank; 1 is the most likely."""

    logprob: float | None
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, RankedToken] | None]


class PromptDetails(Answer):
    """Part of the prompt's tokens."""

    cached_tokens: Count = Field(description="CapturedRequest from the prefix cache.")


class CompletionDetails(Answer):
    """Part of the answer's tokens."""

    reasoning_tokens: Count
    accepted_prediction_tokens: Count = ABSENT
    rejected_prediction_tokens: Count = ABSENT


class Usage(Answer):
    """Tokens of the whole request, with all its answers."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


# FastDeploy's members, for requests with `return_token_ids`.
PROMPT_TOKENS: Final[Any] = Field(default=ABSENT, description="The text of the prompt's tokens.")
COMPLETION_TOKENS: Final[Any] = Field(
    default=ABSENT, description="Their text, with special tokens, reasoning and tool calls."
)


class ErrorDetails(Answer):
    """An error, and what the client must change."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None = Field(description="The path of the field, such as `messages[2].content`.")
    code: str | None = Field(description="docs/errors.md lists all codes.")


class Error(Answer):
    """The body of every error, and the last event of a failed stream."""

    error: ErrorDetails
