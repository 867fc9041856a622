"""Everything that gateway and engine say to each other.

Frames are four bytes of length (big endian) and one msgpack document, schema-checked by
msgspec on arrival. Ids of generations are chosen by the gateway and are unique on its
connection. Every `Submit` is answered by exactly one ending: a `TokenOutput` whose
`finish` is set, or a `Rejected`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

PROTOCOL_VERSION = 6

# A prompt of a million tokens is 4 MB; nothing legitimate comes near this.
MAX_FRAME_BYTES = 64 * 1024 * 1024

FINISH_STOP = "stop"
FINISH_LENGTH = "length"


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A message is a tagged array, so that its fields need no names on the wire."""


class SamplingParams(msgspec.Struct, frozen=True, array_like=True):
    """Resolved sampling: nothing is left to defaults. Greedy when `temperature` is 0."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0: all
    min_p: float = 0.0
    seed: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0


class GrammarSpec(msgspec.Struct, frozen=True, array_like=True):
    """A constraint on the output. `kind` is a `core.request.GrammarKind` value."""

    kind: str
    source: str


class BeamSpec(msgspec.Struct, frozen=True, array_like=True):
    """Search for the likeliest answers instead of drawing one. Nothing is told before the
    end, when each of the best has an id of its own: the generation's, then `other_ids`."""

    width: int
    other_ids: tuple[int, ...] = ()
    length_penalty: float = 1.0
    # When to end: as soon as `width` answers are complete, when better ones are unlikely, or
    # when there can be none.
    early_stopping: Literal["early", "heuristic", "never"] = "heuristic"
    no_repeat_ngram_size: int = 0  # 0: sequences may repeat


class SpeculationSpec(msgspec.Struct, frozen=True, array_like=True):
    """How far ahead tokens are proposed, by a draft model or by looking into the prompt."""

    num_tokens: int = 0  # 0: as long as the draft model is confident
    confidence_threshold: float = 0.0  # of the draft model
    max_ngram_size: int = 0  # what is looked up in the prompt


class LogprobsSpec(msgspec.Struct, frozen=True, array_like=True):
    """Which log-probabilities are told with a token, beside its own."""

    num_top: int = 0
    token_ids: tuple[int, ...] = ()
    # Of which distribution: the model's own, or that divided by a temperature, or without
    # what `top_p` cuts off.
    temperature: float = 1.0
    top_p: float = 1.0


class ReasoningBudget(msgspec.Struct, frozen=True, array_like=True):
    """After `max_tokens` tokens of thought, `closing_ids` are what comes next."""

    max_tokens: int
    is_open: bool  # whether the prompt ends inside a thought
    start: tuple[int, ...]  # these, one after the other, begin a thought; empty: none does
    end: tuple[int, ...]  # these end it
    closing_ids: tuple[int, ...]


class LogitsSpec(msgspec.Struct, frozen=True, array_like=True):
    """What must be seen of, or done to, the logits of a generation."""

    bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()  # sequences that must not be completed
    allowed_ids: tuple[int, ...] = ()  # empty: all
    # For the administrator's processors; None: they are not asked.
    processor_args: dict[str, Any] | None = None
    budget: ReasoningBudget | None = None
    logprobs: LogprobsSpec | None = None
    prompt_logprobs: LogprobsSpec | None = None


class Submit(_Message, frozen=True):
    """Generate. The engine answers `Accepted` or `Rejected` at once."""

    id: int
    prompt_ids: bytes  # int32 little endian, (num_prompt_tokens,)
    sampling: SamplingParams
    max_new_tokens: Annotated[int, Meta(ge=0)]  # 0: only with `prompt_logprobs`
    deadline_s: float  # from now; the engine ends the generation then
    stop_token_ids: tuple[int, ...] = ()  # beside the model's own end tokens
    grammar: GrammarSpec | None = None
    logits: LogitsSpec | None = None
    beams: BeamSpec | None = None
    assist: SpeculationSpec | None = None  # None: the engine's usual
    min_new_tokens: int = 0  # before these no end token is drawn
    # The model's end tokens end nothing; neither do `stop_token_ids`, which the engine does
    # not look for then.
    ignore_eos: bool = False
    priority: int = 0  # of those that wait, a lower number is admitted first
    # The prompt shares cached work only with prompts of the same key; None: of no key.
    cache_key: bytes | None = None
    request_id: str = ""  # under which the gateway keeps its books
    # It pauses at so many tokens until a `Grant` lets it go on; None: it never does. Searches
    # by beams do not either.
    num_granted: int | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """Of all answers that this makes, the likeliest first."""
        return (self.id, *(self.beams.other_ids if self.beams is not None else ()))


