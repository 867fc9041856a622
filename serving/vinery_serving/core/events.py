"""The closed union of events, in which the flow sends an answer to the protocols.

A request has the events `Started`, then for each choice any mix of deltas and one `Finished`,
then `Completed`. `Failed` may come at any point and is the last event. The tool calls of a
choice are numbered from 0 in the order in which they start. All arguments of a call come
before the next delta of another kind in its choice. `Progress` may come anywhere between
`Started` and `Completed`, and only for requests with `wants_progress`.
"""

from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from operator import add
from typing import Final, Self

from vinery_serving.core.errors import ServingError
from vinery_serving.core.request import Sampling

# Values of `Finished.cause`. The first is vLLM's word.
REPETITION: Final = "repetition_detected"
QUOTA: Final = "quota_exceeded"


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


class FinishReason(StrEnum):
    """OpenAI's `finish_reason`."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """The tokens of a request, or of an engine. `num_output_tokens` includes the reasoning tokens,
    `num_prompt_tokens` the cached tokens and the media tokens."""

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_reasoning_tokens: int = 0
    num_proposed_tokens: int = 0  # by the draft, in speculative decoding
    num_accepted_tokens: int = 0  # proposed tokens that the model accepted
    num_image_tokens: int = 0  # a part of the prompt tokens, like `num_video_tokens`
    num_video_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, astuple(self), astuple(other)))

    @property
    def num_media_tokens(self) -> int:
        return self.num_image_tokens + self.num_video_tokens

    def with_generated(
        self, num_output: int, num_reasoning: int, num_proposed: int = 0, num_accepted: int = 0
    ) -> Self:
        # Not `replace`, which takes twice as long: this is done for each token.
        return type(self)(
            self.num_prompt_tokens,
            self.num_cached_tokens,
            self.num_output_tokens + num_output,
            self.num_reasoning_tokens + num_reasoning,
            self.num_proposed_tokens + num_proposed,
            self.num_accepted_tokens + num_accepted,
            self.num_image_tokens,
            self.num_video_tokens,
        )


NO_TOKENS: Final = TokenCounts()


@dataclass(frozen=True, slots=True)
class Started:
    """The engine accepted the request. The HTTP status is 200, and a later error is in the body."""

    num_choices: int = 1
    # Of each prompt: the token ids, if the request `wants_token_ids`; the text, also with
    # `wants_prompt_text`; the number of characters, with `counts_prompt_chars`.
    prompt_ids: tuple[tuple[int, ...], ...] = ()
    prompt_texts: tuple[str, ...] = ()
    prompt_chars: tuple[int, ...] = ()
    num_prompt_tokens: int = 0  # of all prompts
    # The values in force of parameters that the request leaves to the model, for Responses only.
    sampling: Sampling | None = None


@dataclass(frozen=True, slots=True)
class FirstToken:
    """A choice has its first token, perhaps without text. For dialects with `shows_first_token`."""

    choice: int


@dataclass(frozen=True, slots=True)
class PromptScored:
    """A prompt's log-probabilities. Comes before the deltas of the prompt's choices."""

    prompt: int  # index
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class TokensGenerated:
    """The ids of new tokens, for requests with `wants_token_ids`. Comes before their deltas."""

    choice: int
    token_ids: tuple[int, ...]  # the last event may have none
    # With special tokens, before parsing. The text of a character comes with its last token.
    text: str = ""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    choice: int
    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer's text. `tokens` are the tokens that begin in this text, for requests
    with log-probabilities."""

    choice: int
    text: str
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    choice: int
    index: int
    id: str
    name: str
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of the JSON text of a call's arguments, or of a custom tool's input."""

    choice: int
    index: int
    text: str
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """The token counts, with the tokens of the deltas up to the next `Progress`."""

    usage: TokenCounts


@dataclass(frozen=True, slots=True)
class Arrived:
    """The next events have tokens that came at this time, for requests with `shows_arrival`."""

    elapsed_s: float  # since the request


@dataclass(frozen=True, slots=True)
class Compacted:
    """What replaces the conversation, sealed; empty: a summary begins. Comes before all choices."""

    content: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    choice: int
    reason: FinishReason
    # The stop string or the id of the stop token that ended the choice, `REPETITION`, or `QUOTA`.
    # None: the model's end token or the token limit.
    cause: str | int | None = None
    # The mean of the choice's log-probabilities, for ranking candidates. None: unknown.
    mean_logprob: float | None = None
    # Whether the context had no room for more, and the client's own limit was not reached.
    is_context_full: bool = False


@dataclass(frozen=True, slots=True)
class Completed:
    """All choices are complete. `at` is in whole Unix seconds; `is_kept`: an answer that should be
    stored could be stored."""

    usage: TokenCounts
    at: int
    is_kept: bool = True


@dataclass(frozen=True, slots=True)
class Failed:
    error: ServingError


Delta = ReasoningDelta | TextDelta | ToolCallStarted | ToolCallDelta
OfChoice = FirstToken | TokensGenerated | Delta | Finished
Event = Started | PromptScored | Progress | Arrived | Compacted | OfChoice | Completed | Failed
