"""The messages between gateway and engine.

A frame is four bytes of length (big endian) and one msgpack document, which msgspec checks against
its type. The gateway chooses the ids of generations, which are unique on a connection. The engine
ends each id of a `Submit` exactly once: by a `TokenOutput` with `finish`, or by a `Rejected`.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from vinery_serving.core.events import NO_TOKENS, TokenCounts
from vinery_serving.core.request import BeamSearch, Sampling, SpeculativeDecoding

PROTOCOL_VERSION = 16
# Hosts are upgraded one after the other, so each version speaks with the one before, from this one
# on: fields are only appended, with defaults, and a new kind of message goes only to a peer whose
# version has it. `tests/golden` has the frames of the first version.
_FIRST_COMPATIBLE_VERSION = 16
FINISH_STOP = "stop"
FINISH_LENGTH = "length"


def speaks_with(version: int) -> bool:
    """Whether this version understands a peer of another one."""
    return version >= _FIRST_COMPATIBLE_VERSION and abs(version - PROTOCOL_VERSION) <= 1


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A message is a tagged array, so that field names do not travel."""


class GrammarSpec(msgspec.Struct, frozen=True, array_like=True):
    """A constraint on the output. `kind` is a `core.request.GrammarKind` value."""

    kind: str
    source: str
    weaker: "GrammarSpec | None" = None  # for a grammar that cannot be compiled
    unenforced: str = ""  # the fields whose schemas are left out


class LogprobsSpec(msgspec.Struct, frozen=True, array_like=True):
    """Which log-probabilities are reported with each token, beside the token's own."""

    num_top: int = 0
    token_ids: tuple[int, ...] = ()
    # Taken from the model's distribution at this temperature, cut off at this `top_p`.
    temperature: float = 1.0
    top_p: float = 1.0


class ReasoningBudget(msgspec.Struct, frozen=True, array_like=True):
    max_tokens: int
    is_open: bool  # whether the prompt ends inside reasoning
    start: tuple[int, ...]  # this token sequence opens reasoning; empty: no sequence does
    end: tuple[int, ...]  # this token sequence closes reasoning
    closing_ids: tuple[int, ...]


class LogitsSpec(msgspec.Struct, frozen=True, array_like=True):
    """How a generation reads and changes logits, which needs the logits hook."""

    bias: tuple[tuple[int, float], ...] = ()  # (token id, added to its logit)
    bad_words: tuple[tuple[int, ...], ...] = ()  # token sequences that must not be completed
    allowed_ids: tuple[int, ...] = ()  # empty: all
    # Arguments of the administrator's logits processors; None: no calls.
    processor_args: dict[str, Any] | None = None
    budget: ReasoningBudget | None = None
    logprobs: LogprobsSpec | None = None
    prompt_logprobs: LogprobsSpec | None = None


class Known(msgspec.Struct, frozen=True, array_like=True):
    """The tokens of an answer by a lost engine. The next engine sends what follows."""

    token_ids: bytes  # int32 little endian, (num_tokens,)
    # The answer is generated again from its prompt, and compared: with a seed the next token
    # depends on how many were drawn.
    is_replayed: bool


