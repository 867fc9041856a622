"""The Prometheus metrics of a web process and of the engines.

Metrics of one web process carry its `pid`, because any of several processes may respond.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from vinery_accounts.limits.service import Level, LimitService, LimitsUnavailable
from vinery_platform.process.loop_watch import BOUNDS_S, BlockCounts, loop_watch
from vinery_platform.process.memory import resident_bytes
from vinery_serving.http.bodies import api_bodies
from vinery_serving.http.refusals import REFUSALS, Refusals
from vinery_serving.runtime.runtime import EngineHealth, EngineReport, Runtime
from vinery_serving.runtime.traffic import ModelTraffic, Traffic
from vinery_serving.transport.messages import EngineStats
from vinery_serving.workers.pool import WorkerPool

_Kind = type[GaugeMetricFamily] | type[CounterMetricFamily]
_GAUGE: Final = GaugeMetricFamily
_COUNTER: Final = CounterMetricFamily

# The scopes whose limits are exposed: there may be any number of keys and users.
_EXPOSED_SCOPES: Final = frozenset({"platform", "model", "organization", "project"})

# The type, the name after `vinery_engine_` and the help text, by the field of the engine's stats.
_ENGINE: Final[dict[str, tuple[_Kind, str, str]]] = {
    "num_running": (_GAUGE, "running", "Generations in the batch."),
    "num_waiting": (_GAUGE, "waiting", "Generations in the queue."),
    "cache_usage": (_GAUGE, "cache_usage_ratio", "Used part of the KV cache."),
    "num_steps": (_COUNTER, "steps", "Steps of the engine."),
    "num_prompt_tokens": (_COUNTER, "prompt_tokens", "Prompt tokens of accepted requests."),
    "num_cached_tokens": (_COUNTER, "cached_tokens", "Prompt tokens from the prefix cache."),
    "num_output_tokens": (_COUNTER, "output_tokens", "Generated tokens that were sent."),
    "num_unused_tokens": (_COUNTER, "unused_tokens", "Generated tokens that no client received."),
    "num_recoveries": (_COUNTER, "recoveries", "Steps that failed."),
    "num_draft_tokens": (_COUNTER, "draft_tokens", "Draft tokens of requests that have ended."),
    "num_accepted_tokens": (_COUNTER, "accepted_tokens", "Those of them that were accepted."),
}
_HISTOGRAMS: Final = {
    "first_token": ("time_to_first_token", "Until the first token."),
    "inter_token": ("inter_token", "Mean time between the tokens of a request."),
    "request": ("request", "Until the end of the response."),
    "queue": ("queue", "In the engine's queue."),
    "fetch": ("media_fetch", "Until all media by URL or path of a request were here."),
    "decode": ("media_decode", "Processor time that decoded the media of a request."),
    "encode": ("media_encode", "The engine's time to encode the media of a request."),
}
_ENGINE_LABELS: Final = ("model", "replica")
# vLLM's metrics of an engine: the type, the name after `vllm:`, the help text, and the value.
_VLLM_ENGINE: Final[tuple[tuple[_Kind, str, str, Callable[[EngineStats], float]], ...]] = (
    (_GAUGE, "num_requests_running", "Generations in the batch.", attrgetter("num_running")),
    (_GAUGE, "num_requests_waiting", "Generations in the queue.", attrgetter("num_waiting")),
    (
        _GAUGE,
        "kv_cache_usage_perc",
        "Used part of the KV cache, 0 to 1.",
        attrgetter("cache_usage"),
    ),
    (_COUNTER, "prompt_tokens", "Prompt tokens.", attrgetter("num_prompt_tokens")),
    (
        *(_COUNTER, "generation_tokens", "Generated tokens."),
        lambda stats: stats.num_output_tokens + stats.num_unused_tokens,
    ),
    (
        *(_COUNTER, "prefix_cache_queries", "Prompt tokens that were looked up."),
        attrgetter("num_prompt_tokens"),
    ),
    (
        *(_COUNTER, "prefix_cache_hits", "Prompt tokens from the prefix cache."),
        attrgetter("num_cached_tokens"),
    ),
    (
        *(_COUNTER, "spec_decode_num_draft_tokens", "Draft tokens."),
        attrgetter("num_draft_tokens"),
    ),
    (
        *(_COUNTER, "spec_decode_num_accepted_tokens", "Draft tokens that were accepted."),
        attrgetter("num_accepted_tokens"),
    ),
)
# vLLM's histograms, by the field of a model's traffic.
_VLLM_HISTOGRAMS: Final = {
    "first_token": ("time_to_first_token_seconds", "Until the first token."),
    "token_gap": ("inter_token_latency_seconds", "Between two tokens."),
    "inter_token": ("request_time_per_output_token_seconds", "The mean of a request."),
    "answer": ("e2e_request_latency_seconds", "Until the end of whole answers."),
    "queue": ("request_queue_time_seconds", "In the engine's queue."),
}
# The name after `vinery_` and the help text, by the field of a model's traffic.
_MEDIA: Final = {
    "media": ("media", "Pictures, videos and files of requests."),
    "media_bytes": ("media_bytes", "Bytes of these files."),
    "media_pixels": ("media_pixels", "Pixels that models saw of them."),
    "image_tokens": ("image_tokens", "Prompt tokens of pictures."),
    "video_tokens": ("video_tokens", "Prompt tokens of videos."),
}


async def exposition(runtime: Runtime) -> bytes:
    """All metrics in Prometheus's text format."""
    health = await runtime.health()
    families = [
        *of_engines(health),
        *of_reports(runtime.engine_reports),
        *of_vllm_engines(health),
        *of_vllm_traffic(runtime.traffic),
        *_of_process(runtime),
        *of_workers(runtime.workers),
        of_refusals(REFUSALS),
        of_blocks(loop_watch.counts),
        *of_traffic(runtime.traffic),
        *of_limits(await read_levels(runtime.limits)),
    ]
    return as_text(families)


