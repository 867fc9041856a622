"""Is it alive, is it ready and what is it doing: for probes and Prometheus.

Answered without Django, so that a probe by address is not refused for its host name. With
several web processes any of them answers: what is said of the process alone carries its `pid`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from accounts.limits.service import Level, LimitService, LimitsUnavailable, StoreState
from serving.http.edge import Receive, Scope, Send, send_whole
from serving.runtime.runtime import EngineHealth, Runtime
from serving.runtime.traffic import Histogram, Traffic

_JSON: Final = b"application/json"
_PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"

# Keys and limits are read twice a second. So late, something is wrong.
_FRESH_S: Final = 30.0

# Whose limits are told: of keys and users there may be any number.
_TOLD_SCOPES: Final = frozenset({"platform", "model", "organization", "project"})

Answer = tuple[int, bytes, bytes]  # status, content type, body


class HealthApplication:
    """An ASGI application for a handful of paths."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._routes: dict[str, Callable[[], Awaitable[Answer]]] = {
            "/livez": self._live,
            "/v2/health/live": self._live,
            "/readyz": self._ready,
            "/v2/health/ready": self._ready,
            "/startupz": self._startup,
            "/metrics": self._metrics,
        }

    def knows(self, path: str) -> bool:
        """Whether the path is one of its own."""
        return path in self._routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["method"] not in ("GET", "HEAD"):
            await send_whole(send, 405, [(b"allow", b"GET, HEAD")], b"")
            return
        status, content_type, body = await self._routes[scope["path"]]()
        headers = [(b"content-type", content_type), (b"cache-control", b"no-store")]
        await send_whole(send, status, headers, b"" if scope["method"] == "HEAD" else body)

    async def _live(self) -> Answer:
        """This process answers, so it lives."""
        return 200, _JSON, b'{"status": "alive"}'

    async def _ready(self) -> Answer:
        """200 when at least one model has really generated a token a moment ago.

        A database, a store of limits or a disk that is away or full is told, and is no reason
        to send clients elsewhere: requests are served, and every other process has the same
        database and the same store.
        """
        runtime = self._runtime
        health = await runtime.health()
        checks = [
            _of_database(runtime),
            _of_keys(runtime),
            _of_limits(runtime.limits.state),
            _of_disk(runtime),
        ]
        is_ready = runtime.is_started and any(each.is_ready for each in health)
        is_well = all(check.is_well for check in checks)
        told = {
            "status": ("ready" if is_well else "degraded") if is_ready else "not ready",
            "models": {each.model: "ready" if each.is_ready else "not ready" for each in health},
            **{check.name: check.told for check in checks},
        }
        return _answer(told, is_good=is_ready)

    async def _startup(self) -> Answer:
        """200 from the moment at which keys and models were read once."""
        runtime = self._runtime
        told = {
            "status": "started" if runtime.is_started else "starting",
            "keys": "read" if runtime.accounts_read_at_s else "not read",
            "models": "read" if runtime.models_read_at_s else "not read",
            "database": _of_database(runtime).told,
        }
        return _answer(told, is_good=runtime.is_started)

    async def _metrics(self) -> Answer:
        registry = CollectorRegistry(auto_describe=False)
        runtime = self._runtime
        health = await runtime.health()
        registry.register(_Snapshot(health))
        registry.register(_Process(runtime))
        registry.register(_Traffic(runtime.traffic))
        registry.register(_Levels(await _levels(runtime.limits)))
        return 200, _PROMETHEUS, generate_latest(registry)


@dataclass(frozen=True, slots=True)
class _Check:
    """One thing that readiness tells of, in words for people."""

    name: str
    is_well: bool
    told: str


def _of_database(runtime: Runtime) -> _Check:
    """Away, with the age of what is known of keys, limits and models."""
    if not runtime.database.is_unavailable:
        return _Check("database", True, "answers")
    read_at_s = min(runtime.accounts_read_at_s, runtime.models_read_at_s)
    age = f": what was read {time.time() - read_at_s:.0f} s ago holds" if read_at_s else ""
    return _Check("database", False, f"away{age}")


