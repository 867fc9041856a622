"""The code and the start of engine processes.

A node adopts an engine only if it would start the same engine: a digest covers configuration,
environment and code.
"""

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from subprocess import PIPE
from typing import Final

from msgspec import structs

from vinery_serving.engine.config import ENGINE_MODULE, KINDS, EngineConfig
from vinery_serving.processes.child import ChildProcess
from vinery_serving.processes.heartbeat import Page
from vinery_serving.processes.logs.file import open_log

# How long an engine has to end by itself.
END_TIMEOUT_S: Final = 3.0
_SERVING: Final = Path(__file__).resolve().parents[1]
# The rooms of which engine processes consist.
_ROOMS: Final = ("core", "engine", "processes", "transport")
_PACKAGES: Final = ("openvino", "openvino-genai", "openvino-tokenizers")


def with_digest(config: EngineConfig, environment: Mapping[str, str]) -> EngineConfig:
    plain = structs.replace(config, digest="", heartbeat_fd=None)
    parts = (plain.to_line(), repr(sorted(environment.items())).encode(), _code())
    return structs.replace(config, digest=hashlib.sha256(b"\0".join(parts)).hexdigest())


@cache
def _code() -> bytes:
    """The state of the code when this process first asked for it."""
    files = sorted(path for room in _ROOMS for path in (_SERVING / room).rglob("*.py"))
    states = [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files]
    versions = [metadata.version(name) for name in _PACKAGES]
    return repr((sys.version, versions, states)).encode()


def start_engine(config: EngineConfig, environment: Mapping[str, str], page: Page) -> ChildProcess:
    """Start a process that reads this configuration from its standard input, with the descriptor
    of the page. It has its own session, so a kill of the node's processes does not reach it. Raises
    OSError."""
    path = None if config.log is None else config.log.path
    with opened_log(path, None) as stderr:
        return ChildProcess(
            (sys.executable, "-m", ENGINE_MODULE, config.name, KINDS[config.task]),
            "engine",
            environment=environment,
            stdin=PIPE,
            stdout=PIPE,
            stderr=stderr,
            page=page,
        )


@contextlib.contextmanager
def opened_log(path: Path | None, otherwise: int | None) -> Iterator[int | None]:
    """The standard error of a process: its log file, or `otherwise` if that cannot be opened."""
    try:
        fd = None if path is None else open_log(path)
    except OSError:
        fd = None
    try:
        yield otherwise if fd is None else fd
    finally:
        if fd is not None:
            os.close(fd)
