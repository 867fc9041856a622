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

from vinery_accounts.limits.reservations import Level, LimitsUnavailable
from vinery_accounts.limits.service import LimitService
from vinery_platform.processes.loop_watch import loop_watch
from vinery_platform.processes.memory import resident_bytes
from vinery_serving.gateway.endpoints.bodies import api_bodies
from vinery_serving.gateway.endpoints.refusals import REFUSALS, Refusals
from vinery_serving.gateway.engines.meter import Histogram
from vinery_serving.gateway.state.host_health import EngineHealth
from vinery_serving.gateway.state.model_rows import EngineReport
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.gateway.state.traffic import Traffic
from vinery_serving.gateway.workers.pool import WorkerPool
from vinery_serving.transport.messages import EngineStats

_Kind = type[GaugeMetricFamily] | type[CounterMetricFamily]
_GAUGE: Final = GaugeMetricFamily
_COUNTER: Final = CounterMetricFamily
_VLLM: Final = "vllm:"

# The scopes whose limits are exposed: there may be any number of keys and users.
_EXPOSED_SCOPES: Final = frozenset({"platform", "model", "organization", "project"})

# A metric has vLLM's name and labels where vLLM has such a metric, because dashboards and
# autoscalers know these names. Other metrics have names of Vinery.
_ENGINE_LABELS: Final = ("model", "replica")
_VLLM_ENGINE_LABELS: Final = ("model_name", "engine")
# The figures of an engine: the type, the name, the help text, and the value.
_ENGINE: Final[tuple[tuple[_Kind, str, str, Callable[[EngineStats], float]], ...]] = (
    (_GAUGE, "vllm:num_requests_running", "Answers in the batch.", attrgetter("num_running")),
    (_GAUGE, "vllm:num_requests_waiting", "Answers in the queue.", attrgetter("num_waiting")),
    (
        *(_GAUGE, "vllm:kv_cache_usage_perc", "Used part of the KV cache, 0 to 1."),
        attrgetter("cache_usage"),
    ),
    (_COUNTER, "vllm:prompt_tokens", "Prompt tokens.", attrgetter("tokens.num_prompt_tokens")),
    (
        *(_COUNTER, "vllm:generation_tokens", "Generated tokens."),
        lambda stats: stats.tokens.num_output_tokens + stats.num_unused_tokens,
    ),
    (
        *(_COUNTER, "vllm:prefix_cache_queries", "Prompt tokens that were looked up."),
        attrgetter("tokens.num_prompt_tokens"),
    ),
    (
        *(_COUNTER, "vllm:prefix_cache_hits", "Prompt tokens from the prefix cache."),
        attrgetter("tokens.num_cached_tokens"),
    ),
    (
        *(_COUNTER, "vllm:spec_decode_num_draft_tokens", "Draft tokens of ended requests."),
        attrgetter("tokens.num_proposed_tokens"),
    ),
    (
        *(_COUNTER, "vllm:spec_decode_num_accepted_tokens", "Draft tokens that were accepted."),
        attrgetter("tokens.num_accepted_tokens"),
    ),
    (
        *(_COUNTER, "vinery_engine_unused_tokens", "Generated tokens that no client received."),
        attrgetter("num_unused_tokens"),
    ),
    (_COUNTER, "vinery_engine_steps", "Steps of the engine.", attrgetter("num_steps")),
    (_COUNTER, "vinery_engine_recoveries", "Steps that failed.", attrgetter("num_recoveries")),
)
# The name and the help text of a histogram, by the field of a model's traffic.
_HISTOGRAMS: Final = {
    "first_token": ("vllm:time_to_first_token_seconds", "Until the first token."),
    "token_gap": ("vllm:inter_token_latency_seconds", "Between two tokens."),
    "inter_token": ("vllm:request_time_per_output_token_seconds", "The mean of a request."),
    "answer": ("vllm:e2e_request_latency_seconds", "Until the end of whole answers."),
    "queue": ("vllm:request_queue_time_seconds", "In the engine's queue."),
    "total": ("vinery_request_seconds", "Until the end of the response."),
    "fetch": ("vinery_media_fetch_seconds", "Until all media by URL or path of a request came."),
    "decode": ("vinery_media_decode_seconds", "Processor time that decoded a request's media."),
    "encode": ("vinery_media_encode_seconds", "The engine's time to encode a request's media."),
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
    health = await runtime.health()
    families = [
        *of_engines(health),
        *of_reports(runtime.engine_reports),
        *_of_process(runtime),
        _own(_COUNTER, "vinery_stored_lost", "Answers not stored.", runtime.num_not_stored),
        *of_workers(runtime.workers),
        of_refusals(REFUSALS),
        of_blocks(loop_watch.blocks),
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
    running = [(_engine_of(each), each.stats) for each in health if each.stats is not None]
    for kind, name, help_text, value_of in _ENGINE:
        labels = _VLLM_ENGINE_LABELS if name.startswith(_VLLM) else _ENGINE_LABELS
        values = [(engine, float(value_of(stats))) for engine, stats in running]
        yield _family(kind, name, help_text, labels, values)
    memory = [(_engine_of(each), float(resident_bytes(each.pid))) for each in health if each.pid]
    help_text = "Memory of the engine process."
    yield _family(_GAUGE, "vinery_engine_memory_bytes", help_text, _ENGINE_LABELS, memory)


def _engine_of(health: EngineHealth) -> tuple[str, str]:
    return health.model, str(health.replica)


def of_reports(reports: Mapping[str, EngineReport]) -> Iterator[Metric]:
    """The node's reports of all served models, also of models without an engine."""
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
    free = [((_pid(), name), num_bytes) for name, num_bytes in runtime.disk.free_bytes.items()]
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
    yield _own(_GAUGE, "vinery_work_running", "Worker processes at work.", pool.turns.num_running)
    yield _own(_GAUGE, "vinery_work_waiting", "Requests that wait for one.", pool.turns.num_waiting)
    help_text = "Worker processes that were ended or replaced."
    yield _own(_COUNTER, "vinery_work_killed", help_text, pool.num_killed)
    help_text = "Starts of the process that forks them."
    yield _own(_COUNTER, "vinery_work_starts", help_text, pool.num_starts)


def of_refusals(refusals: Refusals) -> Metric:
    """Refusals before the key was known. All reasons are present from the start."""
    numbers = [((_pid(), str(reason)), number) for reason, number in refusals.nums.items()]
    help_text = "Connections and requests that were refused before their key was known."
    names = ("pid", "reason")
    return _family(_COUNTER, "vinery_connections_refused", help_text, names, numbers)


def of_blocks(blocks: Histogram) -> Metric:
    """How long the event loop stood still, above 100 ms."""
    help_text = "Blocks of the event loop above 100 ms."
    return _histogram("vinery_loop_block_seconds", help_text, ("pid",), [((_pid(),), blocks)])


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
            ((_pid(), model_name), float(model.media[field]))
            for model_name, model in traffic.models.items()
        ]
        yield _family(_COUNTER, f"vinery_{name}", help_text, ("pid", "model"), numbers)
    yield from _of_answers(traffic)


def _of_answers(traffic: Traffic) -> Iterator[Metric]:
    finished = [
        ((_pid(), model_name, reason), float(num))
        for model_name, model in traffic.models.items()
        for reason, num in model.finished.items()
    ]
    labels = ("pid", "model_name", "finished_reason")
    yield _family(_COUNTER, "vllm:request_success", "Answers by how they ended.", labels, finished)
    for field, (name, help_text) in _HISTOGRAMS.items():
        label = "model_name" if name.startswith(_VLLM) else "model"
        models = traffic.models.items()
        durations = [((_pid(), model), each.durations[field]) for model, each in models]
        yield _histogram(name, help_text, ("pid", label), durations)


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
    return _family(kind, name, help_text, ("pid",), [((_pid(),), value)])


def _family(
    kind: _Kind,
    name: str,
    help_text: str,
    labels: Sequence[str],
    samples: Iterable[tuple[Sequence[str], float]],
) -> Metric:
    family = kind(name, help_text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _histogram(
    name: str,
    help_text: str,
    labels: Sequence[str],
    samples: Iterable[tuple[Sequence[str], Histogram]],
) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=labels)
    for values, each in samples:
        bounds = [*map(floatToGoString, each.bounds_s), "+Inf"]
        buckets = list(zip(bounds, accumulate(each.nums), strict=True))
        family.add_metric(values, buckets, each.sum_ms / 1000)
    return family


def _pid() -> str:
    return str(os.getpid())