def as_text(families: Iterable[Metric]) -> bytes:
    class Families(Collector):
        def collect(self) -> Iterable[Metric]:
            return families

    return generate_latest(Families())


def of_engines(health: Sequence[EngineHealth]) -> Iterator[Metric]:
    """The engines, which are the same in every web process."""
    ready = [(_engine_of(each), float(each.is_ready)) for each in health]
    help_text = "Generated a token lately."
    yield _family(_GAUGE, "vinery_engine_ready", help_text, _ENGINE_LABELS, ready)
    for field, (kind, name, help_text) in _ENGINE.items():
        values = [
            (_engine_of(each), getattr(each.stats, field))
            for each in health
            if each.stats is not None
        ]
        known = [(labels, float(value)) for labels, value in values if value is not None]
        yield _family(kind, f"vinery_engine_{name}", help_text, _ENGINE_LABELS, known)
    memory = [(_engine_of(each), float(resident_bytes(each.pid))) for each in health if each.pid]
    help_text = "Memory of the engine process."
    yield _family(_GAUGE, "vinery_engine_memory_bytes", help_text, _ENGINE_LABELS, memory)


def _engine_of(health: EngineHealth) -> tuple[str, str]:
    """The values of `_ENGINE_LABELS`."""
    return health.model, str(health.replica)


def of_reports(reports: Mapping[str, EngineReport]) -> Iterator[Metric]:
    """What the node has reported of all served models, also of those without an engine."""
    restarts = [((name,), float(each.num_restarts)) for name, each in reports.items()]
    help_text = "Engines that were started again."
    yield _family(_COUNTER, "vinery_engine_restarts", help_text, ("model",), restarts)
    labels = ("model", "device", "state")
    info = [((name, each.device, each.state), 1.0) for name, each in reports.items()]
    yield _family(_GAUGE, "vinery_engine_info", "Device and state of a model.", labels, info)


