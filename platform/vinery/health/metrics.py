"""The Prometheus metrics of a web process and of the engines.

Metrics of one web process carry its `pid`, because any of several processes may respond.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
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

from accounts.limits.service import Level, LimitService, LimitsUnavailable
from serving.runtime.runtime import EngineHealth, Runtime
from serving.runtime.traffic import Histogram, Traffic

# The scopes whose limits are exposed: there may be any number of keys and users.
_EXPOSED_SCOPES: Final = frozenset({"platform", "model", "organization", "project"})

# The name after `vinery_engine_`, the help text and the type, by the field of the engine's stats.
_ENGINE_GAUGES: Final = {
    "num_running": ("running", "Generations in the batch."),
    "num_waiting": ("waiting", "Generations in the queue."),
    "cache_usage": ("cache_usage_ratio", "Used part of the KV cache."),
}
_ENGINE_COUNTERS: Final = {
    "num_steps": ("steps", "Steps of the engine."),
    "num_prompt_tokens": ("prompt_tokens", "Prompt tokens of accepted requests."),
    "num_cached_tokens": ("cached_tokens", "Prompt tokens from the prefix cache."),
    "num_output_tokens": ("output_tokens", "Generated tokens that were sent."),
    "num_unused_tokens": ("unused_tokens", "Generated tokens that no client received."),
    "num_recoveries": ("recoveries", "Steps that failed."),
    "energy_j": (
        "energy_joules",
        "This engine's share of the host's energy, also idle.",
    ),
    "request_energy_j": ("request_energy_joules", "The energy attributed to its requests."),
}
_HISTOGRAMS: Final = {
    "first_token": ("time_to_first_token", "Until the first token."),
    "inter_token": ("inter_token", "Mean time between the tokens of a request."),
    "request": ("request", "Until the end of the response."),
    "queue": ("queue", "In the engine's queue."),
}


async def exposition(runtime: Runtime) -> bytes:
    """All metrics in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Engines(await runtime.health()))
    registry.register(_Process(runtime))
    registry.register(_Traffic(runtime.traffic))
    registry.register(_Levels(await read_levels(runtime.limits)))
    return generate_latest(registry)


class _Process(Collector):
    """The state of this web process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def collect(self) -> list[Metric]:
        """Called by the registry."""
        runtime = self._runtime
        backlog_bytes = runtime.ledger.backlog_bytes
        accounts_at_s, models_at_s = runtime.accounts_read_at_s, runtime.models_read_at_s
        gauge, counter = GaugeMetricFamily, CounterMetricFamily
        return [
            _own(gauge, "vinery_requests_live", "Requests now.", len(runtime.live)),
            _own(
                gauge, "vinery_usage_backlog_bytes", "Usage that is not stored yet.", backlog_bytes
            ),
            _own(
                counter, "vinery_usage_lost", "Requests without a record.", runtime.ledger.num_lost
            ),
            _own(
                gauge,
                "vinery_accounts_read_timestamp_seconds",
                "When keys and limits were read.",
                accounts_at_s,
            ),
            _own(
                gauge,
                "vinery_models_read_timestamp_seconds",
                "When served models were read.",
                models_at_s,
            ),
            _own(
                gauge,
                "vinery_captures_waiting",
                "Captures not yet stored.",
                len(runtime.captures),
            ),
            _own(
                counter,
                "vinery_captures_dropped",
                "Captures dropped.",
                runtime.captures.num_dropped,
            ),
            _own(
                gauge,
                "vinery_database_away",
                "The database does not answer.",
                runtime.database.is_unavailable,
            ),
            *self._disks(),
            *self._limits(),
        ]

    def _disks(self) -> list[Metric]:
        free = GaugeMetricFamily(
            "vinery_disk_free_bytes", "Free space by use.", labels=["pid", "holds"]
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
            _own(gauge, "vinery_limits_store_away", "Redis is unavailable.", state.is_degraded),
            _own(
                gauge,
                "vinery_limits_unsettled",
                "Settlements that wait for Redis.",
                state.num_waiting,
            ),
            _own(
                counter, "vinery_limits_uncounted", "Requests without limits.", state.num_uncounted
            ),
            _own(counter, "vinery_limits_unsettled_lost", "Settlements lost.", state.num_dropped),
        ]


def _own(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    help_text: str,
    value: float,
) -> Metric:
    family = kind(name, help_text, labels=["pid"])
    family.add_metric([str(os.getpid())], value)
    return family


class _Traffic(Collector):
    """The requests of this web process."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._pid = str(os.getpid())

    def collect(self) -> list[Metric]:
        """Called by the registry."""
        return [self._requests(), self._refusals(), *self._histograms()]

    def _requests(self) -> Metric:
        labels = ["pid", "model", "endpoint", "status"]
        family = CounterMetricFamily("vinery_requests", "Requests with a valid key.", labels=labels)
        for name, model in self._traffic.models.items():
            for (endpoint, status), num in model.requests.items():
                family.add_metric([self._pid, name, str(endpoint), str(status)], num)
        return family

    def _refusals(self) -> Metric:
        labels = ["pid", "metric", "scope", "effect"]
        family = CounterMetricFamily("vinery_refusals", "Refusals by limits.", labels=labels)
        for key, num in self._traffic.refusals.items():
            family.add_metric([self._pid, *map(str, key)], num)
        return family

    def _histograms(self) -> list[Metric]:
        return [
            self._histogram(attrgetter(field), f"vinery_{name}_seconds", help_text)
            for field, (name, help_text) in _HISTOGRAMS.items()
        ]

    def _histogram(self, read: attrgetter[Histogram], name: str, help_text: str) -> Metric:
        family = HistogramMetricFamily(name, help_text, labels=["pid", "model"])
        for model, traffic in self._traffic.models.items():
            histogram = read(traffic)
            bounds = [*map(floatToGoString, histogram.bounds_s), "+Inf"]
            buckets = list(zip(bounds, accumulate(histogram.nums), strict=True))
            family.add_metric([self._pid, model], buckets, histogram.sum_ms / 1000)
        return family


