"""The engine options of a model, with what each means, and which exclude each other."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta

from vinery_serving.core.tasks import GENERATION_TASKS, POOLING_TASKS, Task, explanation
from vinery_serving.engine.option_groups import (
    Adapter,
    CacheEviction,
    Count,
    Defaults,
    DraftScheduler,
    OptionGroup,
    Parameters,
    Part,
    Positive,
    SparseAttention,
)

# The defaults that OVMS documents for speculative decoding, in tokens.
NUM_ASSISTANT_TOKENS: Final = 5
NGRAM_SIZE: Final = 3
NPU_RESPONSE_LEN: Final = 128  # GenAI's own, in tokens
_DRAFTING: Final = ("draft_model", "eagle3_head", "prompt_lookup")  # what proposes tokens
_Duration = Annotated[float, Meta(ge=0, le=2**31)]
_Timeout = Annotated[float, Meta(gt=0, le=2**31)]
Clamping = Literal["defaults", "always", "never"]
Pooling = Literal["auto", "cls", "mean", "last_token"]
Normalizing = Literal["auto", "always", "never"]
# Each device takes some of these, see `models/devices`.
KvPrecision = Literal["", "u8", "i8", "u4", "i4", "u3", "f16", "bf16", "f32"]
Distribution = Literal["", "tensor_parallel", "pipeline_parallel"]


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a model, with descriptions for administrators. The defaults suit a laptop.
    Only `parse_options` checks the ranges of numbers."""

    cache_size_gb: Annotated[Count, "memory for the KV cache, in GB; 0: it grows as needed"] = 0
    kv_cache_precision: Annotated[
        KvPrecision,
        "how numbers of the KV cache are stored: u8 takes half of the memory of f16, and u4 less; "
        "empty: OpenVINO chooses",
    ] = ""
    enable_prefix_caching: Annotated[bool, "compute the common beginning of prompts once"] = True
    share_prefix_cache: Annotated[
        bool,
        "let organisations share the prefix cache; the number of cached tokens then lets one "
        "check what another has asked",
    ] = False
    cache_eviction: Annotated[
        CacheEviction | None,
        "keep the important tokens of a long context only, which bounds the memory of an answer "
        "and changes its text; null: all stay. It excludes enable_prefix_caching, draft_model, "
        "eagle3_head and requests with beam search",
    ] = None
    sparse_attention: Annotated[
        SparseAttention | None,
        "compare each token of a long prompt with some of the others only, which prefills faster "
        "and changes texts; null: with all",
    ] = None
    cache_interval_multiplier: Annotated[
        Count,
        "blocks of the KV cache between two states that the prefix cache keeps, for models with "
        "linear attention; 0: OpenVINO GenAI chooses",
    ] = 0
    max_running: Annotated[Positive, "answers that are generated at the same time"] = 64
    max_share: Annotated[
        Part,
        "the part of max_running that one API key may hold while others use the engine, 0 to 1: "
        "a key that is alone may use all of it, and yields when another comes",
    ] = 0.5
    strict_share: Annotated[
        bool, "no key ever holds more than max_share of max_running, even if slots stay free"
    ] = False
    max_num_batched_tokens: Annotated[
        Positive,
        "tokens in one step: fewer keep running streams smooth while a long prompt is prefilled, "
        "more prefill faster; Gemma 3 with pictures has at least 2048",
    ] = 256
    dynamic_split_fuse: Annotated[
        bool,
        "compute long prompts in several steps; false: each prompt in one step, without streams "
        "beside it, and a context of at most max_num_batched_tokens",
    ] = True
    max_batch_tokens: Annotated[
        Positive,
        "tokens that an embeddings or rerank model computes at once, padding included; a longer "
        "text is a batch of its own",
    ] = 4096
    # With many streams tokens wait for each other anyway, see `output_sender`.
    flush_interval_ms: Annotated[
        _Duration, "tokens generated within this time are sent together"
    ] = 0.0
    max_waiting: Annotated[
        Count, "answers that may wait for a slot; requests for further ones are refused"
    ] = 8192
    max_waiting_per_key: Annotated[Count, "of them, those of one API key"] = 2048
    max_queue_s: Annotated[
        _Duration,
        "a request that would wait longer for a slot, by the measured times of answers, is "
        "refused at its arrival with the time to come back; 0: each waits for its turn",
    ] = 0.0
    max_context: Annotated[
        Count, "tokens of prompt and output; 0: the number in the model's config.json"
    ] = 0
    max_tokens_limit: Annotated[
        Count,
        "the most output tokens of a request, and its number if the request names none; 0: as "
        "many as fit into the context",
    ] = 0
    clamp_max_tokens: Annotated[
        Clamping,
        "a request that asks for more output tokens than max_tokens_limit or the context allows "
        "gets as many as fit, and the header x-vinery-clamped: always, never, or defaults: only "
        "if the number is one that clients send by default, such as 4096; other requests are "
        "refused",
    ] = "defaults"
    best_of_limit: Annotated[Count, "the most answers of a request, by n or best_of; 0: 128"] = 0
    minima: Annotated[
        Parameters | None,
        "the least values of parameters: a request with a smaller one is refused; null: none",
    ] = None
    maxima: Annotated[
        Parameters | None,
        "the largest values of parameters, as minima; output tokens have max_tokens_limit",
    ] = None
    step_timeout_s: Annotated[
        _Timeout,
        "the longest that a step may take: the engine is restarted after it, or earlier, when a "
        "step takes twenty times as long as others of its size have taken, at least 4 s",
    ] = 120.0
    load_timeout_s: Annotated[
        _Timeout, "a start that takes longer has failed and is tried again"
    ] = 600.0
    draft_model: Annotated[
        str,
        "folder of a smaller model with the same tokenizer, which proposes tokens that this "
        "model only verifies",
    ] = ""
    eagle3_head: Annotated[
        str,
        "folder of an EAGLE-3 head that was trained for this model and exported by optimum-intel: "
        "it proposes tokens as a draft model does, from what this model computes anyway",
    ] = ""
    draft_device: Annotated[
        str, "the device of the draft model or head; empty: that of the model"
    ] = ""
    draft_scheduler: Annotated[
        DraftScheduler | None,
        "settings of the draft model or head; null: as the model, and cache_size_gb is for both",
    ] = None
    prompt_lookup: Annotated[bool, "propose tokens that follow the same words in the prompt"] = (
        False
    )
    defaults: Annotated[
        Defaults | None,
        "parameters of requests that do not name them; null, and each that is not set here: "
        "those of the model's generation_config.json",
    ] = None
    chat_template: Annotated[
        str,
        "a chat template instead of that of the folder: its text, or the absolute path of a file",
    ] = ""
    trust_request_chat_template: Annotated[
        bool,
        "let requests bring a chat_template; it runs in a process of its own, which is ended "
        "after 5 s",
    ] = False
    output_format: Annotated[
        str,
        "how the model writes tool calls and reasoning, such as think+hermes; none: neither is "
        "parsed; empty: it is detected from the chat template",
    ] = ""
    adapters: Annotated[
        list[Adapter],
        "LoRA adapters, which become part of the model when it loads; serve the same folder under "
        "another name to have it without them",
    ] = []
    logits_processors: Annotated[
        list[str],
        "import paths (package.module:name) of functions that may change token probabilities, "
        "for requests with logits_processors_args or vllm_xargs; VINERY_LOGITS_PROCESSORS names "
        "the allowed ones",
    ] = []
    max_image_pixels: Annotated[
        Count,
        "the most pixels that a vision model sees of a picture or video frame; a larger one is "
        "scaled down, which takes fewer tokens and less time; 0: as many as the model takes",
    ] = 0
    pooling: Annotated[
        Pooling,
        "how an embeddings model makes one vector of the states of all tokens: cls (that of the "
        "first), mean or last_token; auto: as 1_Pooling/config.json has it, otherwise last_token "
        "for a model that was made to generate text, and cls for others",
    ] = "auto"
    normalize: Annotated[
        Normalizing,
        "whether vectors of an embeddings model are scaled to length 1; auto: as modules.json has "
        "it, otherwise they are",
    ] = "auto"
    query_prefix: Annotated[
        str,
        "an embeddings model gets this text before each query, an input with input_type query; "
        "empty: the prompt of that name in config_sentence_transformers.json, if there is one",
    ] = ""
    document_prefix: Annotated[
        str, "the same before each document, an input with input_type document"
    ] = ""
    num_threads: Annotated[Count, "CPU threads; 0: all cores"] = 0
    model_distribution_policy: Annotated[
        Distribution,
        "how a model is divided: tensor_parallel between the sockets of a CPU, pipeline_parallel "
        "between the devices of HETERO; empty: OpenVINO chooses",
    ] = ""
    max_prompt_len: Annotated[
        Count,
        "tokens of a prompt on an NPU, which compiles a model for a fixed number; 0: OpenVINO "
        "GenAI chooses, 1024 in the present release",
    ] = 0
    min_response_len: Annotated[
        Count,
        "tokens of an answer for which an NPU has room beside the longest prompt; 0: OpenVINO "
        "GenAI chooses, 128 in the present release",
    ] = 0
    plugin: Annotated[dict[str, Any], "properties for OpenVINO's plugin, passed on unchanged"] = {}

    @property
    def draft_folder(self) -> str:
        return self.draft_model or self.eagle3_head

    def context_of(self, folder_context: int | None) -> int | None:
        """Return how many tokens prompt and output may have together; None: it is unknown.
        `folder_context` is the limit of the model's files."""
        context = self.max_context or folder_context
        if self.max_prompt_len:
            room = self.max_prompt_len + (self.min_response_len or NPU_RESPONSE_LEN)
            context = min(context or room, room)
        if self.dynamic_split_fuse:
            return context
        # An answer that has yielded its slot comes back as a prompt with all tokens.
        return min(context or self.max_num_batched_tokens, self.max_num_batched_tokens)

    @property
    def max_running_of_key(self) -> int:
        """How many answers of a key may run beside other keys; with `strict_share` always."""
        return max(1, math.ceil(self.max_share * self.max_running))

    @property
    def max_answers_of_request(self) -> int:
        """How many answers an idle engine takes of one request."""
        return self.max_running + min(self.max_waiting, self.max_waiting_per_key)

    def __post_init__(self) -> None:
        for sentence in _conflicts(self):
            raise ValueError(sentence)


