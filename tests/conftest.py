"""Shared by all tests: a home folder for the run, and the whole platform, running.

The environment is set here, before anything imports Django's settings.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import psutil
import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests import prepared_home, run_folder, stores
from tests.examples import examples
from tests.fakes.hub import FakeHub

REPOSITORY = Path(__file__).resolve().parents[1]

# Model loading on a busy two-core machine; a healthy start takes a tenth of it.
_START_TIMEOUT_S = 120.0
# More than `make up` promises: the machine is busy, and the watching side slow.
_STOP_TIMEOUT_S = 60.0
# For requests that a test has left behind.
_DRAIN_S = "5"
# Of platforms under test, whose models may have the processor of a test.
_ENVIRONMENT = {"VINERY_PORT": "0", "VINERY_DRAIN_S": _DRAIN_S}
# Commands on models check these, too.
_PROCESSORS = {"VINERY_LOGITS_PROCESSORS": "tests.system.logits_processors:only_token"}
# The client's own limit of 5 s is a matter of chance while other tests keep both processors busy.
_REQUEST_TIMEOUT_S = 60.0
# For how long one thing may keep an event loop from its other clients, by computing and in all: on
# a busy machine another thread may wait for a processor, and the loop for that thread.
_BLOCK = r"event loop stood still for (\d+) ms and computed for (\d+) ms"
_FUNCTION = re.compile(r" of it at (\S+):\d+ (\S+)")  # the file and the function
_MAX_COMPUTED_MS = 250
_MAX_BLOCK_MS = 2000
# In one write of a few hundred bytes to a file the kernel computes, not Vinery: where memory is
# scarce it first reclaims pages, which took 260 ms beside other tests.
_IN_THE_KERNEL = re.compile(r" of it at vinery_accounts/usage/journal\.py:\d+ _write ")
# The loop itself: no single call blocked, but a pass over hundreds of requests that came at once.
_IN_THE_LOOP = re.compile(r" of it at python3\.\d+/asyncio/runners\.py:\d+ run ")
# A new thread had no processor yet, or the thread that looks had none: the machine was busy.
_WITHOUT_PROCESSOR = re.compile(
    r" of it at (an unknown line|(\S+threading\.py:\d+ wait < )+\S+ start )"
)


def clean_environment() -> dict[str, str]:
    """This process's environment without settings of Vinery, but with Vinery's code importable."""
    own = (
        *("VINERY_", "DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE", "SSL_CERT_FILE"),
        # Without bytecode, each process that a test starts would compile all of Vinery.
        "PYTHONDONTWRITEBYTECODE",
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    kept["VINERY_CONFIG"] = os.devnull  # and not the file of the user who runs the tests
    folders = (REPOSITORY, *(REPOSITORY / each for each in ("platform", "serving", "accounts")))
    kept["PYTHONPATH"] = os.pathsep.join(map(str, folders))
    return kept


def _wait_longer_for_answers() -> None:
    """Of all HTTP requests in tests that set no limit. The client shares one object for it."""
    for phase in ("connect", "read", "write", "pool"):
        setattr(DEFAULT_TIMEOUT_CONFIG, phase, _REQUEST_TIMEOUT_S)


def _use_a_home_of_our_own() -> None:
    run_folder.enter()
    tests = {name: value for name, value in os.environ.items() if name.startswith("VINERY_TEST_")}
    environment = clean_environment() | tests | stores.environment_of_tests()
    os.environ.clear()
    os.environ.update(environment)
    os.environ["DJANGO_SETTINGS_MODULE"] = "vinery_platform.settings"
    os.environ["VINERY_HOME"] = tempfile.mkdtemp(prefix="home-")
    # Every HTTP client would read the certificates of the system, in 25 ms, and none needs one.
    os.environ["SSL_CERT_DIR"] = os.environ["VINERY_HOME"]


_use_a_home_of_our_own()
_wait_longer_for_answers()

# These need the environment of the line above.
import django  # noqa: E402
from django.conf import settings as django_settings  # noqa: E402

from vinery_platform.config import secret_files  # noqa: E402
from vinery_platform.config.home import Home  # noqa: E402

Home.from_env().create()
secret_files.create_missing(Home.from_env())
# Here, because the conftest files of rooms import models, and pytest reads those next.
django.setup()

# Django's own tools for tests, which need its settings.
from tests.signed_clients import teach_clients  # noqa: E402

teach_clients()


# Tests never fail for being slow: the machine may be busy with something else. Where all must
# run, the same examples are drawn each time: what fails there is of the change that is tested.
hypothesis_settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("VINERY_TEST_REQUIRE_ALL")),
    max_examples=examples(50),
)
hypothesis_settings.load_profile("patient")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A database in a file: threads cannot share one in memory."""
    default = django_settings.DATABASES["default"]
    if default["ENGINE"] == "django.db.backends.sqlite3":
        folder = tmp_path_factory.mktemp("database")
        default.setdefault("TEST", {})["NAME"] = str(folder / "test.sqlite3")