async def read_levels(limits: LimitService) -> Sequence[Level]:
    """The use of the exposed limits; empty while Redis is unavailable."""
    rules = [
        rule for rule in limits.book.rules if _kind_and_owner(rule.scope)[0] in _EXPOSED_SCOPES
    ]
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
    """The use of limits. Without Redis, each of several web processes counts its own share."""

    def __init__(self, levels: Sequence[Level]) -> None:
        self._levels = levels

    def collect(self) -> list[Metric]:
        """Called by the registry."""
        labels = ["pid", "limit", "scope", "owner", "metric", "window", "shadow"]
        used = GaugeMetricFamily("vinery_limit_used", "Used, with reservations.", labels=labels)
        amount = GaugeMetricFamily("vinery_limit_amount", "The limit.", labels=labels)
        for level in self._levels:
            rule = level.rule
            scope = [str(os.getpid()), str(rule.id), *_kind_and_owner(rule.scope)]
            labels_of = [*scope, str(rule.metric), str(rule.window), str(rule.is_shadow).lower()]
            used.add_metric(labels_of, level.num_used)
            amount.add_metric(labels_of, rule.amount)
        return [used, amount]


class _Engines(Collector):
    """The engines, which are the same in every web process."""

    def __init__(self, health: list[EngineHealth]) -> None:
        self._health = health

    def collect(self) -> list[Metric]:
        """Called by the registry."""
        ready = GaugeMetricFamily(
            "vinery_engine_ready", "Generated a token lately.", labels=["model"]
        )
        for each in self._health:
            ready.add_metric([each.model], float(each.is_ready))
        gauges = [self._family(GaugeMetricFamily, *item) for item in _ENGINE_GAUGES.items()]
        counters = [self._family(CounterMetricFamily, *item) for item in _ENGINE_COUNTERS.items()]
        return [ready, *gauges, *counters]

    def _family(
        self,
        kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
        field: str,
        name_and_help: tuple[str, str],
    ) -> Metric:
        name, help_text = name_and_help
        family = kind(f"vinery_engine_{name}", help_text, labels=["model"])
        for each in self._health:
            value = None if each.stats is None else getattr(each.stats, field)
            if value is not None:
                family.add_metric([each.model], float(value))
        return family
