"""The configuration of an engine process. The process reads no environment and no database."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

import msgspec

from vinery_serving.core.tasks import GENERATION_TASKS, POOLING_TASKS, Task
from vinery_serving.engine.compiled_cache import compiled_folder
from vinery_serving.engine.options import EngineOptions

# The modules that run as engine processes.
ENGINE_MODULES: Final = {
    **dict.fromkeys(GENERATION_TASKS, "vinery_serving.engine"),
    **dict.fromkeys(POOLING_TASKS, "vinery_serving.engine.kinds.vectors"),
}


class EngineLog(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how an engine logs."""

    path: Path
    is_json: bool = False
    level: str = "INFO"
    max_bytes: int = 10 << 20  # of a file
    num_files: int = 5  # the present one and the older ones


class PoolingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine makes vectors of the states of tokens."""

    pooling: Literal["cls", "mean", "last_token"] = "cls"
    normalizes: bool = True
    pad_id: int = 0  # the token after the end of shorter texts


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of an engine process, which it reads from its standard input."""

    name: str
    folder: Path
    device: str
    socket_path: Path
    cache_dir: Path
    usage_dir: Path | None = None  # the gateways' usage journals; None: there are none
    max_context: int  # tokens, prompt and output together; 0: unknown
    options: EngineOptions
    task: Task = Task.CHAT
    pooling: PoolingConfig = PoolingConfig()  # of an embeddings or rerank model
    log: EngineLog | None = None  # None: standard error
    heartbeat_fd: int | None = None  # the page that the engine shares with its node
    temporary_dir: Path | None = None  # None: that of the system
    # Of this configuration and the code. A new node keeps an engine whose digest is the right one.
    digest: str = ""

    @property
    def compiled_dir(self) -> Path:
        """OpenVINO's cache folder for this engine. Raises RuntimeError without the files."""
        options = self.options
        named = (options.draft_model, *(each.path for each in options.adapters))
        files = [self.folder, *(Path(each) for each in named if each)]
        return compiled_folder(self.cache_dir, files, (self.device, options))

    @classmethod
    def from_json(cls, text: bytes) -> EngineConfig:
        """Raises msgspec.ValidationError."""
        return msgspec.json.decode(text, type=cls, dec_hook=lambda kind, value: kind(value))

    def to_line(self) -> bytes:
        """Return the document that `from_json` reads, as one line."""
        return msgspec.json.encode(self, enc_hook=str) + b"\n"


def read_line(fd: int) -> bytes:
    """Return the first line, and read nothing behind it; b"" if the pipe ended before the end of
    the line."""
    line = bytearray()
    while byte := os.read(fd, 1):
        if byte == b"\n":
            return bytes(line)
        line += byte
    return b""