# -- Garbage ----------------------------------------------------------------------------


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: all of it is kept."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """From now on, leave modules and tests out of each search for garbage."""
    _after_shared.update(_after_last_use(session.items))
    gc.freeze()
    gc.enable()


# -- Tiers ------------------------------------------------------------------------------


_OF_PLATFORMS: Final = ("system", "browser", "guides")  # folders


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests of some folders start a platform, as does each test that uses the shared one."""
    if item.path.parent.name in _OF_PLATFORMS or _uses_shared(item):
        item.add_marker("system")


# -- Order ------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Begin with the files that use the shared platform, which ends after the last such file. Files
    that start other platforms follow, so that no process of xdist ends long before the others.

    pytest-django sorts the tests of each file, too, so this hook sorts afterwards. Tests of several
    hosts are left out on SQLite, which has one.
    """
    if not stores.IS_SCALED:
        items[:] = [each for each in items if each.get_closest_marker("several_hosts") is None]
    yield
    ranks: dict[str, int] = {}
    for item in items:
        ranks[item.location[0]] = min(_rank(item), ranks.get(item.location[0], 2))
    items.sort(key=lambda item: ranks[item.location[0]])


def _rank(item: pytest.Item) -> int:
    if _uses_shared(item):
        return 0
    return 1 if item.get_closest_marker("system") is not None else 2


def _uses_shared(item: pytest.Item) -> bool:
    return "running" in getattr(item, "fixturenames", ())


def _after_last_use(items: Sequence[pytest.Item]) -> Sequence[pytest.Item]:
    """The tests that run when no later one uses the shared platform."""
    uses = (number for number, item in enumerate(items) if _uses_shared(item))
    return items[max(uses, default=-1) + 1 :]


# -- Skips ------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Where everything must run, a skipped test has failed."""
    return _refuse_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """The same for a whole module that is skipped."""
    return _refuse_skip((yield))


def _refuse_skip(report: Any) -> Any:
    is_xfail = hasattr(report, "wasxfail")
    if os.environ.get("VINERY_TEST_REQUIRE_ALL") and report.skipped and not is_xfail:
        report.outcome = "failed"
        report.longrepr = f"Nothing may be skipped here, but: {report.longrepr}"
    return report


# -- A home folder ------------------------------------------------------------------------