def _conflicts(options: EngineOptions) -> Iterator[str]:
    """Yield a sentence for each pair of options that GenAI 2026.4.1 cannot combine, and for each
    option that lacks a necessary other."""
    drafting = [each for each in _DRAFTING if getattr(options, each)]
    if len(drafting) > 1:
        yield f"{' and '.join(drafting)} exclude each other: choose one"
    for name in ("draft_device", "draft_scheduler"):
        if getattr(options, name) and not options.draft_folder:
            yield f"{name} is for a draft model, and there is none: set draft_model, too"
    if not options.dynamic_split_fuse and options.max_running > options.max_num_batched_tokens:
        yield (
            "without dynamic_split_fuse, max_num_batched_tokens must be at least max_running: a "
            "step has a token of each answer"
        )
    yield from _conflicts_of_eviction(options)
    yield from _conflicts_of_parameters(options)
    sparse = options.sparse_attention
    if sparse is not None and sparse.mode == "xattention" and options.draft_folder:
        yield (
            f"sparse_attention with the mode xattention and {drafting[0]} exclude each other: "
            "choose trishape, or leave one out"
        )


def _conflicts_of_eviction(options: EngineOptions) -> Iterator[str]:
    eviction = options.cache_eviction
    if eviction is None:
        return
    if options.enable_prefix_caching:
        yield (
            "cache_eviction and enable_prefix_caching exclude each other, because a context with "
            "gaps is no beginning of another prompt: set enable_prefix_caching to false, too"
        )
    for name in ("draft_model", "eagle3_head"):
        if getattr(options, name):
            yield f"cache_eviction and {name} exclude each other: choose one"
    if eviction.apply_rotation and not options.cache_size_gb:
        yield "cache_eviction with apply_rotation needs a cache of fixed size: set cache_size_gb"