def _of_process(runtime: Runtime) -> Iterator[Metric]:
    ledger, captures, database = runtime.ledger, runtime.captures, runtime.database
    accounts_at_s, models_at_s = runtime.accounts_read_at_s, runtime.models_read_at_s
    gauge, counter = partial(_own, _GAUGE), partial(_own, _COUNTER)
    yield gauge("vinery_requests_live", "Requests now.", len(runtime.live))
    num_body_bytes = api_bodies().num_bytes
    yield gauge("vinery_bodies_bytes", "Bodies in the budget.", num_body_bytes)
    backlog_bytes = ledger.backlog_bytes
    yield gauge("vinery_usage_backlog_bytes", "Usage that is not stored yet.", backlog_bytes)
    yield counter("vinery_usage_lost", "Requests without a record.", ledger.num_lost)
    help_text = "When keys and limits were read."
    yield gauge("vinery_accounts_read_timestamp_seconds", help_text, accounts_at_s)
    help_text = "When served models were read."
    yield gauge("vinery_models_read_timestamp_seconds", help_text, models_at_s)
    yield gauge("vinery_captures_waiting", "Captures not yet stored.", len(captures))
    yield counter("vinery_captures_dropped", "Captures dropped.", captures.num_dropped)
    num_quarantined = runtime.quarantine.num_in_force
    yield gauge("vinery_quarantined_requests", "Requests in quarantine.", num_quarantined)
    yield gauge("vinery_database_away", "The database does not answer.", database.is_unavailable)
    free = [
        ((_pid(), contents), disk.free_bytes)
        for disk in runtime.disk.disks
        for contents in disk.contents
    ]
    yield _family(_GAUGE, "vinery_disk_free_bytes", "Free space by use.", ("pid", "holds"), free)
    if (state := runtime.limits.state) is not None:
        yield gauge("vinery_limits_store_away", "Redis is unavailable.", state.is_degraded)
        yield gauge(
            "vinery_limits_unsettled", "Settlements that wait for Redis.", state.num_waiting
        )
        yield counter("vinery_limits_uncounted", "Requests without limits.", state.num_uncounted)
        yield counter("vinery_limits_unsettled_lost", "Settlements lost.", state.num_dropped)


def of_workers(pool: WorkerPool) -> Iterator[Metric]:
    ended = [((_pid(), *key), num) for key, num in pool.num_ended.items()]
    labels = ("pid", "kind", "result")
    yield _family(_COUNTER, "vinery_work", "Work of worker processes.", labels, ended)
    yield _own(_GAUGE, "vinery_work_running", "Worker processes at work.", pool.num_running)
    yield _own(_GAUGE, "vinery_work_waiting", "Requests that wait for one.", pool.num_waiting)
    help_text = "Worker processes that were ended or replaced."
    yield _own(_COUNTER, "vinery_work_killed", help_text, pool.num_killed)
    help_text = "Starts of the process that forks them."
    yield _own(_COUNTER, "vinery_work_starts", help_text, pool.num_starts)


def of_refusals(refusals: Refusals) -> Metric:
    """What was refused before its key was known. All reasons are present from the start."""
    numbers = [((_pid(), str(reason)), number) for reason, number in refusals.nums.items()]
    help_text = "Connections and requests that were refused before their key was known."
    names = ("pid", "reason")
    return _family(_COUNTER, "vinery_connections_refused", help_text, names, numbers)


def of_blocks(counts: BlockCounts) -> Metric:
    """How long the event loop stood still, above 100 ms."""
    help_text = "Blocks of the event loop above 100 ms."
    family = HistogramMetricFamily("vinery_loop_block_seconds", help_text, labels=["pid"])
    bounds = [*map(floatToGoString, BOUNDS_S), "+Inf"]
    buckets = list(zip(bounds, accumulate(counts.nums), strict=True))
    family.add_metric([_pid()], buckets, counts.sum_s)
    return family


