"""Liveness, readiness and metrics, for probes and Prometheus.

Django does not handle these paths, so a probe by IP address passes without a known host name.
"""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from accounts.limits.service import StoreState
from serving.http.edge import Receive, Scope, Send, send_whole
from serving.runtime.runtime import Runtime
from vinery.health import metrics

_JSON: Final = b"application/json"
_PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"

# Keys and limits are read twice a second. Data that is older is reported.
_FRESH_S: Final = 30.0

Answer = tuple[int, bytes, bytes]  # status, content type, body
_Check = tuple[bool, str]  # a part of the report: whether it is healthy, and how it is


class HealthApplication:
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
        return path in self._routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await send_whole(send, 405, [(b"allow", b"GET, HEAD")], b"")
            return
        status, content_type, body = await self._routes[scope["path"]]()
        headers = [(b"content-type", content_type), (b"cache-control", b"no-store")]
        await send_whole(send, status, headers, b"" if scope["method"] == "HEAD" else body)

    async def _live(self) -> Answer:
        """200: this process responds."""
        return 200, _JSON, b'{"status": "alive"}'

    async def _ready(self) -> Answer:
        """200 if at least one model has generated a token lately.

        An unavailable database or Redis, or a full disk, is reported as `degraded` with 200:
        requests are still served, and other processes use the same database and Redis.
        """
        runtime = self._runtime
        health = await runtime.health()
        checks = {
            "database": _of_database(runtime),
            "keys": _of_keys(runtime),
            "limits": _of_limits(runtime.limits.state),
            "disk": (runtime.disk.is_healthy, runtime.disk.report),
        }
        is_ready = runtime.is_started and any(each.is_ready for each in health)
        is_healthy = all(is_well for is_well, _ in checks.values())
        report = {
            "status": ("ready" if is_healthy else "degraded") if is_ready else "not ready",
            "models": {each.model: "ready" if each.is_ready else "not ready" for each in health},
            **{name: text for name, (_, text) in checks.items()},
        }
        return _response(report, is_good=is_ready)

    async def _startup(self) -> Answer:
        """200 once keys and models have been read."""
        runtime = self._runtime
        report = {
            "status": "started" if runtime.is_started else "starting",
            "keys": "read" if runtime.accounts_read_at_s else "not read",
            "models": "read" if runtime.models_read_at_s else "not read",
            "database": _of_database(runtime)[1],
        }
        return _response(report, is_good=runtime.is_started)

    async def _metrics(self) -> Answer:
        return 200, _PROMETHEUS, await metrics.exposition(self._runtime)


def _of_database(runtime: Runtime) -> _Check:
    """Whether the database answers; if not, with the age of keys, limits and models in memory."""
    if not runtime.database.is_unavailable:
        return True, "answers"
    read_at_s = min(runtime.accounts_read_at_s, runtime.models_read_at_s)
    age = f": data of {time.time() - read_at_s:.0f} s ago is used" if read_at_s else ""
    return False, f"unavailable{age}"


def _of_keys(runtime: Runtime) -> _Check:
    """Whether changes of keys are followed, so that revoked keys are refused."""
    age_s = time.time() - runtime.accounts_read_at_s
    if not runtime.accounts_read_at_s or age_s <= _FRESH_S:
        return True, "up to date" if runtime.accounts_read_at_s else "not read yet"
    return False, f"changes of the last {age_s:.0f} s are unknown"


def _of_limits(state: StoreState | None) -> _Check:
    """Whether limits are counted. Without Redis the process counts them itself."""
    if state is None or not state.is_degraded:
        return True, "counted"
    return False, f"Redis is unavailable: {state.policy}"


def _response(report: Mapping[str, object], *, is_good: bool) -> Answer:
    return (200 if is_good else 503), _JSON, json.dumps(report).encode()