class MediaInput(msgspec.Struct, frozen=True, array_like=True):
    """A picture or video of a prompt, in a size that the model's processor does not change."""

    start: int  # index in `prompt_ids` of the first of consecutive tokens
    grid: tuple[int, int, int]  # tokens: frames or pairs of frames, rows, columns
    height: int  # pixels
    width: int  # pixels
    num_frames: int = 0  # 0: a picture
    pixels: bytes = b""  # sent before the `Submit`, see `MediaPixels`

    @property
    def num_tokens(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def num_bytes(self) -> int:
        """The size of its pixels, uint8 RGB: (height, width, 3), of a video for each frame."""
        return max(1, self.num_frames) * self.height * self.width * 3


class MediaPixels(_Message, frozen=True):
    """Gateway to engine: a part of the pixels of the next `Submit` of this id, all in the order of
    its `media`. A `Cancel` of the id drops them."""

    id: int
    pixels: bytes


class Submit(_Message, frozen=True):
    """Gateway to engine: generate. The engine answers `Accepted` or `Rejected`."""

    id: int
    prompt_ids: bytes  # int32 little endian, (num_prompt_tokens,)
    sampling: Sampling
    max_new_tokens: Annotated[int, Meta(ge=0)]  # 0: only with `prompt_logprobs`
    deadline_s: float  # from arrival; the engine rejects the generation then
    stop_token_ids: tuple[int, ...] = ()  # beside the model's own end tokens
    grammar: GrammarSpec | None = None
    logits: LogitsSpec | None = None
    beams: BeamSearch | None = None  # outputs come only at the end
    other_ids: tuple[int, ...] = ()  # of the next best sequences of a beam search
    assist: SpeculativeDecoding | None = None  # None: the engine's default
    min_new_tokens: int = 0  # no end token is sampled before this many tokens
    # The model's end tokens do not end the output. GenAI then ignores `stop_token_ids` too.
    ignore_eos: bool = False
    priority: int = 0  # of one lane, the engine admits lower numbers first
    # Derived from the caller's organisation and the request's cache_salt. Only prompts with the
    # same key share the prefix cache; None is the key of all prompts without a salt.
    cache_key: bytes | None = None
    request_id: str = ""  # names the request in the gateway's usage journal
    # The generation pauses after so many tokens until a `Grant`; None, and beam searches: never.
    num_granted: int | None = None
    # The ids of the organisation and of the key, between which the engine is fair; 0: none.
    lane: tuple[int, int] = (0, 0)
    # None: nothing. Known tokens count for `max_new_tokens`, `min_new_tokens` and `num_granted`.
    # Beam searches ignore it.
    known: Known | None = None
    media: tuple[MediaInput, ...] = ()  # in the order of the prompt
    max_queue_s: float = 0.0  # rejected if the wait for a slot would be longer; 0: never
    is_low_tier: bool = False  # it waits for all others, see `engine/admission`

    @property
    def ids(self) -> tuple[int, ...]:
        return (self.id, *self.other_ids)


class PoolTexts(_Message, frozen=True):
    """Gateway to engine of a pooling model: one vector or score for each text. The engine answers
    with `TextVectors`, the last of which ends the id, or `Rejected`. `Cancel` drops what waits."""

    id: int
    texts: tuple[bytes, ...]  # each int32 little endian, (num_tokens,), at least one token
    # The indexes of the first tokens of second parts, such as documents after queries; 0: none.
    second_starts: tuple[int, ...]
    deadline_s: float  # from arrival; the engine rejects the request then
    dimensions: int = 0  # the first numbers of each vector; 0: all
    request_id: str = ""
    lane: tuple[int, int] = (0, 0)  # as in `Submit`
    goes_on: bool = False  # another engine had taken the request: not refused for want of room


class Cancel(_Message, frozen=True):
    """Gateway to engine: free the generation's slot. Unknown ids are ignored. Only the first
    `num_used` tokens count as output; the engine may have generated more."""

    id: int
    num_used: int


class Grant(_Message, frozen=True):
    """Gateway to engine: the generation may have `num_tokens` output tokens in all. The generation
    pauses there. If `is_last`, the generation finishes there with FINISH_LENGTH, at once if it has
    that many. Unknown ids and beam searches are ignored."""

    id: int
    num_tokens: int
    is_last: bool = False


class Ping(_Message, frozen=True):
    """Gateway or node to engine. The engine answers `Pong` between two steps."""

    nonce: int


class TestPictures(_Message, frozen=True):
    """Node to engine: show the model known pictures. The engine answers `PicturesTested`."""

    __test__ = False  # no test of pytest

    nonce: int


class Arriving(_Message, frozen=True):
    """Gateway to an engine with work of the low tier: another request is read, and comes soon."""


class Keep(_Message, frozen=True):
    """Node or supervisor to engine: run for as long as this connection, which gets no reports of
    the load. The node that has started the engine needs no `Keep`, see `engine.supervision`."""


class Hello(_Message, frozen=True):
    """The engine's first message on every connection."""

    protocol_version: int
    pid: int
    max_context: int  # tokens, prompt and output together; 0: unknown
    max_running: int
    has_logits_hook: bool = False  # whether `Submit.logits` is supported
    can_score_prompts: bool = False  # whether `LogitsSpec.prompt_logprobs` is supported
    has_processors: bool = False  # whether `LogitsSpec.processor_args` is supported
    supports_cache_salt: bool = False  # whether `Submit.cache_key` is supported
    digest: str = ""  # `EngineConfig.digest`
    takes_pictures: bool = False
    is_draining: bool = False  # as after `Draining`
    num_dimensions: int = 0  # of the vectors of a pooling model; 0: the model generates text
    picture_failure: str = ""  # of the newest test with known pictures, see `PicturesTested`


class Accepted(_Message, frozen=True):
    """Sent again when the prompt is begun, if its first token takes more than one step."""

    id: int
    unenforced: str = ""  # of its grammar
    is_begun: bool = False


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """The log-probability of one token, with its rank and the tokens that were asked for."""

    logprob: float
    rank: int  # 1: the likeliest
    others: tuple[tuple[int, float], ...] = ()  # (token id, logprob), the top ones first


class TokenOutput(msgspec.Struct, frozen=True, array_like=True):
    id: int
    token_ids: tuple[int, ...]
    finish: str | None = None  # FINISH_STOP, FINISH_LENGTH; None: unfinished
    queue_s: float | None = None  # first output only: from arrival to the first step
    prefill_s: float | None = None  # first output only: from there to the first token
    num_cached_tokens: int | None = None  # first output only: prompt tokens not recomputed
    logprobs: tuple[TokenLogprobs, ...] = ()  # of `token_ids`, if asked for
    # First output only: of the prompt's tokens without the first, which follows no token.
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    num_proposed: int = 0  # draft tokens since the start
    num_accepted: int = 0  # accepted draft tokens
    encode_s: float | None = None  # first output only: until the pictures were encoded


class StepOutputs(_Message, frozen=True):
    outputs: tuple[TokenOutput, ...]


class TextVectors(_Message, frozen=True):
    """The vectors of some texts of a request, in one frame for each batch of the engine."""

    id: int
    indexes: tuple[int, ...]  # of the texts in `PoolTexts`
    vectors: bytes  # float32 little endian, (len(indexes), num_dimensions)
    is_last: bool
    queue_s: float = 0.0  # from arrival to the first batch


class Rejected(_Message, frozen=True):
    """The generation ended without a finish. `code` is the code of a `core.errors` class."""

    id: int
    code: str
    message: str
    retry_after_s: int = 0  # 0: as usual for the code


class EngineStats(msgspec.Struct, frozen=True, array_like=True):
    """Counters since the start of the process, and gauges of the present."""

    num_running: int = 0
    num_waiting: int = 0
    num_steps: int = 0
    # Only output tokens that clients used; draft tokens count at the end of a request.
    tokens: TokenCounts = NO_TOKENS
    num_unused_tokens: int = 0  # generated after the client had left or had enough
    num_recoveries: int = 0
    cache_usage: float = 0.0  # 0..1
    last_token_age_s: float | None = None  # None: no token was ever generated
    prompt_tokens_per_s: float = 0.0  # of the last seconds
    output_tokens_per_s: float = 0.0
    # The median and the 95th percentile of the last requests; None: there was none.
    first_token_s: tuple[float, float] | None = None
    inter_token_s: tuple[float, float] | None = None
    cache_bytes: int = 0  # allocated for the KV cache
    # How much slower answers were with proposed tokens, 0.1 for a tenth; None: they are proposed.
    draft_loss: float | None = None

    @property
    def prefix_hit_rate(self) -> float | None:
        """The part of all prompt tokens that the prefix cache had; None: there was none."""
        return _part(self.tokens.num_cached_tokens, self.tokens.num_prompt_tokens)

    @property
    def draft_acceptance(self) -> float | None:
        """The part of all draft tokens that were accepted; None: there was none."""
        return _part(self.tokens.num_accepted_tokens, self.tokens.num_proposed_tokens)


def _part(number: int, whole: int) -> float | None:
    return number / whole if whole else None


class Load(_Message, frozen=True):
    """Engine to gateway: how many answers run and wait, and what the prefix cache has. Sent when it
    has changed."""

    num_answers: int
    # Digests of `core.prompt_parts`, the newest of those that no earlier message had. A new
    # connection gets all of them in parts, beside what has changed meanwhile.
    added: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    has_low_tier: bool = False  # then the engine takes `Arriving`


class Pong(_Message, frozen=True):
    nonce: int
    stats: EngineStats


class PicturesTested(_Message, frozen=True):
    nonce: int
    failure: str  # a sentence for administrators; empty: the model distinguishes all of them


class Draining(_Message, frozen=True):
    """Engine to gateway: the engine finishes its requests and ends. New requests wait for the next
    engine, but a request on the way is still taken."""


class Leaving(_Message, frozen=True):
    """The engine's last message on a connection at a planned end: the engine has not crashed.
    Generations that have not ended get no `Rejected`: another engine may continue them."""


ToEngine = Submit | MediaPixels | PoolTexts | Cancel | Grant | Ping | TestPictures | Arriving | Keep
FromEngine = (
    Hello
    | Accepted
    | StepOutputs
    | TextVectors
    | Rejected
    | Load
    | Pong
    | PicturesTested
    | Draining
    | Leaving
)