def of_traffic(traffic: Traffic) -> Iterator[Metric]:
    requests = [
        ((_pid(), name, str(endpoint), str(status)), num)
        for name, model in traffic.models.items()
        for (endpoint, status), num in model.requests.items()
    ]
    labels = ("pid", "model", "endpoint", "status")
    yield _family(_COUNTER, "vinery_requests", "Requests with a valid key.", labels, requests)
    refusals = [((_pid(), *map(str, key)), num) for key, num in traffic.refusals.items()]
    labels = ("pid", "metric", "scope", "effect")
    yield _family(_COUNTER, "vinery_refusals", "Refusals by limits.", labels, refusals)
    ignored = [((_pid(), name), num) for name, num in traffic.ignored.items()]
    help_text = "Requests with a field that took no effect."
    yield _family(_COUNTER, "vinery_ignored_fields", help_text, ("pid", "field"), ignored)
    for field, (name, help_text) in _MEDIA.items():
        numbers = [
            ((_pid(), model_name), float(getattr(model, field)))
            for model_name, model in traffic.models.items()
        ]
        yield _family(_COUNTER, f"vinery_{name}", help_text, ("pid", "model"), numbers)
    for field, (name, help_text) in _HISTOGRAMS.items():
        family = HistogramMetricFamily(f"vinery_{name}_seconds", help_text, labels=["pid", "model"])
        _add_durations(family, traffic.models, field)
        yield family


def _add_durations(
    family: HistogramMetricFamily, models: Mapping[str, ModelTraffic], field: str
) -> None:
    """Add the durations of all models. Its labels are the process and the model."""
    for name, model in models.items():
        histogram = attrgetter(field)(model)
        bounds = [*map(floatToGoString, histogram.bounds_s), "+Inf"]
        buckets = list(zip(bounds, accumulate(histogram.nums), strict=True))
        family.add_metric([_pid(), name], buckets, histogram.sum_ms / 1000)


def of_vllm_engines(health: Sequence[EngineHealth]) -> Iterator[Metric]:
    """The figures of engines under vLLM's names."""
    running = [(_engine_of(each), each.stats) for each in health if each.stats is not None]
    for kind, name, help_text, value_of in _VLLM_ENGINE:
        values = [(labels, float(value_of(stats))) for labels, stats in running]
        yield _family(kind, f"vllm:{name}", help_text, ("model_name", "engine"), values)


def of_vllm_traffic(traffic: Traffic) -> Iterator[Metric]:
    """The requests of this process under vLLM's names."""
    finished = [
        ((_pid(), name, reason), float(num))
        for name, model in traffic.models.items()
        for reason, num in model.finished.items()
    ]
    labels = ("pid", "model_name", "finished_reason")
    yield _family(_COUNTER, "vllm:request_success", "Answers by how they ended.", labels, finished)
    for field, (name, help_text) in _VLLM_HISTOGRAMS.items():
        family = HistogramMetricFamily(f"vllm:{name}", help_text, labels=["pid", "model_name"])
        _add_durations(family, traffic.models, field)
        yield family


async def read_levels(limits: LimitService) -> Sequence[Level]:
    """The use of the exposed limits; empty while Redis is unavailable."""
    rules = [rule for rule in limits.book.rules if rule.scope_kind in _EXPOSED_SCOPES]
    if not rules:
        return ()
    try:
        return await limits.levels(rules)
    except LimitsUnavailable:
        return ()


def of_limits(levels: Sequence[Level]) -> Iterator[Metric]:
    """The use of limits. Without Redis, each of several web processes counts its own share."""
    names = ("pid", "limit", "scope", "owner", "metric", "window", "shadow")
    used = [(_labels_of(level), level.num_used) for level in levels]
    yield _family(_GAUGE, "vinery_limit_used", "Used, with reservations.", names, used)
    amounts = [(_labels_of(level), level.rule.amount) for level in levels]
    yield _family(_GAUGE, "vinery_limit_amount", "The limit.", names, amounts)


def _labels_of(level: Level) -> tuple[str, ...]:
    rule = level.rule
    kind = str(rule.metric), str(rule.window), str(rule.is_shadow).lower()
    return (_pid(), str(rule.id), rule.scope_kind, rule.owner, *kind)


def _own(kind: _Kind, name: str, help_text: str, value: float) -> Metric:
    """A metric of this process with one value."""
    return _family(kind, name, help_text, ("pid",), [((_pid(),), value)])


def _family(
    kind: _Kind,
    name: str,
    help_text: str,
    labels: Sequence[str],
    samples: Iterable[tuple[Sequence[str], float]],
) -> Metric:
    """A metric. Each sample has the values of the labels and its own value."""
    family = kind(name, help_text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _pid() -> str:
    return str(os.getpid())