def _of_keys(runtime: Runtime) -> _Check:
    """Whether a key that is revoked now would soon be refused."""
    age_s = time.time() - runtime.accounts_read_at_s
    if not runtime.accounts_read_at_s or age_s <= _FRESH_S:
        return _Check("keys", True, "followed" if runtime.accounts_read_at_s else "not read yet")
    return _Check("keys", False, f"changes of the last {age_s:.0f} s are not known")


def _of_limits(state: StoreState | None) -> _Check:
    """Without a store they are counted in the process itself, which is here to count them."""
    if state is None or not state.is_degraded:
        return _Check("limits", True, "counted")
    return _Check("limits", False, f"store away: {state.policy}")


def _of_disk(runtime: Runtime) -> _Check:
    return _Check("disk", runtime.disk.is_healthy, runtime.disk.report)


def _answer(told: Mapping[str, object], *, is_good: bool) -> Answer:
    return (200 if is_good else 503), _JSON, json.dumps(told).encode()


class _Process(Collector):
    """What only this web process knows."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def collect(self) -> list[Metric]:
        """Called by the registry."""
        runtime = self._runtime
        backlog_bytes = runtime.ledger.backlog_bytes
        accounts_at_s, models_at_s = runtime.accounts_read_at_s, runtime.models_read_at_s
        gauge, counter = GaugeMetricFamily, CounterMetricFamily
        return [
            _own(gauge, "requests_live", "Requests now.", len(runtime.live)),
            _own(gauge, "usage_backlog_bytes", "Usage not yet stored.", backlog_bytes),
            _own(counter, "usage_lost", "Requests without a row.", runtime.ledger.num_lost),
            _own(gauge, "accounts_read_timestamp_seconds", "Keys and limits.", accounts_at_s),
            _own(gauge, "models_read_timestamp_seconds", "Served models.", models_at_s),
            _own(gauge, "captures_waiting", "Texts not yet stored.", len(runtime.captures)),
            _own(counter, "captures_dropped", "Not kept.", runtime.captures.num_dropped),
            _own(gauge, "database_away", "It does not answer.", runtime.database.is_unavailable),
            *self._disks(),
            *self._limits(),
        ]

    def _disks(self) -> list[Metric]:
        free = GaugeMetricFamily(
            "vinery_disk_free_bytes", "Where data lives.", labels=["pid", "holds"]
        )
        for disk in self._runtime.disk.disks:
            for contents in disk.contents:
                free.add_metric([str(os.getpid()), contents], disk.free_bytes)
        return [free]

    def _limits(self) -> list[Metric]:
        state = self._runtime.limits.state
        if state is None:
            return []
        gauge, counter = GaugeMetricFamily, CounterMetricFamily
        return [
            _own(gauge, "limits_store_away", "Their store is away.", state.is_degraded),
            _own(gauge, "limits_unsettled", "Requests to be told to it.", state.num_waiting),
            _own(counter, "limits_uncounted", "Requests without limits.", state.num_uncounted),
            _own(counter, "limits_unsettled_lost", "Count as reserved.", state.num_dropped),
        ]


def _own(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    help_text: str,
    value: float,
) -> Metric:
    family = kind(f"vinery_{name}", help_text, labels=["pid"])
    family.add_metric([str(os.getpid())], value)
    return family


class _Traffic(Collector):
    """The requests that this web process has answered."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._pid = str(os.getpid())

    def collect(self) -> list[Metric]:
        """Called by the registry."""
        return [self._requests(), self._refusals(), *self._histograms()]

    def _requests(self) -> Metric:
        labels = ["pid", "model", "endpoint", "status"]
        family = CounterMetricFamily("vinery_requests", "With a good key.", labels=labels)
        for name, model in self._traffic.models.items():
            for (endpoint, status), num in model.requests.items():
                family.add_metric([self._pid, name, str(endpoint), str(status)], num)
        return family

    def _refusals(self) -> Metric:
        labels = ["pid", "metric", "scope", "effect"]
        family = CounterMetricFamily("vinery_refusals", "By limits.", labels=labels)
        for of, num in self._traffic.refusals.items():
            family.add_metric([self._pid, *map(str, of)], num)
        return family

    def _histograms(self) -> list[Metric]:
        names = {
            "first_token": ("vinery_time_to_first_token_seconds", "Until the first token."),
            "inter_token": ("vinery_inter_token_seconds", "Mean gap of a request's tokens."),
            "request": ("vinery_request_seconds", "Until the end of the answer."),
            "queue": ("vinery_queue_seconds", "In the engine's queue."),
        }
        return [self._histogram(attrgetter(key), *of) for key, of in names.items()]

    def _histogram(self, read: attrgetter[Histogram], name: str, help_text: str) -> Metric:
        family = HistogramMetricFamily(name, help_text, labels=["pid", "model"])
        for model, traffic in self._traffic.models.items():
            histogram = read(traffic)
            bounds = [*map(floatToGoString, histogram.bounds_s), "+Inf"]
            buckets = list(zip(bounds, accumulate(histogram.nums), strict=True))
            family.add_metric([self._pid, model], buckets, histogram.sum_ms / 1000)
        return family


