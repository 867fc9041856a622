"""Options of an engine that belong together: each group is an object among a model's options."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec

LEAST_BLOCK: Final = 16  # tokens in a block of the KV cache: 32 on a CPU, 16 on a GPU


class OptionGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Members with descriptions for administrators. A member without a default is required."""

    SIZES: ClassVar[tuple[str, ...]] = ()  # members that are tokens in whole blocks

    def require_positive(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")

    def check_block(self, block: int) -> None:
        """Raises ValueError for sizes that are not whole blocks of a device."""
        for name in self.SIZES:
            if (value := getattr(self, name)) % block:
                raise ValueError(f"{name} must be a multiple of {block}, not {value}")


class CacheEviction(OptionGroup, frozen=True):
    """Which tokens of an answer's context stay in the KV cache."""

    SIZES = ("start_size", "recent_size", "max_cache_size")

    start_size: Annotated[int, "tokens at the beginning that always stay"]
    recent_size: Annotated[int, "the newest tokens, which always stay"]
    max_cache_size: Annotated[int, "tokens that stay of each answer, at most"]
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
        int, "the last tokens of a prompt, whose attention decides what is important at first"
    ] = 8
    kvcrush_budget: Annotated[
        int, "blocks that KVCrush keeps beside the important ones, because they differ; 0: none"
    ] = 0
    kvcrush_anchor: Annotated[
        Literal["random", "zeros", "ones", "mean", "alternating"],
        "with what KVCrush compares blocks",
    ] = "random"
    kvcrush_seed: Annotated[int, "of the random anchor"] = 0

    def __post_init__(self) -> None:
        self.require_positive(*self.SIZES, "snapkv_window_size")
        self.check_block(LEAST_BLOCK)
        if self.max_cache_size <= self.start_size + self.recent_size:
            raise ValueError("max_cache_size must be more than start_size and recent_size together")
        if self.kvcrush_budget < 0 or self.kvcrush_seed < 0:
            raise ValueError("kvcrush_budget and kvcrush_seed must not be negative")


class SparseAttention(OptionGroup, frozen=True):
    """Which tokens of a long prompt are compared with which in prefill."""

    SIZES = ("num_start_tokens", "num_recent_tokens", "block_size")

    mode: Annotated[
        Literal["trishape", "xattention"],
        "trishape: the first and the nearest tokens; xattention: the blocks that a sample shows to "
        "be important",
    ] = "trishape"
    num_last_dense_tokens: Annotated[
        int, "the last tokens of a prompt, which are compared with all"
    ] = 100
    num_start_tokens: Annotated[int, "trishape: tokens at the beginning"] = 128
    num_recent_tokens: Annotated[int, "trishape: tokens before a token"] = 1920
    threshold: Annotated[
        float, "xattention: the part of the importance that stays, more than 0 and at most 1"
    ] = 0.8
    block_size: Annotated[int, "xattention: tokens in a block"] = 64
    stride: Annotated[int, "xattention: of the sample; it divides block_size"] = 8

    def __post_init__(self) -> None:
        self.require_positive("num_last_dense_tokens", "block_size", "stride")
        self.check_block(LEAST_BLOCK)
        if min(self.num_start_tokens, self.num_recent_tokens) < 0:
            raise ValueError("num_start_tokens and num_recent_tokens must not be negative")
        if not 0 < self.threshold <= 1:
            raise ValueError("threshold must be more than 0 and at most 1")
        if self.block_size % self.stride:
            raise ValueError("stride must divide block_size")


class DraftScheduler(OptionGroup, frozen=True):
    cache_size_gb: Annotated[
        int, "memory for the draft model's KV cache, in GB; 0: it grows as needed"
    ] = 0
    max_num_batched_tokens: Annotated[int, "tokens in one step of the draft model"] = 256

    def __post_init__(self) -> None:
        self.require_positive("max_num_batched_tokens")
        if self.cache_size_gb < 0:
            raise ValueError("cache_size_gb must not be negative")


class Adapter(OptionGroup, frozen=True):
    path: Annotated[
        str, "absolute path of a folder with adapter_model.safetensors, or of such a file"
    ]
    alpha: Annotated[float, "its strength: 1 is as it was trained, 0 is none"] = 1.0

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise ValueError("path must be an absolute path")
        if not -100 <= self.alpha <= 100:
            raise ValueError("alpha must be from -100 to 100")


# The least and the largest value of each parameter of a request, as the endpoints take them.
_RANGES: Final = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_k": (-1, 2**31 - 1),
    "min_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "repetition_penalty": (0.01, 1000),
    "max_tokens": (1, 2**31 - 1),
}


class Parameters(OptionGroup, frozen=True):
    """Values of a request's parameters. None: no value."""

    temperature: Annotated[float | None, "0 to 2; 0 is greedy"] = None
    top_p: Annotated[float | None, "0 to 1"] = None
    top_k: Annotated[int | None, "-1 and 0 are all tokens"] = None
    min_p: Annotated[float | None, "0 to 1"] = None
    frequency_penalty: Annotated[float | None, "-2 to 2"] = None
    presence_penalty: Annotated[float | None, "-2 to 2"] = None
    repetition_penalty: Annotated[float | None, "0.01 to 1000; 1 is none"] = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value, (least, most) = getattr(self, name), _RANGES.get(name, (False, True))
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name} must be from {least} to {most}")

    @property
    def named(self) -> dict[str, float]:
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in values if value is not None and name in _RANGES}


class Defaults(Parameters, frozen=True):
    max_tokens: Annotated[int | None, "output tokens"] = None
    return_arrival_time: Annotated[bool | None, "chats and completions have times"] = None
    parse_output: Annotated[
        bool | None, "completions have reasoning and tool calls apart from the text"
    ] = None