@pytest.fixture
def platform_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home folder with its secrets, named by VINERY_HOME."""
    home = Home(tmp_path / "home")
    monkeypatch.setenv("VINERY_HOME", str(home.path))
    home.create()
    secret_files.create_missing(home)
    return home


# -- The whole platform ---------------------------------------------------------------------


@dataclass(frozen=True)
class Running:
    """A platform that is ready."""

    base_url: str
    api_key: str
    admin_user: str
    admin_password: str
    home: Path
    pid: int
    log: Path
    environment: Mapping[str, str]  # of another process of the same installation

    def processes(self, role: str) -> list[psutil.Process]:
        """The processes of one role: web, node, jobs, engine or pooling engine."""
        marks = {
            "engine": ("vinery_serving.engine", "text"),
            "pooling engine": ("vinery_serving.engine", "vectors"),
        }.get(role, ("vinery_platform.cli", role))
        everything = psutil.Process(self.pid).children(recursive=True)
        return [process for process in everything if _has_words(process, marks)]

    def pids(self, role: str) -> list[int]:
        """The ids of these processes."""
        return [process.pid for process in self.processes(role)]

    def kill(self, role: str) -> list[int]:
        """All processes of a role, at once. Returns what their ids were."""
        pids = self.pids(role)
        assert pids, f"no {role} runs"
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return pids

    def family(self) -> list[psutil.Process]:
        """The supervisor with all other processes."""
        supervisor = psutil.Process(self.pid)
        return [supervisor, *supervisor.children(recursive=True)]

    def has_replaced(self, role: str, killed: Sequence[int]) -> bool:
        """Whether there are as many again as were killed."""
        pids = self.pids(role)
        return len(pids) == len(killed) and not set(pids) & set(killed)


@contextmanager
def run_platform(
    home: Path,
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = (sys.executable, "-m", "vinery_platform.cli", "up"),
    *,
    is_first_start: bool = False,
    has_terminal: bool = False,
) -> Iterator[Running]:
    """Start everything as `make up` does, on a free port; at the end, stop it.

    The home is a copy of a prepared one, unless it exists, the environment names another
    database, or the test wants the first start itself. Fails when the platform is not ready
    in time, does not end in time, or leaves a process behind.
    """
    own, clean = dict(environment or {}), clean_environment()
    is_copied = not (is_first_start or "DATABASE_URL" in own)
    at_home = prepared_home.copy_to(home, clean) if is_copied else stores.environment_of(home)
    settings = clean | at_home | _PROCESSORS | own
    log = home.with_name(f"{home.name}.log")
    with _terminal_to(log) if has_terminal else log.open("wb") as output:
        supervisor = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**_ENVIRONMENT, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield _wait_until_ready(supervisor, home, log, settings)
    finally:
        _stop(supervisor, log)


@contextmanager
def _terminal_to(log: Path) -> Iterator[int]:
    """A terminal whose text a thread writes to the log, until all processes have closed it."""
    reader, terminal = pty.openpty()

    def copy() -> None:
        with log.open("wb", buffering=0) as file, suppress(OSError):  # EIO: the terminal is closed
            while text := os.read(reader, 65536):
                file.write(text.replace(b"\r\n", b"\n"))
        os.close(reader)

    log.touch()
    threading.Thread(target=copy, daemon=True).start()
    try:
        yield terminal
    finally:
        os.close(terminal)


_shared: Final = ExitStack()
_after_shared: Final[set[pytest.Item]] = set()


@pytest.fixture(scope="session")
def hub_of_running() -> Iterator[FakeHub]:
    """The hub that the shared platform asks, instead of the public one."""
    with FakeHub() as hub:
        yield hub


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory, hub_of_running: FakeHub) -> Iterator[Running]:
    """One platform for all tests that only use it."""
    home = tmp_path_factory.mktemp("running") / "home"
    with _shared:
        # Large files are at another server than the hub.
        environment = {"HF_ENDPOINT": hub_of_running.endpoint, "VINERY_JOB_NETWORKS": "127.0.0.0/8"}
        yield _shared.enter_context(run_platform(home, environment))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """End the shared platform after its last test: an idle platform takes a twentieth of a core."""
    if item in _after_shared:
        _shared.close()


T = TypeVar("T")


# Twice as long as an engine that no node adopts goes on.
_HAPPENS_WITHIN_S = 60.0


def until(
    condition: Callable[[], T | None],
    *,
    timeout_s: float = _HAPPENS_WITHIN_S,
    pause_s: float = 0.02,
) -> T:
    """The first true value of a condition. Fails when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(pause_s)
        # The condition runs on the same processors as what it waits for.
        pause_s = min(1.5 * pause_s, 0.1)
    return value


