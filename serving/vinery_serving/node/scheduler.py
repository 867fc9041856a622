"""Lets models load, sleep and wake by the plan of `planner` for the engines of this node.

Each keeper has a `ModelMemory`. The keeper asks for memory before the start of an engine, waits for
the scheduler's verdict, and gives the memory back when the engine has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, Protocol

from vinery_serving.node.engine_process import SpareEngines
from vinery_serving.node.fit import Need, unfit_text
from vinery_serving.node.planner import ModelUse, Phase, Plan, make_plan
from vinery_serving.processes.upkeep import until_next
from vinery_serving.transport.waiting import Wait

log = logging.getLogger(__name__)

# More changes are waited for: at a start all models ask within moments.
_SETTLE_S: Final = 0.02
# Engines show in memory when they become idle, and times end, without an event.
_LOOK_INTERVAL_S: Final = 1.0
_NOTHING: Final = Need(0, 0)
_ids = itertools.count(1)


class AwakeEngine(Protocol):
    @property
    def idle_since_s(self) -> float | None:
        """When the last request ended, in seconds of the monotonic clock; None: busy."""
        ...

    @property
    def is_draining(self) -> bool: ...

    def drain(self) -> None: ...


class Verdict(Enum):
    GRANTED = auto()
    ASLEEP = auto()  # there is no room, until a request comes
    UNFIT = auto()  # it can never fit


@dataclass(eq=False)
class ModelMemory:
    """The scheduler's state of one engine of a model. The keeper calls the methods."""

    _scheduler: EngineScheduler
    model_id: int
    replica: int
    name: str
    device: str
    need: Need = _NOTHING
    is_pinned: bool = False
    idle_limit_s: float | None = None
    phase: Phase = Phase.ASLEEP
    is_eager: bool = False
    wanted_since_s: float | None = None  # Unix time: an administrator wants it loaded
    awake_since_s: float = 0.0
    unfit_text: str = ""
    engine: AwakeEngine | None = None  # while the model is awake
    is_former: bool = False  # a new engine replaces this one
    _waited_since_s: float | None = None  # Unix time: a request of any host waits
    _has_asked: bool = False  # for memory that is not granted yet
    _verdict: Verdict | None = None

    def __post_init__(self) -> None:
        self.id = next(_ids)
        self._has_verdict = asyncio.Event()

    def hold(self, need: Need) -> None:
        self.need, self.phase = need, Phase.LOADING
        self._scheduler.note()

    def ask(self, need: Need, *, is_eager: bool) -> None:
        """Ask for memory; `is_eager`: without a request, too, if there is room."""
        self.need, self.is_eager = need, is_eager
        self.phase, self.engine = Phase.ASLEEP, None
        self._has_asked, self._verdict = True, None
        self._has_verdict.clear()
        self._scheduler.note()

    async def verdict(self) -> Verdict:
        await self._has_verdict.wait()
        self._has_verdict.clear()
        assert self._verdict is not None
        return self._verdict

    def want(self) -> None:
        """An administrator wants the model loaded: others make room as for a request."""
        if self.phase is Phase.ASLEEP:
            self.wanted_since_s = time.time()
            self._scheduler.note()

    def note_wait(self, *, is_waited: bool) -> None:
        """Whether requests of any host wait for the model. Nothing makes room for a further
        replica."""
        if is_waited != (self._waited_since_s is not None):
            self._waited_since_s = time.time() if is_waited else None
            self._scheduler.note()

    def wake(self, engine: AwakeEngine) -> None:
        self.engine = engine
        self.phase = Phase.LEAVING if engine.is_draining else Phase.AWAKE
        self.awake_since_s = time.monotonic()
        self.wanted_since_s = None
        self._scheduler.note()

    def correct(self, need: Need) -> None:
        self.need = need
        self._scheduler.note()

    def lose_engine(self) -> None:
        self.phase, self.engine = Phase.LOADING, None

    def give_back(self) -> None:
        self.phase, self.engine, self._has_asked = Phase.ASLEEP, None, False
        self.wanted_since_s = None
        self._scheduler.note()

    def change(self, *, is_pinned: bool, idle_limit_s: float | None) -> None:
        if (self.is_pinned, self.idle_limit_s) != (is_pinned, idle_limit_s):
            self.is_pinned, self.idle_limit_s = is_pinned, idle_limit_s
            self._scheduler.note()

    @property
    def is_wanted(self) -> bool:
        """Whether an engine runs, or starts when there is memory and a request."""
        return self.is_held or self._has_asked

    @property
    def is_held(self) -> bool:
        return self.phase is not Phase.ASLEEP

    def use(self, wait: Wait | None, replaces: int | None = None) -> ModelUse | None:
        """Return the input of the plan; None: the model neither holds nor wants memory.
        `replaces`: the id of the engine with former settings."""
        if self.phase is Phase.ASLEEP and not self._has_asked:
            return None
        use = ModelUse(self.id, self.device, self.need.total_bytes, self.phase)
        if self.is_former:
            # A former engine serves until the keeper ends it, or the new engine needs the memory.
            return replace(use, is_former=True)
        # One replica is enough, and others follow if there is room.
        elsewhere_s = None if self.replica else self._waited_since_s
        known = (wait and wait.since_s, self.wanted_since_s, elsewhere_s)
        since = [each for each in known if each is not None]
        return replace(
            use,
            is_pinned=self.is_pinned,
            is_eager=self.is_eager or self._waited_since_s is not None,
            waiting_since_s=min(since, default=None),
            awake_since_s=self.awake_since_s,
            idle_since_s=None if self.engine is None else self.engine.idle_since_s,
            idle_limit_s=self.idle_limit_s,
            replaces=replaces,
        )

    def follow(self, plan: Plan) -> None:
        if self.id in plan.sleep and self.engine is not None:
            self.phase = Phase.LEAVING
            self.engine.drain()
            log.info("model goes to sleep", extra={"fields": {"model": self.name}})
        elif self.phase is Phase.ASLEEP and self._has_asked:
            self._decide(plan)

    def _decide(self, plan: Plan) -> None:
        verdict = Verdict.ASLEEP
        if self.id in plan.wake:
            verdict, self.phase, self._has_asked = Verdict.GRANTED, Phase.LOADING, False
        elif self.id in plan.unfit:
            verdict, self.unfit_text = Verdict.UNFIT, self._scheduler.unfit_text(self)
            self.wanted_since_s = None
        self.is_eager = False  # one chance for each `ask`
        if verdict is not self._verdict:
            self._verdict = verdict
            self._has_verdict.set()


