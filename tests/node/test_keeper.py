"""How often one model's engine is tried, and what administrators see. The pauses pass at once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.fakes.clock import FakeClock
from tests.tables import table
from vinery_serving.core.model_files import FolderState
from vinery_serving.core.tasks import Task
from vinery_serving.models.engine_status import EngineState
from vinery_serving.node import fit, keeper, status
from vinery_serving.node.adoption import AdoptedEngine
from vinery_serving.node.engine_process import EngineDied
from vinery_serving.node.fit import EngineFacts, Measured, Need
from vinery_serving.node.former import FormerEngines
from vinery_serving.node.keeper import Keeper, LiveSettings, ModelSpec
from vinery_serving.node.load_errors import LoadAttempts, killed
from vinery_serving.node.scheduler import EngineScheduler
from vinery_serving.node.status import Subject

SPEC = ModelSpec(7, "chat", "/models/chat", "CPU", "{}", Task.CHAT)
MEMORY = EngineDied("std::bad_alloc")
UNKNOWN_DEVICE = EngineDied('Device with "X" name is not registered')
KILLED = EngineDied("The engine process ended with status -9.", is_killed=True)
CUT = ValueError("The weights file is cut")
ASKED = LiveSettings()
LOADS, CRASHES = "loads", "loads and crashes"
End = Exception | str

NO_MEMORY = "There is not enough memory to load this model now"
LOADING, READY, ASLEEP = EngineState.LOADING, EngineState.READY, EngineState.ASLEEP
RETRYING, FAILED = EngineState.RETRYING, EngineState.FAILED


class Script:
    """The events of a model: ends of engines, changes of files, wishes of administrators."""

    def __init__(self) -> None:
        self.clock = FakeClock(0)
        self.ends: Iterator[End] = iter(())
        self.files: dict[float, FolderState] = {0: ()}  # from these times on
        self.asked_at = float("inf")  # when an administrator tries again
        self.attempt_s = 0.0  # how long an attempt takes
        self.started_at: list[float] = []
        self.num_tests = 0  # with pictures
        self.failures: list[str] = []  # of tests with pictures, that were reported
        self.is_reported = asyncio.Event()
        self.reports: list[tuple[EngineState, str]] = []  # with the first sentence of the error
        self.end: End = LOADS
        self.is_over = asyncio.Event()
        self.is_drained = asyncio.Event()
        self.has_reported = asyncio.Event()
        self.need = Need(10, 0, Measured(10, 10))

    def folder_state(self, _: object) -> FolderState:
        return next(self.files[at] for at in sorted(self.files, reverse=True) if at <= self.clock())

    def new_config(self, *_: object) -> Any:
        """Begin an attempt."""
        self.started_at.append(self.clock())
        self.end = next(self.ends)
        self.clock.pass_s(self.attempt_s)
        if isinstance(self.end, ValueError):
            raise self.end
        return SimpleNamespace(max_context=2048)

    async def read_facts(self, *_: object, **__: object) -> EngineFacts:
        return EngineFacts()

    async def is_asked_within(self, a_keeper: Keeper, timeout_s: float) -> bool:
        """Let the pause pass at once. After a minute without an attempt, the test is over."""
        self.clock.pass_s(timeout_s)
        await asyncio.sleep(0)
        if self.clock() > self.started_at[-1] + 60:
            self.is_over.set()
            await asyncio.sleep(60)
        if self.clock() >= self.asked_at:
            self.asked_at = float("inf")
            a_keeper.follow(LiveSettings(retried_at=datetime(2026, 3, 1, tzinfo=UTC)))
        return a_keeper._asked.is_set()

    async def report(
        self, _: Subject, state: EngineState, __: int, attempts: LoadAttempts, **details: Any
    ) -> None:
        error = self.reports[-1][1] if self.reports else ""
        if details.get("forgets_error") or state is READY:
            error = ""
        error = details.get("error", error).partition(".")[0]
        if not self.reports or self.reports[-1] != (state, error):
            self.reports.append((state, error))
        self.has_reported.set()

    async def until(self, state: EngineState) -> None:
        """Wait until this is the last report."""
        while not self.reports or self.reports[-1][0] is not state:
            self.has_reported.clear()
            await self.has_reported.wait()

    async def report_pictures(self, _: Subject, failure: str, __: datetime) -> None:
        self.failures.append(failure)
        self.is_reported.set()


class ScriptedEngine:
    """Ends as the script has it."""

    pid = 4242
    picture_failure = ""
    idle_since_s = 0.001  # since the machine started

    def __init__(self, script: Script) -> None:
        self._script = script
        self.is_draining = False

    def drain(self) -> None:
        self.is_draining = True
        self._script.is_drained.set()

    async def start(self) -> None:
        self._script.is_drained.clear()
        if isinstance(self._script.end, Exception):
            raise self._script.end

    async def test_pictures(self) -> str:
        self._script.num_tests += 1
        await asyncio.sleep(0)
        return "Red and blue look alike."

    async def watch(self) -> None:
        if self._script.end == CRASHES:
            raise EngineDied("It crashed.")
        self._script.is_over.set()
        await asyncio.wait_for(self._script.is_drained.wait(), 60)
        raise EngineDied("It ended.")

    async def end(self) -> None:
        pass


def scripted(monkeypatch: pytest.MonkeyPatch) -> Script:
    script = Script()

    async def is_asked_within(self: Keeper, timeout_s: float) -> bool:
        return await script.is_asked_within(self, timeout_s)

    monkeypatch.setattr(Keeper, "_new_engine", lambda *_: ScriptedEngine(script))
    monkeypatch.setattr(keeper, "folder_state", script.folder_state)
    monkeypatch.setattr(keeper, "_new_config", script.new_config)
    monkeypatch.setattr(keeper, "read_facts", script.read_facts)
    monkeypatch.setattr(keeper, "_estimate_need", lambda *_: script.need)
    monkeypatch.setattr(fit, "measure", lambda *_: None)
    monkeypatch.setattr(status, "report", script.report)
    monkeypatch.setattr(status, "report_pictures", script.report_pictures)
    monkeypatch.setattr(Keeper, "_is_asked_within", is_asked_within)
    return script


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return scripted(monkeypatch)


@asynccontextmanager
async def keeping(
    asked: LiveSettings = ASKED, budget_bytes: int = 1 << 40, found: AdoptedEngine | None = None
) -> AsyncIterator[Keeper]:
    scheduler = EngineScheduler({"CPU": budget_bytes}, min_awake_s=0)
    planning = asyncio.create_task(scheduler.run())
    yield Keeper(SPEC, found, asked, scheduler, FormerEngines(scheduler))
    planning.cancel()


async def live(script: Script, *ends: End) -> list[tuple[EngineState, str]]:
    """Let engines end so. Returns the reports until one stays, or nothing happens any more."""
    script.ends = iter(ends)
    async with keeping() as a_keeper:
        await asyncio.wait_for(script.is_over.wait(), 30)
        reports = list(script.reports)
        await a_keeper.end()
    assert script.reports[-1][0] is EngineState.UNLOADED
    return reports


AGAIN = [(LOADING, ""), (RETRYING, NO_MEMORY)]
WAS_KILLED = RETRYING, killed("").text.partition(".")[0]
NO_DEVICE = [(LOADING, ""), (FAILED, "OpenVINO knows no device X")]
LOADED = [(LOADING, ""), (READY, "")]
DURING = {"attempt_s": 5, "files": {0: (), 3: (("new", 1, 1, 1),)}}


@table(
    "ends, changes, reports, started_at",
    [
        # A model that cannot load is tried again without flicker, and stays failed.
        ([MEMORY] * 4, {}, [*AGAIN, (FAILED, NO_MEMORY)], [0, 1, 6, 26]),
        # A failure that no attempt can heal is final at once, and without an engine for such files.
        ([UNKNOWN_DEVICE], {}, NO_DEVICE, [0]),
        ([CUT], {}, [(FAILED, str(CUT))], [0]),
        # An administrator ends a pause or a failure, and gets a new series of attempts.
        (
            *([*[MEMORY] * 5, LOADS], {"asked_at": 6}),
            *([*AGAIN * 2, (READY, "")], [0, 1, 6, 7, 12, 32]),
        ),
        ([UNKNOWN_DEVICE, LOADS], {"asked_at": 40}, [*NO_DEVICE, *LOADED], [0, 40]),
        # An engine that is killed while it loads is started soon again.
        ([KILLED, KILLED, LOADS], {}, [LOADED[0], WAS_KILLED, LOADED[1]], [0, 0.1, 0.3]),
        (
            *([OSError(24, "Too many open files"), LOADS], {}),
            [(LOADING, ""), (RETRYING, "[Errno 24] Too many open files"), (READY, "")],
            [0, 1],
        ),
        # After one that had loaded, a new start begins a new series.
        (
            *([MEMORY, MEMORY, CRASHES, MEMORY, MEMORY, LOADS], {}),
            [*AGAIN, (READY, ""), (LOADING, "It crashed"), AGAIN[1], (READY, "")],
            [0, 1, 6, 6, 7, 12],
        ),
        # A file that changes during an attempt counts as a change.
        ([UNKNOWN_DEVICE, LOADS], DURING, [*NO_DEVICE, *LOADED], [0, 9]),
    ],
)
async def test_a_model_is_tried_and_reported_so(monkeypatch, ends, changes, reports, started_at):
    script = scripted(monkeypatch)
    for name, value in changes.items():
        setattr(script, name, value)
    assert await live(script, *ends) == reports
    assert script.started_at == pytest.approx(started_at)


async def test_an_engine_that_had_loaded_is_restarted_after_any_crash(script: Script) -> None:
    reports = await live(script, *[CRASHES] * 6, LOADS)
    assert reports[:4] == [(LOADING, ""), (READY, ""), (LOADING, "It crashed"), (READY, "")]
    assert len(script.started_at) == 7
    assert reports[-1] == (READY, "")


@table("num_steps", range(4))
async def test_an_engine_that_is_found_ends_with_its_keeper_before_adoption(monkeypatch, num_steps):
    scripted(monkeypatch)
    ended: list[object] = []

    class Found:
        async def end(self, _: float) -> None:
            ended.append(self)

    found = cast("AdoptedEngine", Found())
    async with keeping(found=found) as a_keeper:
        for _ in range(num_steps):
            await asyncio.sleep(0)
        await a_keeper.end()

    assert ended == [found]


async def test_a_corrected_model_loads_without_its_old_error(script: Script) -> None:
    script.files = {0: (("cut", 1, 1, 1),), 30: (("whole", 2, 2, 2),)}
    reports = await live(script, CUT, LOADS)
    assert reports == [(FAILED, str(CUT)), (LOADING, ""), (READY, "")]
    assert 30 <= script.started_at[1] <= 35


async def test_files_that_are_being_copied_are_left_alone(script: Script) -> None:
    script.files = {0: (), **{5 + at: (("copied", at, at, 1),) for at in range(20)}}
    await live(script, CUT, LOADS)
    assert 24 <= script.started_at[1] <= 30


async def test_a_test_with_pictures_that_is_due_runs_once(script: Script) -> None:
    script.ends = iter([LOADS])
    asked_at = datetime(2026, 3, 1, tzinfo=UTC)
    async with keeping() as a_keeper, asyncio.timeout(30):
        a_keeper.test_pictures(asked_at)  # it does not serve yet
        assert script.num_tests == 0
        await script.is_over.wait()
        for _ in range(3):
            a_keeper.test_pictures(asked_at)
        await script.is_reported.wait()
        await a_keeper.end()

    assert script.num_tests == 1
    assert script.failures == ["Red and blue look alike."]


async def test_a_sleeping_model_wakes_when_an_administrator_wants_it(script: Script) -> None:
    script.ends = iter([LOADS, LOADS])
    async with keeping(replace(ASKED, idle_limit_s=0.001)) as a_keeper, asyncio.timeout(30):
        await script.is_over.wait()
        await script.until(ASLEEP)
        a_keeper.follow(LiveSettings(retried_at=datetime(2026, 3, 1, tzinfo=UTC)))
        await script.until(READY)
        await a_keeper.end()

    states = LOADING, READY, ASLEEP, LOADING, READY, EngineState.UNLOADED
    assert script.reports == [(state, "") for state in states]


async def test_a_model_that_was_asleep_stays_so_after_a_new_start(script: Script) -> None:
    async with keeping(replace(ASKED, is_asleep=True)) as a_keeper, asyncio.timeout(30):
        await script.until(ASLEEP)
        await a_keeper.end()
    assert script.reports[0] == (ASLEEP, "")
    assert script.started_at == []


async def test_a_model_that_never_fits_fails_with_figures_until_it_is_smaller(script, monkeypatch):
    monkeypatch.setattr(keeper, "_FILES_INTERVAL_S", 0.01)
    script.ends, script.need = iter([LOADS]), Need(2000, 0)
    async with keeping(budget_bytes=1000) as a_keeper, asyncio.timeout(30):
        await script.until(FAILED)
        assert script.reports[-1][1].startswith("It needs about")
        script.need = Need(10, 0, Measured(10, 10))
        await script.until(READY)
        await a_keeper.end()
