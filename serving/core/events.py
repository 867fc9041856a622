"""The closed union of events: the only currency between the engine and the protocols.

The life of a request is `Started`, then for each choice any mix of deltas and one
`Finished`, then `Completed`; or `Failed` at any point, which ends it. Tool calls of a
choice are numbered from 0 in the order in which they start, and the arguments of a call
come before anything else of its choice starts. `Progress` may stand anywhere between
`Started` and `Completed`, and is sent only to requests with `wants_progress`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from serving.core.errors import ServingError
from serving.core.logprobs import Token

# A choice's `Finished.cause`, in vLLM's word.
REPETITION: Final = "repetition_detected"
QUOTA: Final = "quota_exceeded"


class FinishReason(StrEnum):
    """Why a choice ended, in OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a whole request. Reasoning tokens are part of the output tokens,
    cached tokens part of the prompt tokens."""

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_reasoning_tokens: int = 0
    # Tokens that were proposed ahead and checked, and those of them that were taken.
    num_proposed_tokens: int = 0
    num_accepted_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        """Prompt and output together."""
        return self.num_prompt_tokens + self.num_output_tokens


@dataclass(frozen=True, slots=True)
class Started:
    """The engine has accepted the request: from here on the answer is 200, and errors
    are told inside it. `prompt_ids` are the tokens of each prompt, told only to requests
    that want them, and `prompt_texts` what they were made of, told to these and to requests
    that want the texts alone."""

    num_choices: int = 1
    prompt_ids: tuple[tuple[int, ...], ...] = ()
    prompt_texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptScored:
    """The tokens of a prompt and how likely they were. Comes before all of its choices'
    deltas, to requests that ask for it."""

    prompt: int
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class TokensGenerated:
    """Ids of new tokens of a choice, told only to requests with `wants_token_ids`, before
    the deltas that they make.

    `text` is theirs before anything is read out of it, special tokens included. It comes
    with the token that completes a character, and the last of it perhaps after all ids.
    """

    choice: int
    token_ids: tuple[int, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's thinking."""

    choice: int
    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer. `tokens` are those that begin in this text, told only to requests
    for log-probabilities."""

    choice: int
    text: str
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A tool call began; its name is known. The arguments of a function follow, or the input
    of a custom tool."""

    choice: int
    index: int
    id: str
    name: str
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class ToolArgsDelta:
    """More of the JSON text of a tool call's arguments."""

    choice: int
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    """More of the text that a call gives to a custom tool."""

    choice: int
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The counts so far, with all tokens of the deltas that follow until the next one."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Finished:
    """A choice is complete.

    `cause`: what of the request ended it, a stop string or a stop token's id, or `REPETITION`
    where its tokens did, or `QUOTA` where nothing was left to use. None: the model's own end,
    or the limit.
    """

    choice: int
    reason: FinishReason
    cause: str | int | None = None
    # Of all its tokens, where they are known; decides which candidates are the best.
    mean_logprob: float | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """All choices are complete. `at` is in whole Unix seconds."""

    usage: Usage
    at: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The request ended without an answer, or with a part of one."""

    error: ServingError


Delta = ReasoningDelta | TextDelta | ToolCallStarted | ToolArgsDelta | ToolInputDelta
Event = Started | PromptScored | TokensGenerated | Delta | Progress | Finished | Completed | Failed
