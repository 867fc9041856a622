"""One engine process, from start or adoption to its end, as the node sees the engine.

A node adopts an engine only if it would start the same engine: a digest covers configuration,
environment and code.

To start Python and to import OpenVINO takes a third of the time in which a small model wakes, and
is the same for all models. So while a model is asleep, the node has one spare process with these
imports, and the model that wakes next gets the spare process.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from subprocess import PIPE
from typing import Final, NoReturn

from msgspec import structs

from vinery_serving.core.tasks import GENERATION_TASKS, Task
from vinery_serving.engine.config import ENGINE_MODULE, KINDS, EngineConfig
from vinery_serving.node.adoption import AdoptedEngine
from vinery_serving.processes.child import ChildProcess, RunningProcess, environment_with
from vinery_serving.processes.heartbeat import DRAIN_SIGNAL, Page
from vinery_serving.processes.logs.file import open_log
from vinery_serving.transport.client import EngineClient, EngineDisconnected
from vinery_serving.transport.sockets import UnixAddress

log = logging.getLogger(__name__)

# More than the engine gives a test beside requests.
_TEST_TIMEOUT_S: Final = 75.0
# How a process ends that did not end by its own mistake.
_KILLED: Final = (-signal.SIGKILL, -signal.SIGTERM)
# Lets glibc ask for huge pages. The processor then reads weights with fewer look-ups of addresses.
_HUGE_PAGES: Final = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
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
        environment={**_HUGE_PAGES, **environment},
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


class EngineDied(Exception):
    """The engine did not load, ended, or hung and was killed. The message gives the reason."""

    def __init__(self, reason: str, *, is_killed: bool = False) -> None:
        super().__init__(reason)
        self.is_killed = is_killed  # by a signal from outside of the node


class EngineProcess:
    """Call `start` or `adopt`, then `watch` until it raises, and `end` in any case."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        replaces_hung: bool = True,
        spares: SpareEngines | None = None,
    ) -> None:
        """With `spares`, the engine starts in a spare process."""
        # For temporary files. A killed engine cannot remove them: the next one begins with none.
        self._temporary = config.socket_path.with_suffix(".tmp")
        self._environment = environment_with()
        config = structs.replace(config, temporary_dir=self._temporary)
        self._config = with_digest(config, self._environment)
        self._spares = spares if config.task in GENERATION_TASKS else None
        self._replaces_hung = replaces_hung
        self._engine: RunningProcess | None = None
        self.picture_failure = ""  # `Hello.picture_failure`

    @property
    def pid(self) -> int | None:
        return None if self._engine is None else self._engine.pid

    @property
    def idle_since_s(self) -> float | None:
        """When the last request ended, in seconds of the monotonic clock; None: busy or unknown."""
        return None if self._page is None else self._page.idle_since_s

    @property
    def is_draining(self) -> bool:
        return self._page is not None and self._page.is_draining

    @property
    def _page(self) -> Page | None:
        return None if self._engine is None else self._engine.page

    def drain(self) -> None:
        if self._engine is not None:
            self._engine.send_signal(DRAIN_SIGNAL)

    async def start(self) -> None:
        """Start the process and wait until it serves. Raises EngineDied."""
        self._remove_temporary()
        try:
            self._temporary.mkdir(mode=0o700)
        except OSError as error:
            raise EngineDied(f"It has no folder for temporary files: {error.strerror}.") from None
        timeout_s = self._config.options.load_timeout_s
        try:
            spare = None if self._spares is None else self._spares.take()
            engine = self._engine = spare or start_engine(
                self._config, self._environment, Page.new(timeout_s)
            )
        except OSError as error:
            raise EngineDied(f"It could not start: {error.strerror}.") from None
        assert engine.page is not None
        engine.page.beat(timeout_s)
        config = structs.replace(self._config, heartbeat_fd=engine.page.fd)
        await engine.write(config.to_line())
        self._watch_hangs()
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_ready(engine)
        except TimeoutError:
            raise EngineDied(f"It did not load within {timeout_s:g} s.") from None

    async def adopt(self, engine: AdoptedEngine) -> bool:
        """Take over a running engine. Returns False if the engine has ended, or was ended because
        this node would not start the same engine."""
        self.keep(engine)
        # The watch ends an engine that does not answer because it stands still.
        timeout_s = self._config.options.step_timeout_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                hello = await engine.hello()
                if hello is not None and hello.digest == self._config.digest:
                    self.picture_failure = hello.picture_failure
                    return True
        await self.end()
        return False

    def keep(self, engine: AdoptedEngine) -> None:
        self._engine = engine
        engine.page = Page.of_running(engine.pid)
        self._watch_hangs()

    async def test_pictures(self) -> str:
        """Let the engine, which serves, show its model known pictures. Returns the failure; empty:
        it has passed."""
        client = EngineClient(UnixAddress(self._config.socket_path), self._config.socket_key)
        client.open()
        try:
            await client.wait_connected(_TEST_TIMEOUT_S)
            failure = await client.test_pictures(_TEST_TIMEOUT_S)
        except EngineDisconnected:
            failure = "The engine ended during the test."
        except TimeoutError:
            failure = f"The engine did not answer within {_TEST_TIMEOUT_S:g} s. Try it again."
        finally:
            await client.close()
        return failure

    async def watch(self) -> NoReturn:
        """Wait until the process ends, also because it hung, then raise EngineDied."""
        engine = self._engine
        assert engine is not None
        raise EngineDied(_why_ended(engine, await engine.wait()))

    async def end(self) -> None:
        if self._engine is not None:
            await self._engine.end(END_TIMEOUT_S)
        self._engine = None
        self._remove_temporary()
        self._config.socket_path.unlink(missing_ok=True)  # the next one may listen elsewhere

    def _remove_temporary(self) -> None:
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _watch_hangs(self) -> None:
        if self._engine is not None and self._replaces_hung:
            self._engine.fields = {"model": self._config.name, "pid": self._engine.pid}
            self._engine.watch()

    async def _wait_ready(self, engine: ChildProcess) -> None:
        line = await (await engine.output()).readline()
        if not line:
            status = await engine.wait()
            why = _why_ended(engine, status)
            is_killed = status in _KILLED and engine.hang is None
            advice = f"See: vinery logs --model {self._config.name}"
            text = f"{why} It had not loaded yet. {advice}"
            raise EngineDied(text, is_killed=is_killed)
        report = json.loads(line)
        if report["event"] != "ready":
            raise EngineDied(report["error"])
        self.picture_failure = report.get("picture_failure", "")


def _why_ended(engine: RunningProcess, status: int | None) -> str:
    if engine.hang is not None:
        return f"The engine stood still for {engine.hang.silent_s:.1f} s: {engine.hang.reason}."
    how = "" if status is None else f" with status {status}"
    return f"The engine process ended{how}."