class EngineScheduler:
    """Plans when something has changed, and each second. Belongs to the node's event loop."""

    def __init__(self, budgets: Mapping[str, int], min_awake_s: float) -> None:
        self._budgets, self._min_awake_s = budgets, min_awake_s
        self._models: dict[int, ModelMemory] = {}
        self._changed = asyncio.Event()
        self.waits: Callable[[], Mapping[int, Wait]] = dict
        self.spares = SpareEngines()

    def add(self, model_id: int, replica: int, name: str, device: str) -> ModelMemory:
        memory = ModelMemory(self, model_id, replica, name, device)
        self._models[memory.id] = memory
        return memory

    def remove(self, memory: ModelMemory) -> None:
        self._models.pop(memory.id, None)
        self.note()

    def note(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            self.plan()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until_next(_LOOK_INTERVAL_S)):
                    await self._changed.wait()
                    await asyncio.sleep(_SETTLE_S)

    def plan(self) -> None:
        plan = make_plan(self._uses(), self._budgets, self._min_awake_s, time.monotonic())
        for each in list(self._models.values()):
            each.follow(plan)
        phases = {each.phase for each in self._models.values() if each.is_wanted}
        # The start of a spare engine would slow down a model that loads.
        if Phase.LOADING not in phases:
            self.spares.want(is_wanted=Phase.ASLEEP in phases)

    def _uses(self) -> list[ModelUse]:
        waits, formers = self.waits(), self._formers()
        by_model: defaultdict[int, list[ModelMemory]] = defaultdict(list)
        for each in self._models.values():
            by_model[each.model_id].append(each)
        uses = []
        for model_id, engines in by_model.items():
            waiting = _first_to_wake(engines)
            for each in engines:
                wait = waits.get(model_id) if each is waiting else None
                use = each.use(wait, formers.get((model_id, each.replica)))
                if use is not None:
                    uses.append(_with_siblings(use, each, engines))
        return uses

    def _formers(self) -> dict[tuple[int, int], int]:
        return {
            (each.model_id, each.replica): each.id
            for each in self._models.values()
            if each.is_former and each.phase is Phase.AWAKE
        }

    def unfit_text(self, memory: ModelMemory) -> str:
        pinned_bytes = sum(
            each.need.total_bytes
            for each in self._models.values()
            if each.is_pinned and each.device == memory.device and each is not memory
        )
        budget_bytes = self._budgets[memory.device]
        return unfit_text(memory.need, budget_bytes, memory.device, pinned_bytes)


def _first_to_wake(engines: Sequence[ModelMemory]) -> ModelMemory | None:
    """Return the engine for which the requests of a model wait: one answers all."""
    present = [each for each in engines if not each.is_former and each.is_wanted]
    return min(present, key=lambda each: (not each.is_held, each.replica), default=None)


def _with_siblings(use: ModelUse, memory: ModelMemory, engines: Sequence[ModelMemory]) -> ModelUse:
    """Engines of one model wake together if there is room, and count as idle together, so that all
    sleep at the same time."""
    held = [each for each in engines if each.is_held and not each.is_former]
    awake = [each for each in held if each.phase is Phase.AWAKE]
    if memory.is_former or all(each is memory for each in held):
        return use
    known = [each.engine.idle_since_s for each in awake if each.engine is not None]
    idle_since_s = [each for each in known if each is not None]
    is_loading = any(each.phase is Phase.LOADING for each in held)
    is_busy = is_loading or len(idle_since_s) < len(known)
    return replace(
        use,
        awake_since_s=max([use.awake_since_s, *(each.awake_since_s for each in awake)]),
        idle_since_s=None if is_busy else max(idle_since_s, default=None),
        is_eager=use.is_eager or bool(awake),
    )
