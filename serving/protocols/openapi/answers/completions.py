"""The answers of completions."""

from __future__ import annotations

from typing import Literal

from serving.protocols.openapi.answers.base import ABSENT, Answer, StopReason
from serving.protocols.openapi.answers.tokens import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    PromptLogprobs,
    TextLogprobs,
    Usage,
)


class CompletionChoice(Answer):
    """One answer, or more of one."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    stop_reason: StopReason = ABSENT
    prompt_text: str = ABSENT
    token_ids: list[int] = ABSENT
    prompt_token_ids: list[int] = ABSENT
    prompt_tokens: str = PROMPT_TOKENS
    completion_token_ids: list[int] = ABSENT
    completion_tokens: str = COMPLETION_TOKENS
    prompt_logprobs: PromptLogprobs = ABSENT


class Completion(Answer):
    """The whole answer to a completion, and each event of a streamed one."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[CompletionChoice]
    usage: Usage | None = ABSENT
    obfuscation: str = ABSENT
