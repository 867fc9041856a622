"""The configuration of an engine process, and its folder of compiled graphs. OpenVINO names a
compiled graph by its source, but leaves out the numbers in LoRA adapters (2026.4.1). So the folder
of compiled graphs is named by all files and options of the engine. Earlier folders are removed,
since each may be as large as the weights."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Final, Literal

import msgspec

from vinery_serving.core.model_files import folder_state
from vinery_serving.core.tasks import GENERATION_TASKS, POOLING_TASKS, Task
from vinery_serving.engine.options import EngineOptions
from vinery_serving.processes.calls import Act
from vinery_serving.processes.confine import Needs

ENGINE_MODULE: Final = "vinery_serving.engine"  # the module that runs as an engine process
# The files of `engine.kinds` whose class loads the models of a task.
KINDS: Final = {
    **dict.fromkeys(GENERATION_TASKS, "text"),
    **dict.fromkeys(POOLING_TASKS, "vectors"),
}
# Drivers ask the kernel for the devices of these folders.
_DEVICES: Final = (Path("/dev/dri"), Path("/dev/accel"))
_OF_DRIVERS: Final = (Path("/etc/OpenCL"), Path("/opt/intel"))


class EngineLog(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    is_json: bool = False
    level: str = "INFO"
    max_bytes: int = 10 << 20  # of a file
    num_files: int = 5  # the present one and the older ones


class PoolingConfig(msgspec.Struct, frozen=True, kw_only=True):
    pooling: Literal["cls", "mean", "last_token"] = "cls"
    normalizes: bool = True
    pad_id: int = 0  # the token after the end of shorter texts


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    folder: Path
    device: str
    socket_path: Path
    socket_key: bytes  # see `transport.handshake`
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
    def named_paths(self) -> Iterator[Path]:
        """What the options name beside the folder of the model."""
        options = self.options
        named = (options.draft_folder, *(each.path for each in options.adapters))
        return (Path(each) for each in named if each)

    @property
    def compiled_dir(self) -> Path:
        """OpenVINO's cache folder for this engine; all other folders are removed."""
        states = folder_state([self.folder, *self.named_paths])
        source = msgspec.json.encode((states, self.device, self.options))
        folder = self.cache_dir / "compiled" / sha256(source).hexdigest()[:16]
        if folder.parent.is_dir():
            for other in set(folder.parent.iterdir()) - {folder}:
                rmtree(other) if other.is_dir() else other.unlink()
        return folder

    @classmethod
    def from_json(cls, text: bytes) -> EngineConfig:
        """Raises msgspec.ValidationError."""
        return msgspec.json.decode(text, type=cls, dec_hook=lambda kind, value: kind(value))

    def to_line(self) -> bytes:
        return msgspec.json.encode(self, enc_hook=str) + b"\n"


def needs_of(config: EngineConfig) -> Needs:
    """What an engine with a bound socket needs. Other engines compile for the same folder. A node
    that adopts the engine takes the page from it."""
    options, log = config.options, config.log
    reads = [config.folder, Path("/proc"), Path("/sys"), *config.named_paths]
    folders = (config.cache_dir, Path(tempfile.gettempdir()), config.usage_dir)
    config.cache_dir.mkdir(parents=True, exist_ok=True)
    has_driver = config.device != "CPU" or options.draft_device not in ("", "CPU")
    return Needs(
        reads=(*reads, *(_OF_DRIVERS if has_driver else ())),
        writes=[each for each in (*folders, log and log.path.parent) if each],
        devices=_DEVICES if has_driver else (),
        # OpenVINO changes the modes of compiled graphs, which is not needed.
        acts=frozenset((Act.ACCEPT, Act.OUTLIVE, Act.COPY)),
        descriptors=None,  # those that the node has handed down
        is_dumpable=True,
    )


def read_line(fd: int) -> bytes:
    """Return the first line, and read nothing behind it; b"" if the pipe ended before the end of
    the line."""
    line = open(fd, "rb", buffering=0, closefd=False).readline()  # noqa: SIM115
    return line[:-1] if line.endswith(b"\n") else b""


@contextmanager
def alone(cache_dir: Path) -> Iterator[None]:
    """Let no other engine write to the folder meanwhile: engines of one model may start side by
    side. Raises OSError."""
    cache_dir.mkdir(parents=True, exist_ok=True)
    with (cache_dir / "lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield
