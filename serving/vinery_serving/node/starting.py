"""The code and the start of engine processes, and a spare process that waits for a model.

A node adopts an engine only if it would start the same engine: a digest covers configuration,
environment and code.

To start Python and to import OpenVINO takes a third of the time in which a small model wakes, and
is the same for all models. So while a model is asleep, the node has one spare process with these
imports, and the model that wakes next gets the spare process.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from subprocess import PIPE
from typing import Final

from msgspec import structs

from vinery_serving.core.tasks import Task
from vinery_serving.engine.config import ENGINE_MODULE, KINDS, EngineConfig
from vinery_serving.processes.child import ChildProcess, environment_with
from vinery_serving.processes.heartbeat import Page
from vinery_serving.processes.logs.file import open_log

log = logging.getLogger(__name__)

# How long an engine has to end by itself.
END_TIMEOUT_S: Final = 3.0
# A spare process is started when no model has been loading for so long: it would compete for cores.
_CALM_S: Final = 1.0
# Stands for a model's name in the list of processes.
_SPARE: Final = "spare"
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
    of the page. Raises OSError."""
    path = None if config.log is None else config.log.path
    with opened_log(path, None) as stderr:
        return _start(config.name, KINDS[config.task], environment, page, stderr)


def _start(
    name: str, kind: str, environment: Mapping[str, str], page: Page, stderr: int | None = None
) -> ChildProcess:
    """The engine has its own session: a kill of the node's processes does not reach the engine."""
    return ChildProcess(
        (sys.executable, "-m", ENGINE_MODULE, name, kind),
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


class SpareEngines:
    def __init__(self) -> None:
        self._spare: ChildProcess | None = None
        self._is_wanted = False
        self._following: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Of the process that is there; None: there is none, or it has ended."""
        spare = self._spare
        return None if spare is None or spare.has_ended else spare.pid

    def take(self) -> ChildProcess | None:
        spare, self._spare = self._spare, None
        if spare is not None and spare.has_ended:
            spare.close()
            return None
        return spare

    def want(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        has_one = self.pid is not None
        if is_wanted != has_one and (self._following is None or self._following.done()):
            self._following = asyncio.create_task(self._follow(), name="spare engine")

    def fill(self) -> None:
        try:
            self._spare = _start(_SPARE, KINDS[Task.CHAT], environment_with(), Page.new(0.0))
        except OSError as error:
            log.warning("no spare engine process: %s", error)

    async def close(self) -> None:
        self._is_wanted = False
        if self._following is not None:
            await asyncio.gather(self._following, return_exceptions=True)
        await self._drop()

    async def _follow(self) -> None:
        if not self._is_wanted:
            await self._drop()
            return
        await asyncio.sleep(_CALM_S)
        if self._is_wanted and self.pid is None:
            await self._drop()
            self.fill()

    async def _drop(self) -> None:
        if (spare := self.take()) is not None:
            await spare.end(END_TIMEOUT_S)