class Cancel(_Message, frozen=True):
    """The client is gone, or has enough: free the slot. Unknown ids are ignored.

    `num_used` of its tokens count; what was made beyond them, and may be on its way, does not.
    """

    id: int
    num_used: int


class Grant(_Message, frozen=True):
    """This generation may make so many tokens in all. It pauses there; or where there will be
    no more, it ends there with FINISH_LENGTH: now, if it has made them. Unknown ids are
    ignored, and so are searches by beams."""

    id: int
    num_tokens: int
    is_last: bool = False


class Ping(_Message, frozen=True):
    """Answered by `Pong` between two steps; an engine that hangs in a step stays silent."""

    nonce: int


class Hello(_Message, frozen=True):
    """The engine's first message on every connection."""

    protocol_version: int
    pid: int
    max_context: int  # tokens, prompt and output together; 0: unknown
    vocab_size: int
    max_running: int
    max_waiting: int
    # Whether a request's `logits` can be honoured, and whether its `prompt_logprobs` can.
    has_logits_hook: bool = False
    can_score_prompts: bool = False
    has_processors: bool = False
    supports_cache_salt: bool = False  # whether its `cache_key` can


class Accepted(_Message, frozen=True):
    """The request is valid and has a place, running or waiting."""

    id: int


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Of one token: its own log-probability, its rank (1: the likeliest), and the others that
    were asked for, the likeliest first, as (token id, log-probability)."""

    logprob: float
    rank: int
    others: tuple[tuple[int, float], ...] = ()


class TokenOutput(msgspec.Struct, frozen=True, array_like=True):
    """New tokens of one generation. The first output of an id tells how it began."""

    id: int
    token_ids: tuple[int, ...]
    finish: str | None = None  # FINISH_STOP, FINISH_LENGTH
    queue_s: float | None = None  # first output only: waiting before the first step
    prefill_s: float | None = None  # first output only: from there to the first token
    num_cached_tokens: int | None = None  # first output only: prompt tokens not recomputed
    logprobs: tuple[TokenLogprobs, ...] = ()  # of `token_ids`, when they were asked for
    # First output only: of the prompt's tokens but the first, which follows nothing.
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    # Tokens that were proposed ahead since the beginning, and those of them that were taken.
    num_proposed: int = 0
    num_accepted: int = 0
    energy_j: float | None = None  # that it has used since its last output; None: not measured


class StepOutputs(_Message, frozen=True):
    """What one step made for this connection: one frame for all its generations."""

    outputs: tuple[TokenOutput, ...]


class Rejected(_Message, frozen=True):
    """The generation ended without a finish. `code` is a `core.errors` class's code."""

    id: int
    code: str
    message: str


class EngineStats(msgspec.Struct, frozen=True, array_like=True):
    """Counters since the start of the process, and what is going on now."""

    num_running: int = 0
    num_waiting: int = 0
    num_steps: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0  # that were used
    num_unused_tokens: int = (
        0  # that were made beyond them, after the client had left or had enough
    )
    num_recoveries: int = 0
    cache_usage: float = 0.0  # 0..1
    last_token_age_s: float | None = None  # None: never made a token
    # This engine's part of what the machine has used, and what of that it has told its requests;
    # None: the machine has no counter.
    energy_j: float | None = None
    request_energy_j: float | None = None


class Pong(_Message, frozen=True):
    """The answer to `Ping`."""

    nonce: int
    stats: EngineStats


ToEngine = Submit | Cancel | Grant | Ping
FromEngine = Hello | Accepted | StepOutputs | Rejected | Pong