async def until_in_loop(condition: Callable[[], object]) -> None:
    """Wait in an event loop for what sets no event. Fails when it does not happen in time."""
    async with asyncio.timeout(_HAPPENS_WITHIN_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def until_in_parts(
    ask: Callable[[], Iterable[T]], is_part: Callable[[T], object], *, at_least: int = 2
) -> list[T]:
    """The items of a stream that has at least so many parts among them.

    A gateway that is behind joins what has come meanwhile, so a short answer may come whole, and
    is asked for again.
    """

    def stream() -> list[T] | None:
        items = list(ask())
        return items if sum(bool(is_part(each)) for each in items) >= at_least else None

    return until(stream)


def _wait_until_ready(
    supervisor: subprocess.Popen[bytes], home: Path, log: Path, settings: Mapping[str, str]
) -> Running:
    file = home / "bootstrap.json"

    def ready() -> Running | None:
        assert supervisor.poll() is None, f"it ended early:\n{_tail(log)}"
        if not file.exists():
            return None
        # After an earlier start the file names a port that is closed,
        # until this start corrects it.
        known = json.loads(file.read_text(encoding="utf-8"))
        if not _is_ready(known["base_url"]):
            return None
        return Running(**known, home=home, pid=supervisor.pid, log=log, environment=settings)

    return until(ready, timeout_s=_START_TIMEOUT_S)


def _is_ready(base_url: str) -> bool:
    try:
        return httpx.get(f"{base_url}/readyz", timeout=5.0).status_code == 200
    except httpx.HTTPError:
        return False


def _stop(supervisor: subprocess.Popen[bytes], log: Path) -> None:
    if supervisor.poll() is None:  # no test has ended it
        _end(supervisor, log)
    assert not (blocks := _long_blocks(log)), f"the event loop stood still: {blocks}"


def _end(supervisor: subprocess.Popen[bytes], log: Path) -> None:
    family = psutil.Process(supervisor.pid).children(recursive=True)
    supervisor.send_signal(signal.SIGTERM)
    try:
        status = supervisor.wait(_STOP_TIMEOUT_S)
    finally:
        supervisor.kill()
        _, left = psutil.wait_procs(family, timeout=5.0)
        orphans = [each for each in left if runs(each)]
        for orphan in orphans:
            orphan.kill()
    assert status == 0, f"it did not end well:\n{_tail(log)}"
    assert not orphans, f"left behind: {orphans}"


def _long_blocks(log: Path) -> list[str]:
    """The lines of the log about an event loop that one function kept for too long, twice.

    A single block may be the machine's: one of 495 ms was seen in a comparison with None. What a
    kernel or a hypervisor does in a page fault counts as computing.
    """
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    blocks = [(_function(line), line) for line in lines if _is_long_block(line)]
    nums = Counter(function for function, _ in blocks)
    return [line for function, line in blocks if nums[function] > 1]


def _function(line: str) -> tuple[str, ...]:
    """The file and the innermost function. Nothing if the watch saw none."""
    match = _FUNCTION.search(line)
    return match.groups() if match else ()


def _is_long_block(line: str) -> bool:
    match = re.search(_BLOCK, line)
    if match is None:
        return False
    if _IN_THE_KERNEL.search(line) or _IN_THE_LOOP.search(line):
        return False
    is_waiting = int(match[1]) > _MAX_BLOCK_MS and not _WITHOUT_PROCESSOR.search(line)
    return int(match[2]) > _MAX_COMPUTED_MS or is_waiting


def runs(process: psutil.Process) -> bool:
    """False for a process that has ended and is not reaped yet."""
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _has_words(process: psutil.Process, words: tuple[str, ...]) -> bool:
    try:
        return set(words) <= set(process.cmdline())
    except psutil.Error:  # it ended while we looked
        return False


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-4000:]
