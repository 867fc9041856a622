"""Which models load, and which make room: a pure function of what the node knows.

Pinned models get memory first, then models with waiting requests in the order of their oldest
request. For such a model the least recently used models go to sleep: idle models by the time of
their last answer, then busy models by the time of waking. A pinned model never makes room, nor a
model that requests wait for, nor one that has just woken. An engine with former settings makes
room for its successor alone, and only if both do not fit. Memory that is free or about to become
free is kept for the next model, so no larger model starves behind smaller ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto


class Phase(Enum):
    """Whether a model holds memory. All but a sleeping one do."""

    ASLEEP = auto()
    LOADING = auto()
    AWAKE = auto()
    LEAVING = auto()  # the engine finishes its answers, and then ends


@dataclass(frozen=True, slots=True)
class ModelUse:
    id: int
    device: str
    need_bytes: int
    phase: Phase
    is_pinned: bool = False
    # Loads if there is room, without a request; no other model goes to sleep for it.
    is_eager: bool = False
    # When the oldest request came that waits for the model; None: none waits.
    waiting_since_s: float | None = None
    awake_since_s: float = 0.0
    idle_since_s: float | None = None  # when the last answer ended; None: busy
    idle_limit_s: float | None = None  # the model sleeps without a request for so long; None: never
    # The engine serves with former settings, until the engine that `replaces` it serves.
    is_former: bool = False
    replaces: int | None = None

    @property
    def holds_memory(self) -> bool:
        return self.phase is not Phase.ASLEEP


@dataclass(slots=True)
class Plan:
    wake: list[int] = field(default_factory=list)
    sleep: list[int] = field(default_factory=list)
    # Models that can never load beside the pinned models of their device.
    unfit: set[int] = field(default_factory=set)


def make_plan(
    models: Iterable[ModelUse], budgets: Mapping[str, int], min_awake_s: float, now_s: float
) -> Plan:
    """`budgets` has the bytes of each device; a device without a budget has no limit."""
    plan = Plan()
    by_device: defaultdict[str, list[ModelUse]] = defaultdict(list)
    for model in models:
        by_device[model.device].append(model)
    for device, beside in by_device.items():
        _Device(beside, budgets.get(device, math.inf), min_awake_s, now_s, plan).plan()
    return plan


@dataclass
class _Device:
    models: Sequence[ModelUse]
    budget: float
    min_awake_s: float
    now_s: float
    result: Plan

    def __post_init__(self) -> None:
        held = [each for each in self.models if each.holds_memory]
        self._free = self.budget - sum(each.need_bytes for each in held)
        # Memory that becomes free when engines have ended.
        self._leaving = sum(each.need_bytes for each in held if each.phase is Phase.LEAVING)
        may_leave = filter(self._may_make_room, self.models)
        self._may_leave = sorted(may_leave, key=_least_recently_used)

    def plan(self) -> None:
        self._end_idle()
        self._relieve()
        asleep = [each for each in self.models if each.phase is Phase.ASLEEP]
        fit = [each for each in asleep if not self._note_unfit(each)]
        wanted = [each for each in fit if each.is_pinned or each.waiting_since_s is not None]
        for each in sorted(wanted, key=_first_come):
            self._make_room(each)
        for each in sorted(fit, key=lambda each: each.id):
            if each.is_eager and each not in wanted and each.need_bytes <= self._free:
                self._wake(each)

    def _end_idle(self) -> None:
        for each in self.models:
            limit_s, idle_since_s = each.idle_limit_s, each.idle_since_s
            is_idle = each.phase is Phase.AWAKE and each.waiting_since_s is None
            if each.is_pinned or not is_idle or limit_s is None or idle_since_s is None:
                continue
            if max(idle_since_s, each.awake_since_s) + limit_s <= self.now_s:
                self._let_sleep(each)

    def _relieve(self) -> None:
        while self._free + self._leaving < 0 and self._may_leave and self._num_staying > 1:
            self._let_sleep(self._may_leave[0])

    @property
    def _num_staying(self) -> int:
        sleeping = set(self.result.sleep)
        return sum(
            each.phase in (Phase.AWAKE, Phase.LOADING) and each.id not in sleeping
            for each in self.models
        )

    def _note_unfit(self, model: ModelUse) -> bool:
        pinned = (each for each in self.models if each.is_pinned and each.id != model.id)
        before = (
            each.need_bytes
            for each in pinned
            if not model.is_pinned or each.holds_memory or each.id < model.id
        )
        is_unfit = model.need_bytes > self.budget - sum(before)
        if is_unfit:
            self.result.unfit.add(model.id)
        return is_unfit

    def _make_room(self, model: ModelUse) -> None:
        if model.need_bytes <= self._free:
            self._wake(model)
            return
        if (former := self._former_in_the_way(model)) is not None:
            self._let_sleep(former)
        missing = model.need_bytes - self._free - self._leaving
        leaving = _least_until(missing, self._may_leave)
        if leaving is None:  # nothing else gets this memory until more may leave
            self._free, self._leaving, self._may_leave = 0, 0, []
            return
        for each in leaving:
            self._let_sleep(each)
        self._free -= max(0, model.need_bytes - self._leaving)
        self._leaving -= min(self._leaving, model.need_bytes)

    def _former_in_the_way(self, model: ModelUse) -> ModelUse | None:
        """Return the engine that the model replaces if both never fit together."""
        former = next((each for each in self.models if each.id == model.replaces), None)
        if former is None or former.phase is not Phase.AWAKE:
            return None
        beside = sum(
            each.need_bytes for each in self.models if each.is_pinned and each.id != model.id
        )
        is_too_much = model.need_bytes + former.need_bytes > self.budget - beside
        return former if is_too_much else None

    def _wake(self, model: ModelUse) -> None:
        self._free -= model.need_bytes
        self.result.wake.append(model.id)

    def _let_sleep(self, model: ModelUse) -> None:
        self.result.sleep.append(model.id)
        self._leaving += model.need_bytes
        if model in self._may_leave:
            self._may_leave.remove(model)

    def _may_make_room(self, model: ModelUse) -> bool:
        return (
            model.phase is Phase.AWAKE
            and not model.is_pinned
            and not model.is_former
            and model.waiting_since_s is None
            and model.awake_since_s + self.min_awake_s <= self.now_s
        )


def _least_recently_used(model: ModelUse) -> tuple[bool, float, int]:
    is_busy = model.idle_since_s is None
    since_s = model.awake_since_s if model.idle_since_s is None else model.idle_since_s
    return is_busy, since_s, model.id


def _first_come(model: ModelUse) -> tuple[bool, float, int]:
    return not model.is_pinned, model.waiting_since_s or 0.0, model.id


def _least_until(missing: float, models: Sequence[ModelUse]) -> Sequence[ModelUse] | None:
    """Return the first models that have so many bytes in all; None: all together have fewer."""
    num_bytes = 0
    for number, each in enumerate(models):
        if num_bytes >= missing:
            return models[:number]
        num_bytes += each.need_bytes
    return models[:] if num_bytes >= missing else None