async def _levels(limits: LimitService) -> Sequence[Level]:
    """How full the limits are of which there are few; nothing while their store is away."""
    rules = [rule for rule in limits.book.rules if _kind_and_owner(rule.scope)[0] in _TOLD_SCOPES]
    if not rules:
        return ()
    try:
        return await limits.levels(rules)
    except LimitsUnavailable:
        return ()


def _kind_and_owner(scope: str) -> tuple[str, str]:
    kind, _, owner = scope.partition(":")
    return kind, owner


class _Levels(Collector):
    """How full limits are, as this web process counts them: by its share of each, if there are
    several processes and no store."""

    def __init__(self, levels: Sequence[Level]) -> None:
        self._levels = levels

    def collect(self) -> list[Metric]:
        """Called by the registry."""
        labels = ["pid", "limit", "scope", "owner", "metric", "window", "shadow"]
        used = GaugeMetricFamily("vinery_limit_used", "Reservations included.", labels=labels)
        amount = GaugeMetricFamily("vinery_limit_amount", "What may be used.", labels=labels)
        for level in self._levels:
            rule = level.rule
            whose = [str(os.getpid()), str(rule.id), *_kind_and_owner(rule.scope)]
            of = [*whose, str(rule.metric), str(rule.window), str(rule.is_shadow).lower()]
            used.add_metric(of, level.num_used)
            amount.add_metric(of, rule.amount)
        return [used, amount]


class _Snapshot(Collector):
    """The engines at one moment, as metrics: the same in every web process."""

    def __init__(self, health: list[EngineHealth]) -> None:
        self._health = health

    def collect(self) -> list[Metric]:
        """Called by the registry."""
        return [*self._gauges(), *self._counters()]

    def _gauges(self) -> list[Metric]:
        ready = GaugeMetricFamily("vinery_engine_ready", "Made a token lately.", labels=["model"])
        for each in self._health:
            ready.add_metric([each.model], float(each.is_ready))
        names = {
            "num_running": ("vinery_engine_running", "Generations in the batch."),
            "num_waiting": ("vinery_engine_waiting", "Generations in the queue."),
            "cache_usage": ("vinery_engine_cache_usage_ratio", "Used part of the KV cache."),
        }
        return [ready, *(self._family(GaugeMetricFamily, key, *of) for key, of in names.items())]

    def _counters(self) -> list[Metric]:
        names = {
            "num_steps": ("vinery_engine_steps", "Steps of the engine."),
            "num_prompt_tokens": ("vinery_engine_prompt_tokens", "Prompt tokens taken in."),
            "num_cached_tokens": ("vinery_engine_cached_tokens", "Prompt tokens from cache."),
            "num_output_tokens": ("vinery_engine_output_tokens", "Tokens made and used."),
            "num_unused_tokens": ("vinery_engine_unused_tokens", "Tokens made for nobody."),
            "num_recoveries": ("vinery_engine_recoveries", "Steps that failed."),
            "energy_j": (
                "vinery_engine_energy_joules",
                "This engine's part of what the machine's counters say, with idle energy.",
            ),
            "request_energy_j": (
                "vinery_engine_request_energy_joules",
                "The part of it that is attributed to requests.",
            ),
        }
        return [self._family(CounterMetricFamily, key, *of) for key, of in names.items()]

    def _family(
        self,
        kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
        field: str,
        name: str,
        help_text: str,
    ) -> Metric:
        family = kind(name, help_text, labels=["model"])
        for each in self._health:
            value = None if each.stats is None else getattr(each.stats, field)
            if value is not None:
                family.add_metric([each.model], float(value))
        return family
