"""The configuration of an engine process. The process reads no environment and no database."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_type_hints

import msgspec

# The defaults that OVMS documents for speculative decoding, in tokens.
NUM_ASSISTANT_TOKENS: Final = 5
NGRAM_SIZE: Final = 3


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a model, with descriptions for administrators. The defaults suit a laptop."""

    max_running: Annotated[int, "requests that generate at the same time"] = 64
    max_waiting: Annotated[int, "requests that may wait for a slot; further ones are refused"] = 512
    max_num_batched_tokens: Annotated[
        int,
        "tokens in one step: fewer keep running streams smooth while a long prompt is prefilled, "
        "more prefill faster",
    ] = 256
    cache_size_gb: Annotated[int, "memory for the KV cache, in GB; 0: it grows as needed"] = 0
    enable_prefix_caching: Annotated[bool, "compute the common beginning of prompts once"] = True
    num_threads: Annotated[int, "CPU threads; 0: all cores"] = 0
    step_timeout_s: Annotated[
        float, "a step that takes longer is a hang: the engine is restarted"
    ] = 120.0
    load_timeout_s: Annotated[float, "a start that takes longer has failed and is tried again"] = (
        600.0
    )
    # With many streams tokens wait for each other anyway, see `output_sender`.
    flush_interval_ms: Annotated[float, "tokens generated within this time are sent together"] = 0.0
    max_context: Annotated[
        int, "tokens of prompt and output; 0: the number in the model's config.json"
    ] = 0
    max_tokens_limit: Annotated[
        int,
        "the most output tokens of a request, and its number if the request names none; 0: as "
        "many as fit into the context",
    ] = 0
    best_of_limit: Annotated[int, "the most answers of a request, by n or best_of; 0: 128"] = 0
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
    draft_model: Annotated[
        str,
        "folder of a smaller model with the same tokenizer, which proposes tokens that this "
        "model only verifies",
    ] = ""
    prompt_lookup: Annotated[bool, "propose tokens that follow the same words in the prompt"] = (
        False
    )
    logits_processors: Annotated[
        list[str],
        "import paths (package.module:name) of functions that may change token probabilities, "
        "for requests with logits_processors_args or vllm_xargs",
    ] = []
    plugin: Annotated[dict[str, Any], "properties for OpenVINO's plugin, passed on unchanged"] = {}

    def __post_init__(self) -> None:
        if self.draft_model and self.prompt_lookup:
            raise ValueError("draft_model and prompt_lookup exclude each other: choose one")
        for name in ("max_running", "max_num_batched_tokens", "step_timeout_s", "load_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float) and value < 0:
                raise ValueError(f"{name} must not be negative")


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The only argument of an engine process, as a JSON document."""

    name: str
    folder: Path
    device: str
    socket_path: Path
    cache_dir: Path
    usage_dir: Path | None = None  # the gateways' usage journals; None: there are none
    sysfs: Path = Path("/sys")  # where the kernel's energy counters are
    max_context: int  # tokens, prompt and output together; 0: unknown
    options: EngineOptions

    @classmethod
    def from_json(cls, text: str) -> EngineConfig:
        """Raises msgspec.ValidationError."""
        return msgspec.json.decode(text, type=cls, dec_hook=lambda kind, value: kind(value))

    def to_json(self) -> str:
        """Return the document that `from_json` reads."""
        return msgspec.json.encode(self, enc_hook=str).decode()


def parse_options(values: dict[str, Any]) -> EngineOptions:
    """Return the options of a served model. Raises ValueError with a sentence for the user."""
    known = EngineOptions.__struct_fields__
    for name in sorted(values.keys() - set(known)):
        near = difflib.get_close_matches(name, known, n=1)
        advice = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
        raise ValueError(f"There is no option {name}. {advice}")
    try:
        return msgspec.convert(values, EngineOptions)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


class OptionDocument(NamedTuple):
    """What administrators read about one engine option."""

    name: str
    default: str  # as JSON
    meaning: str


def option_documents() -> list[OptionDocument]:
    """Return all options in the order of their declaration, for the command line and the admin."""
    hints = get_type_hints(EngineOptions, include_extras=True)
    return [
        OptionDocument(name, json.dumps(default), hints[name].__metadata__[0])
        for name, default in msgspec.structs.asdict(EngineOptions()).items()
    ]
