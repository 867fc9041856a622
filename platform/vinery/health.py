"""Is it alive, is it ready and what is it doing: for probes and Prometheus.

Answered without Django, so that a probe by address is not refused for its host name.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serving.edge import Receive, Scope, Send, send_whole
from serving.runtime import EngineHealth, Runtime

_JSON: Final = b"application/json"
_PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"

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
        """200 when at least one model has really generated a token a moment ago."""
        health = await self._runtime.health()
        is_ready = any(each.is_ready for each in health)
        models = {each.model: "ready" if each.is_ready else "not ready" for each in health}
        status = "ready" if is_ready else "not ready"
        body = json.dumps({"status": status, "models": models}).encode()
        return (200 if is_ready else 503), _JSON, body

    async def _metrics(self) -> Answer:
        registry = CollectorRegistry(auto_describe=False)
        runtime = self._runtime
        health = await runtime.health()
        registry.register(_Snapshot(health, len(runtime.live), runtime.ledger.backlog_bytes))
        return 200, _PROMETHEUS, generate_latest(registry)


class _Snapshot(Collector):
    """The state of this process and its engines at one moment, as metrics."""

    def __init__(self, health: list[EngineHealth], num_live: int, num_backlog_bytes: int) -> None:
        self._health = health
        self._num_live = num_live
        self._num_backlog_bytes = num_backlog_bytes

    def collect(self) -> list[Metric]:
        """Called by the registry."""
        live = GaugeMetricFamily("vinery_requests_live", "Requests in this web process.")
        live.add_metric([], self._num_live)
        backlog = GaugeMetricFamily("vinery_usage_backlog_bytes", "Usage not yet stored.")
        backlog.add_metric([], self._num_backlog_bytes)
        return [live, backlog, *self._gauges(), *self._counters()]

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
            if each.stats is not None:
                family.add_metric([each.model], float(getattr(each.stats, field)))
        return family