# Options of the gateway alone: they count from the next request on, and no engine restarts.
_OF_GATEWAY: Final = frozenset(
    {
        *("max_queue_s", "share_prefix_cache", "max_tokens_limit", "clamp_max_tokens"),
        *("defaults", "minima", "maxima", "best_of_limit", "trust_request_chat_template"),
        *("output_format", "chat_template", "max_image_pixels"),
        *("query_prefix", "document_prefix"),
    }
)


def of_engine(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _OF_GATEWAY}


# The options of some tasks only. Others are for all.
_OF_EMBEDDINGS: Final = ("pooling", "normalize", "query_prefix", "document_prefix")
_OF_ALL: Final = (
    *("max_waiting", "max_waiting_per_key", "num_threads", "step_timeout_s", "load_timeout_s"),
    *("max_context", "plugin"),
)
_TASKS: Final = {
    **dict.fromkeys(_OF_EMBEDDINGS, frozenset({Task.EMBEDDINGS})),
    "max_batch_tokens": POOLING_TASKS,
    **dict.fromkeys(_OF_ALL, frozenset(Task)),
}


def tasks_of_option(name: str) -> frozenset[Task]:
    return _TASKS.get(name, GENERATION_TASKS)


# What options are for, from this one on, in the order in which forms show them.
_BEGINNINGS: Final = {
    "cache_size_gb": "Memory",
    "max_running": "Batching",
    "max_waiting": "Limits",
    "draft_model": "Speculation",
    "defaults": "Prompts and answers",
    "max_image_pixels": "Pictures",
    "pooling": "Vectors",
    "num_threads": "Device",
}


