"""The life of one model's engine: how often it is tried, and what administrators see meanwhile.

Engines, files and time are scripted; the pauses pass at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.fakes.clock import FakeClock
from vinery_serving.catalog.engine_status import EngineState
from vinery_serving.core.tasks import Task
from vinery_serving.node import fit, keeper, status
from vinery_serving.node.adoption import AdoptedEngine
from vinery_serving.node.backoff import LoadAttempts
from vinery_serving.node.engine_process import EngineDied
from vinery_serving.node.fit import Measured, Need
from vinery_serving.node.folder_state import FolderState
from vinery_serving.node.former import FormerEngines
from vinery_serving.node.keeper import Asked, Keeper, ModelSpec
from vinery_serving.node.picture_report import PictureReport
from vinery_serving.node.scheduler import EngineScheduler
from vinery_serving.node.status import Subject
from vinery_serving.node.weights import UnusableWeights

SPEC = ModelSpec(7, "chat", "/models/chat", "CPU", "{}", Task.CHAT)
MEMORY = EngineDied("std::bad_alloc")
UNKNOWN_DEVICE = EngineDied('Device with "X" name is not registered')
KILLED = EngineDied("The engine process ended with status -9.", is_killed=True)
CUT = UnusableWeights("The weights file is cut")
ASKED = Asked()
LOADS, CRASHES = "loads", "loads and crashes"
End = Exception | str

NO_MEMORY = "There is not enough memory to load this model now"
LOADING, READY, ASLEEP, RETRYING, FAILED = (
    EngineState.LOADING,
    EngineState.READY,
    EngineState.ASLEEP,
    EngineState.RETRYING,
    EngineState.FAILED,
)


class Script:
    """What happens to the model: the ends of its engines, its files, and its administrators."""

    def __init__(self) -> None:
        self.clock = FakeClock(0)
        self.ends: Iterator[End] = iter(())
        self.files: dict[float, FolderState] = {0: ()}  # from these times on
        self.asked_at = float("inf")  # when an administrator tries again
        self.attempt_s = 0.0  # how long an attempt takes
        self.started_at: list[float] = []
        self.num_checks = 0  # of the weights
        self.num_tests = 0  # with pictures
        self.pictures: list[PictureReport] = []  # that were reported
        self.is_reported = asyncio.Event()
        self.reports: list[tuple[EngineState, str]] = []  # with the first sentence of the error
        self.end: End = LOADS
        self.is_over = asyncio.Event()
        self.is_drained = asyncio.Event()
        self.has_reported = asyncio.Event()
        self.need = Need(10, 0, Measured(10, 10))

    def folder_state(self, _: object) -> FolderState:
        return next(self.files[at] for at in sorted(self.files, reverse=True) if at <= self.clock())

    def new_config(self, _: ModelSpec) -> Any:
        """Begin an attempt."""
        self.started_at.append(self.clock())
        self.end = next(self.ends)
        self.clock.pass_s(self.attempt_s)
        return SimpleNamespace(max_context=2048)

    def check_weights(self, _: ModelSpec) -> None:
        self.num_checks += 1
        if isinstance(self.end, UnusableWeights):
            raise self.end

    async def is_asked_within(self, a_keeper: Keeper, timeout_s: float) -> bool:
        """Let the pause pass at once. After a minute without an attempt, the test is over."""
        self.clock.pass_s(timeout_s)
        await asyncio.sleep(0)
        if self.clock() > self.started_at[-1] + 60:
            self.is_over.set()
            await asyncio.sleep(60)
        if self.clock() >= self.asked_at:
            self.asked_at = float("inf")
            a_keeper.follow(Asked(retried_at=datetime(2026, 3, 1, tzinfo=UTC)))
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

    async def until(self, *reported: tuple[EngineState, str]) -> None:
        """Wait until this is the last report."""
        while self.reports[-1:] != list(reported):
            self.has_reported.clear()
            await self.has_reported.wait()

    async def until_state(self, state: EngineState) -> None:
        while not self.reports or self.reports[-1][0] is not state:
            self.has_reported.clear()
            await self.has_reported.wait()

    async def report_pictures(self, _: int, pictures: PictureReport, __: datetime) -> None:
        self.pictures.append(pictures)
        self.is_reported.set()


class ScriptedEngine:
    """Ends as the script has it."""

    pid = 4242
    pictures = None
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

    async def test_pictures(self) -> PictureReport:
        self._script.num_tests += 1
        await asyncio.sleep(0)
        return PictureReport("passed", "All look different.", "CPU")

    async def watch(self) -> None:
        if self._script.end == CRASHES:
            raise EngineDied("It crashed.")
        self._script.is_over.set()
        async with asyncio.timeout(60):
            await self._script.is_drained.wait()
        raise EngineDied("It ended.")

    async def end(self) -> None:
        pass


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    script = Script()

    async def is_asked_within(self: Keeper, timeout_s: float) -> bool:
        return await script.is_asked_within(self, timeout_s)

    monkeypatch.setattr(Keeper, "_new_engine", lambda *_: ScriptedEngine(script))
    monkeypatch.setattr(keeper, "folder_state", script.folder_state)
    monkeypatch.setattr(keeper, "_new_config", script.new_config)
    monkeypatch.setattr(keeper, "_check_weights", script.check_weights)
    monkeypatch.setattr(keeper, "_need_of", lambda *_: script.need)
    monkeypatch.setattr(fit, "measure", lambda *_: None)
    monkeypatch.setattr(status, "report", script.report)
    monkeypatch.setattr(status, "report_pictures", script.report_pictures)
    monkeypatch.setattr(Keeper, "_is_asked_within", is_asked_within)
    return script


@asynccontextmanager
async def keeping(
    asked: Asked = ASKED, budget_bytes: int = 1 << 40, found: AdoptedEngine | None = None
) -> AsyncIterator[Keeper]:
    scheduler = EngineScheduler({"CPU": budget_bytes}, min_awake_s=0)
    planning = asyncio.create_task(scheduler.run())
    yield Keeper(SPEC, found, asked, scheduler, FormerEngines(scheduler))
    planning.cancel()


async def live(script: Script, *ends: End) -> list[tuple[EngineState, str]]:
    """Let engines end so. Returns the reports until one stays, or nothing happens any more."""
    script.ends = iter(ends)
    async with keeping() as a_keeper:
        async with asyncio.timeout(30):
            await script.is_over.wait()
        reports = list(script.reports)
        await a_keeper.end()
    assert script.reports[-1][0] is EngineState.UNLOADED
    return reports


async def test_a_model_that_cannot_load_is_retried_without_flicker_and_stays_failed(
    script: Script,
) -> None:
    reports = await live(script, MEMORY, MEMORY, MEMORY, MEMORY)

    assert reports == [(LOADING, ""), (RETRYING, NO_MEMORY), (FAILED, NO_MEMORY)]
    assert script.started_at == [0, 1, 6, 26]


async def test_a_failure_that_no_attempt_can_heal_is_final_at_once(script: Script) -> None:
    reports = await live(script, UNKNOWN_DEVICE)

    assert reports == [(LOADING, ""), (FAILED, "OpenVINO knows no device X")]
    assert script.started_at == [0]


@pytest.mark.parametrize("num_steps", range(4))
async def test_an_engine_that_was_found_ends_with_its_keeper_before_it_is_adopted(
    script: Script, monkeypatch: pytest.MonkeyPatch, num_steps: int
) -> None:
    ended: list[object] = []

    async def end_engine(engine: object) -> None:
        ended.append(engine)

    monkeypatch.setattr(keeper, "end_engine", end_engine)
    found = cast("AdoptedEngine", object())
    async with keeping(found=found) as a_keeper:
        for _ in range(num_steps):
            await asyncio.sleep(0)
        await a_keeper.end()

    assert ended == [found]


async def test_files_that_are_unusable_fail_before_an_engine_starts(script: Script) -> None:
    assert await live(script, CUT) == [(FAILED, str(CUT))]


async def test_a_corrected_model_loads_without_its_old_error(script: Script) -> None:
    script.files = {0: (("cut", 1, 1, 1),), 30: (("whole", 2, 2, 2),)}

    reports = await live(script, CUT, LOADS)

    assert reports == [(FAILED, str(CUT)), (LOADING, ""), (READY, "")]
    assert 30 <= script.started_at[1] <= 35


async def test_files_that_are_being_copied_are_left_alone_until_they_stay_the_same(
    script: Script,
) -> None:
    script.files = {0: (), **{5 + at: (("copied", at, at, 1),) for at in range(20)}}

    await live(script, CUT, LOADS)

    assert 24 <= script.started_at[1] <= 30


async def test_a_file_that_changes_during_an_attempt_counts_as_a_change(script: Script) -> None:
    script.attempt_s = 5
    script.files = {0: (), 3: (("new", 1, 1, 1),)}

    await live(script, UNKNOWN_DEVICE, LOADS)

    assert script.started_at == [0, 9]


async def test_an_administrator_ends_a_pause_or_a_failure_and_gets_a_new_series(
    script: Script,
) -> None:
    script.asked_at = 6

    reports = await live(script, MEMORY, MEMORY, MEMORY, MEMORY, MEMORY, LOADS)

    assert script.started_at[:3] == [0, 1, 6]
    assert reports[:4] == [
        (LOADING, ""),
        (RETRYING, NO_MEMORY),
        (LOADING, ""),
        (RETRYING, NO_MEMORY),
    ]
    assert reports[-1] == (READY, "")


async def test_an_administrator_tries_a_failed_model_again(script: Script) -> None:
    script.asked_at = 40

    reports = await live(script, UNKNOWN_DEVICE, LOADS)

    assert [state for state, _ in reports] == [LOADING, FAILED, LOADING, READY]
    assert script.started_at == [0, 40]


async def test_an_engine_that_is_killed_while_it_loads_is_started_soon_again(
    script: Script,
) -> None:
    reports = await live(script, KILLED, KILLED, LOADS)

    assert script.started_at == pytest.approx([0, 0.1, 0.3])
    assert reports[-1] == (READY, "")


async def test_a_node_that_cannot_open_a_file_tries_again(script: Script) -> None:
    reports = await live(script, OSError(24, "Too many open files"), LOADS)

    assert reports[1:3] == [(RETRYING, "[Errno 24] Too many open files"), (READY, "")]


async def test_an_engine_that_had_loaded_is_restarted_however_often_it_crashes(
    script: Script,
) -> None:
    reports = await live(script, *[CRASHES] * 6, LOADS)

    assert reports[:4] == [(LOADING, ""), (READY, ""), (LOADING, "It crashed"), (READY, "")]
    assert len(script.started_at) == 7
    assert script.num_checks == 1, "files that have loaded are not read again: streams wait"
    assert reports[-1] == (READY, "")


async def test_a_new_start_begins_a_new_series_after_an_engine_that_had_loaded(
    script: Script,
) -> None:
    reports = await live(script, MEMORY, MEMORY, CRASHES, MEMORY, MEMORY, LOADS)

    assert script.started_at == [0, 1, 6, 6, 7, 12]
    assert FAILED not in {state for state, _ in reports}


async def test_a_test_with_pictures_runs_once_however_often_it_is_seen_to_be_due(
    script: Script,
) -> None:
    script.ends = iter([LOADS])
    asked_at = datetime(2026, 3, 1, tzinfo=UTC)
    async with keeping() as a_keeper, asyncio.timeout(30):
        a_keeper.test_pictures(asked_at)  # it does not serve yet, and tests by itself when it loads
        assert script.num_tests == 0
        await script.is_over.wait()
        for _ in range(3):
            a_keeper.test_pictures(asked_at)
        await script.is_reported.wait()
        await a_keeper.end()

    assert script.num_tests == 1
    assert script.pictures == [PictureReport("passed", "All look different.", "CPU")]


async def test_a_model_that_went_to_sleep_wakes_when_an_administrator_wants_it(
    script: Script,
) -> None:
    script.ends = iter([LOADS, LOADS])
    async with keeping(replace(ASKED, idle_limit_s=0.001)) as a_keeper, asyncio.timeout(30):
        await script.is_over.wait()
        await script.until((ASLEEP, ""))
        a_keeper.follow(Asked(retried_at=datetime(2026, 3, 1, tzinfo=UTC)))
        await script.until((READY, ""))
        await a_keeper.end()

    states = [state for state, _ in script.reports]
    assert states == [LOADING, READY, ASLEEP, LOADING, READY, EngineState.UNLOADED]


async def test_a_model_that_was_asleep_stays_so_after_a_new_start(script: Script) -> None:
    async with keeping(replace(ASKED, is_asleep=True)) as a_keeper, asyncio.timeout(30):
        await script.until((ASLEEP, ""))
        await a_keeper.end()

    assert script.started_at == []


async def test_a_model_that_never_fits_fails_with_figures_until_its_files_are_smaller(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_FILES_INTERVAL_S", 0.01)
    script.ends, script.need = iter([LOADS]), Need(2000, 0)
    async with keeping(budget_bytes=1000) as a_keeper, asyncio.timeout(30):
        await script.until_state(FAILED)
        assert script.reports[-1][1].startswith("It needs about")
        script.need = Need(10, 0, Measured(10, 10))
        await script.until_state(READY)
        await a_keeper.end()
