"""Liveness, readiness and metrics, for probes and Prometheus.

Django does not handle these paths, so a probe by IP address passes without a known host name.
"""

import asyncio
import hmac
import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from vinery_accounts.limits.service import StoreState
from vinery_accounts.outbound.addresses import read_address
from vinery_platform.operations import metrics
from vinery_serving.gateway.endpoints.edge import Receive, Scope, Send, send_whole
from vinery_serving.gateway.state.host_health import EngineHealth
from vinery_serving.gateway.state.runtime import Runtime

_JSON: Final = b"application/json"
_TEXT: Final = b"text/plain; charset=utf-8"
_PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"

_METRICS: Final = "/metrics"
_PING: Final = "/ping"
_METHODS: Final = ("GET", "HEAD")
_METHODS_OF_PING: Final = (*_METHODS, "POST")
_REFUSAL: Final = (
    b"Send the value of VINERY_METRICS_TOKEN as a bearer token, or read the metrics on the "
    b"server's own machine.\n"
)
_NOT_STORED: Final = (b"cache-control", b"no-store")

# Keys, limits and models are read twice a second. Data that is older is reported.
_FRESH_S: Final = 30.0

# How long after an answer of one kind the next one is begun, at least.
_SHARED_FOR_S: Final = 0.05

# Proxies add one of these.
_FORWARDED: Final = frozenset(
    (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto")
)


Answer = tuple[int, bytes, bytes]  # status, content type, body
_STOPPING: Final[Answer] = (503, _JSON, b'{"status": "stopping"}')
_Check = tuple[bool, str]  # a part of the report: whether healthy, and a description


@dataclass(frozen=True, slots=True)
class MetricsAccess:
    """Who may read `/metrics`, which names organisations, models and amounts of use.

    Clients without the token learn no names of models from another machine: `/readyz` has numbers,
    and `/metrics` the ids of models that not every key sees.

    Without a public URL, every client that reaches the port: the network protects it. With one,
    only clients on this machine that did not come through the proxy, and clients with the token.
    """

    token: bytes = field(default=b"", repr=False)
    """Bytes of the bearer token; empty: no token admits."""
    is_public: bool = False
    """Whether the server has a public URL."""

    def permits(self, scope: Mapping[str, Any]) -> bool:
        return not (self.is_public or self.token) or self.shows_names(scope)

    def shows_names(self, scope: Mapping[str, Any]) -> bool:
        headers = dict(reversed(scope["headers"]))  # of several with one name the first counts
        if (client := scope.get("client")) and not _FORWARDED & headers.keys():
            address = read_address(client[0])
            if address is not None and address.is_loopback:
                return True
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        is_token = bool(self.token) and scheme.lower() == b"bearer"
        return is_token and hmac.compare_digest(given.strip(), self.token)


class HealthApplication:
    def __init__(self, runtime: Runtime, metrics_access: MetricsAccess | None = None) -> None:
        self._runtime = runtime
        self._metrics_access = metrics_access or MetricsAccess()
        # Models that not every key sees, with ids; the counters of a removed one go on.
        self._hidden: dict[bytes, int] = {}
        ready = _Shared(self._ready)
        self._routes: dict[str, Callable[[], Awaitable[Answer]]] = {
            "/livez": self._live,
            "/v2/health/live": self._live,
            "/readyz": ready,
            "/v2/health/ready": ready,
            "/startupz": self._startup,
            # Of vLLM and of Amazon SageMaker: the status alone.
            "/health": partial(_without_report, ready),
            _PING: partial(_without_report, ready),
            _METRICS: _Shared(self._metrics),
        }

    def knows(self, path: str) -> bool:
        return path in self._routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        allowed = _METHODS_OF_PING if scope["path"] == _PING else _METHODS
        if scope["method"] not in allowed:
            await send_whole(send, 405, [(b"allow", ", ".join(allowed).encode())], b"")
            return
        if scope["path"] == _METRICS and not self._metrics_access.permits(scope):
            headers = [(b"content-type", _TEXT), (b"www-authenticate", b"Bearer"), _NOT_STORED]
            await send_whole(send, 401, headers, _REFUSAL)
            return
        status, content_type, body = await self._routes[scope["path"]]()
        if not self._metrics_access.shows_names(scope):
            body = self._without_names(content_type, body)
        headers = [(b"content-type", content_type), _NOT_STORED]
        await send_whole(send, status, headers, b"" if scope["method"] == "HEAD" else body)

    def _without_names(self, content_type: bytes, body: bytes) -> bytes:
        if content_type == _PROMETHEUS:
            for each in self._runtime.directory.entries.values():
                self._hidden.pop(each.name.encode(), None)
                if each.projects:
                    self._hidden[each.name.encode()] = each.id
            label = re.compile(rb'="(%s)"' % b"|".join(map(re.escape, self._hidden)))
            hidden = self._hidden
            return label.sub(lambda at: b'="model-%d"' % hidden[at[1]], body) if hidden else body
        if content_type == _JSON and "models" in (report := json.loads(body)):
            if isinstance(report["models"], dict):  # `/startupz` has a word
                report["models"] = Counter(report["models"].values())
            return json.dumps(report).encode()
        return body

    async def _live(self) -> Answer:
        """200: this process responds."""
        return 200, _JSON, b'{"status": "alive"}'

    async def _ready(self) -> Answer:
        """200 if at least one model has generated a token lately or is asleep, usage can be
        recorded, changes of models are followed, and this process is not being stopped. An
        unavailable database or Redis, or a full disk, is reported as `degraded` with 200: requests
        are still served, and other processes use the same database and Redis."""
        runtime = self._runtime
        if runtime.drain.is_begun:
            return _STOPPING
        health, checks = await runtime.health(), _checks(runtime)
        has_room, model_table = runtime.ledger.has_room, checks["model_table"]
        can_answer = any(each.is_ready or each.is_asleep for each in health)
        follows_models = model_table[0] or runtime.database.is_unavailable
        is_ready = runtime.is_started and can_answer and has_room and follows_models
        is_healthy = all(is_well for is_well, _ in checks.values())
        report = {
            "status": ("ready" if is_healthy else "degraded") if is_ready else "not ready",
            "models": _by_model(health),
            **{name: text for name, (_, text) in checks.items()},
        }
        # Also if this process got its signal while the engines were asked.
        return _STOPPING if runtime.drain.is_begun else _response(report, is_good=is_ready)

    async def _startup(self) -> Answer:
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


async def _without_report(ready: Callable[[], Awaitable[Answer]]) -> Answer:
    return (await ready())[0], _TEXT, b""


class _Shared:
    """One answer for all requests that arrive before its start, so that any number of anonymous
    requests costs the event loop and the engines little."""

    def __init__(self, build: Callable[[], Awaitable[Answer]]) -> None:
        self._build = build
        self._next: asyncio.Task[Answer] | None = None  # not begun
        self._begun_at_s = 0.0

    async def __call__(self) -> Answer:
        if self._next is None:
            self._next = asyncio.create_task(self._build_next(), name="health")
        return await asyncio.shield(self._next)

    async def _build_next(self) -> Answer:
        await asyncio.sleep(self._begun_at_s + _SHARED_FOR_S - time.monotonic())
        self._next = None
        self._begun_at_s = time.monotonic()
        return await self._build()


def _by_model(health: Sequence[EngineHealth]) -> dict[str, str]:
    states = dict.fromkeys((each.model for each in health), "not ready")
    states |= {each.model: "asleep" for each in health if each.is_asleep}
    return states | {each.model: "ready" for each in health if each.is_ready}


def _checks(runtime: Runtime) -> dict[str, _Check]:
    has_room = runtime.ledger.has_room
    return {
        "database": _of_database(runtime),
        "keys": _of_age(runtime.accounts_read_at_s),
        "model_table": _of_age(runtime.models_read_at_s),
        **_of_limits(runtime.limits.state),
        "disk": (runtime.disk.is_healthy, runtime.disk.report),
        "usage": (has_room, "recorded" if has_room else "no disk space: requests are refused"),
    }


def problems(runtime: Runtime) -> list[str]:
    """Return sentences about what is not well in this process, except limits, of which the console
    knows."""
    titles = {"keys": "Table of keys", "model_table": "Table of models"}
    return [
        f"{titles.get(name, name.capitalize())}: {text}."
        for name, (is_well, text) in _checks(runtime).items()
        if not is_well and name not in ("limits", "redis")
    ]


def _of_database(runtime: Runtime) -> _Check:
    """Whether the database answers; if not, with the age of keys, limits and models in memory."""
    database = runtime.database
    if not database.is_unavailable:
        return True, database.report
    read_at_s = min(runtime.accounts_read_at_s, runtime.models_read_at_s)
    age = f": data of {time.time() - read_at_s:.0f} s ago is used" if read_at_s else ""
    return False, f"{database.report}{age}"


def _of_age(read_at_s: float) -> _Check:
    """Whether changes are followed: of keys, so that revoked keys are refused; of models, which
    projects see them, aliases and removals."""
    age_s = time.time() - read_at_s
    if not read_at_s:
        return True, "not read yet"
    if age_s <= _FRESH_S:
        return True, f"read {age_s:.0f} s ago"
    return False, f"changes of the last {age_s:.0f} s are unknown"


def _of_limits(state: StoreState | None) -> dict[str, _Check]:
    """Whether limits are counted, and whether Redis answers. Without Redis the process counts."""
    if state is None:
        return {"limits": (True, "counted"), "redis": (True, "not used")}
    at_s, is_well = state.answered_at_s, not state.is_degraded
    answered = f"answered {time.time() - at_s:.0f} s ago" if at_s else "has not answered yet"
    return {
        "limits": (is_well, "counted" if is_well else f"Redis is unavailable: {state.policy}"),
        "redis": (is_well, answered if is_well else f"unavailable, {answered}"),
    }


def _response(report: Mapping[str, object], *, is_good: bool) -> Answer:
    return (200 if is_good else 503), _JSON, json.dumps(report).encode()