def _purposes() -> Iterator[tuple[str, str]]:
    purpose = ""
    for name in EngineOptions.__struct_fields__:
        purpose = _BEGINNINGS.get(name, purpose)
        yield name, purpose


PURPOSES: Final = dict(_purposes())


def _conflicts_of_parameters(options: EngineOptions) -> Iterator[str]:
    defaults, least, most = (
        {} if each is None else each.named
        for each in (options.defaults, options.minima, options.maxima)
    )
    for name in least.keys() & most.keys():
        if least[name] > most[name]:
            yield f"the minimum of {name} must be at most its maximum"
    for name, value in defaults.items():
        if value < least.get(name, value) or value > most.get(name, value):
            yield f"the default of {name} must be from its minimum to its maximum"
    limit = options.max_tokens_limit
    if limit and defaults.get("max_tokens", 0) > limit:
        yield "the default of max_tokens must be at most max_tokens_limit"


# -- Options as administrators write and read them


def parse_options(values: dict[str, Any], task: Task | None = None) -> EngineOptions:
    """Return the options of a served model. With a `task`, options that have no effect on it are
    wrong. Raises ValueError with a sentence for the user."""
    for name, value in values.items():
        if name not in EngineOptions.__struct_fields__:
            raise ValueError(_unknown(name))
        tasks = tasks_of_option(name)
        if task is not None and task not in tasks and value != getattr(_DEFAULTS, name):
            suits = ", ".join(each for each in Task if each in tasks)
            raise ValueError(
                f"{name} has no effect on this model, which {explanation(task)}. It is an option "
                f"of models for {suits}: leave it out."
            )
    try:
        return msgspec.convert(values, EngineOptions)
    except msgspec.ValidationError as error:
        raise ValueError(_sentence(str(error))) from error


_DEFAULTS: Final = EngineOptions()
# msgspec's names of types in the words of administrators.
_TYPE_NAMES: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "array": "a list",
    "object": "an object",
}
_TYPE: Final = re.compile(rf"\b({'|'.join(_TYPE_NAMES)})\b")


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, EngineOptions.__struct_fields__, n=1)
    known = ", ".join(EngineOptions.__struct_fields__)
    advice = f"Did you mean {near[0]}?" if near else f"There are {known}."
    return f"There is no option {name}. {advice}"


def _sentence(error: str) -> str:
    """Return msgspec's error for administrators, with the path of an option or of a group."""
    text, _, path = error.partition(" - at `$")
    text = text.replace("Object missing required field", "it lacks the member")
    text = text.replace("Object contains unknown field", "it has no member")
    name = path.strip(".`")
    if text.startswith("Expected "):
        named = _TYPE.sub(lambda found: _TYPE_NAMES[found[0]], text.removeprefix("Expected "))
        return f"{name} must be {named.replace('`', '')}."
    if text.startswith("Invalid enum value "):
        kind: Any = EngineOptions
        for part in name.split("."):
            hint = get_type_hints(kind)[part]
            kind = group_type(hint) or hint
        return f"{name}: {text}. It must be one of {', '.join(filter(None, get_args(kind)))}."
    return f"{name}: {text}." if name else f"{text}."


def group_type(kind: Any) -> type[OptionGroup] | None:
    """None: the option is a single value."""
    groups = [each for each in get_args(kind) if isinstance(each, type)]
    return next((each for each in groups if issubclass(each, OptionGroup)), None)


class OptionDocument(NamedTuple):
    name: str  # `group.member` for the member of a group
    default: str  # as JSON; empty: the group needs it
    meaning: str

    @property
    def default_text(self) -> str:
        return f"default: {self.default}" if self.default else "the group needs it"


def option_value(text: str) -> Any:
    """Return the value that a text means: parsed if valid JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def option_documents() -> list[OptionDocument]:
    """Return all options as declared, each group before its members, for command line and admin."""
    return list(_documents(EngineOptions))


def _documents(struct: type[msgspec.Struct], at: str = "") -> Iterator[OptionDocument]:
    hints, kinds = get_type_hints(struct, include_extras=True), get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        has_factory = field.default_factory is not msgspec.NODEFAULT
        value = field.default_factory() if has_factory else field.default
        default = "" if field.required else json.dumps(value)
        meaning = hints[field.name].__metadata__[-1]
        yield OptionDocument(f"{at}{field.name}", default, meaning)
        if (group := group_type(kinds[field.name])) is not None:
            yield from _documents(group, f"{at}{field.name}.")
