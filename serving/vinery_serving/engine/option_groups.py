"""Options of an engine that belong together: each group is an object among a model's options."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

LEAST_BLOCK: Final = 16  # tokens in a block of the KV cache: 32 on a CPU, 16 on a GPU
_MOST: Final = 2**31 - 1  # the largest number that GenAI takes
Count = Annotated[int, Meta(ge=0, le=_MOST)]
Positive = Annotated[int, Meta(ge=1, le=_MOST)]
Part = Annotated[float, Meta(ge=0, le=1)]


class OptionGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Members with descriptions for administrators. A member without a default is required."""

    SIZES: ClassVar[tuple[str, ...]] = ()  # members that are tokens in whole blocks

    def check_block(self, block: int) -> None:
        """Raises ValueError for sizes that are not whole blocks of a device."""
        for name in self.SIZES:
            if (value := getattr(self, name)) % block:
                raise ValueError(f"{name} must be a multiple of {block}, not {value}")


class CacheEviction(OptionGroup, frozen=True):
    """Which tokens of an answer's context stay in the KV cache."""

    SIZES = ("start_size", "recent_size", "max_cache_size")

    start_size: Annotated[Positive, "tokens at the beginning that always stay"]
    recent_size: Annotated[Positive, "the newest tokens, which always stay"]
    max_cache_size: Annotated[Positive, "tokens that stay of each answer, at most"]
    aggregation: Annotated[
        Literal["norm_sum", "sum"],
        "the importance of a token: sum adds what each step has found, norm_sum divides it by the "
        "number of steps, so that new tokens are not taken for unimportant ones",
    ] = "norm_sum"
    apply_rotation: Annotated[
        bool,
        "give the tokens that stay consecutive positions, for models with the rotary positions of "
        "Llama; it needs a cache_size_gb",
    ] = False
    snapkv_window_size: Annotated[
        Positive, "the last tokens of a prompt, whose attention decides what is important at first"
    ] = 8
    kvcrush_budget: Annotated[
        Count, "blocks that KVCrush keeps beside the important ones, because they differ; 0: none"
    ] = 0
    kvcrush_anchor: Annotated[
        Literal["random", "zeros", "ones", "mean", "alternating"],
        "with what KVCrush compares blocks",
    ] = "random"
    kvcrush_seed: Annotated[Count, "of the random anchor"] = 0

    def __post_init__(self) -> None:
        self.check_block(LEAST_BLOCK)
        if self.max_cache_size <= self.start_size + self.recent_size:
            raise ValueError("max_cache_size must be more than start_size and recent_size together")


class SparseAttention(OptionGroup, frozen=True):
    """Which tokens of a long prompt are compared with which in prefill."""

    SIZES = ("num_start_tokens", "num_recent_tokens", "block_size")

    mode: Annotated[
        Literal["trishape", "xattention"],
        "trishape: the first and the nearest tokens; xattention: the blocks that a sample shows to "
        "be important",
    ] = "trishape"
    num_last_dense_tokens: Annotated[
        Positive, "the last tokens of a prompt, which are compared with all"
    ] = 100
    num_start_tokens: Annotated[Count, "trishape: tokens at the beginning"] = 128
    num_recent_tokens: Annotated[Count, "trishape: tokens before a token"] = 1920
    threshold: Annotated[
        Annotated[float, Meta(gt=0, le=1)], "xattention: the part of the importance that stays"
    ] = 0.8
    block_size: Annotated[Positive, "xattention: tokens in a block"] = 64
    stride: Annotated[Positive, "xattention: of the sample; it divides block_size"] = 8

    def __post_init__(self) -> None:
        self.check_block(LEAST_BLOCK)
        if self.block_size % self.stride:
            raise ValueError("stride must divide block_size")


class DraftScheduler(OptionGroup, frozen=True):
    cache_size_gb: Annotated[
        Count, "memory for the draft model's KV cache, in GB; 0: it grows as needed"
    ] = 0
    max_num_batched_tokens: Annotated[Positive, "tokens in one step of the draft model"] = 256


class Adapter(OptionGroup, frozen=True):
    path: Annotated[
        Annotated[str, Meta(pattern="^/")],
        "absolute path of a folder with adapter_model.safetensors, or of such a file",
    ]
    alpha: Annotated[
        Annotated[float, Meta(ge=-100, le=100)], "its strength: 1 is as it was trained, 0 is none"
    ] = 1.0


# The ranges that the endpoints take.
_Temperature = Annotated[float, Meta(ge=0, le=2)]
_TopK = Annotated[int, Meta(ge=-1, le=_MOST)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]
_Repetition = Annotated[float, Meta(ge=0.01, le=1000)]


class Parameters(OptionGroup, frozen=True):
    """Values of a request's parameters. None: no value."""

    temperature: Annotated[_Temperature | None, "0 to 2; 0 is greedy"] = None
    top_p: Annotated[Part | None, "0 to 1"] = None
    top_k: Annotated[_TopK | None, "-1 and 0 are all tokens"] = None
    min_p: Annotated[Part | None, "0 to 1"] = None
    frequency_penalty: Annotated[_Penalty | None, "-2 to 2"] = None
    presence_penalty: Annotated[_Penalty | None, "-2 to 2"] = None
    repetition_penalty: Annotated[_Repetition | None, "0.01 to 1000; 1 is none"] = None

    @property
    def named(self) -> dict[str, float]:
        """The numbers that are set."""
        values = msgspec.structs.asdict(self).items()
        return {name: value for name, value in values if type(value) in (int, float)}


class Defaults(Parameters, frozen=True):
    max_tokens: Annotated[Positive | None, "output tokens"] = None
    return_arrival_time: Annotated[bool | None, "chats and completions have times"] = None
    parse_output: Annotated[
        bool | None, "completions have reasoning and tool calls apart from the text"
    ] = None
