"""All that an engine process is told: it reads no environment and no database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an administrator may set for a model. Every default serves a laptop.

    `max_num_batched_tokens` is the token budget of one step: smaller steps keep running
    streams smooth while a long prompt is read, larger ones read prompts faster.
    """

    max_running: int = 64
    max_waiting: int = 512
    max_num_batched_tokens: int = 256
    cache_size_gb: int = 0  # 0: the cache grows as it is needed
    enable_prefix_caching: bool = True
    num_threads: int = 0  # 0: all cores
    step_timeout_s: float = 120.0  # a step that takes longer is a hang
    load_timeout_s: float = 600.0
    # Tokens made within this time of each other travel together (longer with many streams,
    # see the loop). Steps of most models take longer anyway; those of tiny ones would wake
    # gateway and client a thousand times a second.
    flush_interval_ms: float = 10.0
    max_context: int = 0  # tokens; 0: what the model's config.json says
    output_format: str = ""  # name of a family in serving.output.formats; "": detect
    plugin: dict[str, Any] = {}  # OpenVINO properties, passed on as they are

    def __post_init__(self) -> None:
        for name in ("max_running", "max_num_batched_tokens", "step_timeout_s", "load_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")
        for name in (
            "max_waiting",
            "cache_size_gb",
            "num_threads",
            "flush_interval_ms",
            "max_context",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of an engine process, as one JSON document."""

    name: str
    folder: Path
    device: str
    socket_path: Path
    cache_dir: Path
    max_context: int  # tokens, prompt and output together; 0: unknown
    options: EngineOptions

    @classmethod
    def from_json(cls, text: str) -> EngineConfig:
        """Raises msgspec.ValidationError."""
        return msgspec.json.decode(text, type=cls, dec_hook=_decode_path)

    def to_json(self) -> str:
        """What `from_json` reads."""
        return msgspec.json.encode(self, enc_hook=str).decode()


def _decode_path(kind: type, value: object) -> Path:
    if kind is not Path or not isinstance(value, str):
        raise NotImplementedError(f"no rule to read {kind}")
    return Path(value)


def parse_options(values: dict[str, Any]) -> EngineOptions:
    """The options in a served model's row. Raises ValueError with a sentence."""
    try:
        return msgspec.convert(values, EngineOptions)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
