"""Readiness of a process, metrics of requests and limits, and who may read them."""

import asyncio
import json
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from tests.tables import table
from vinery_accounts.limits.reservations import LimitsUnavailable, UsageBaseline
from vinery_accounts.limits.rulebook import Snapshot
from vinery_accounts.limits.rules import Metric, Rule, Window
from vinery_accounts.limits.service import LimitService
from vinery_platform.cli.services import behind
from vinery_platform.config import env
from vinery_platform.config.env import SettingError
from vinery_platform.operations import metrics
from vinery_platform.operations.health import HealthApplication, MetricsAccess, _Shared
from vinery_serving.core.events import TokenCounts
from vinery_serving.gateway.endpoints.refusals import Reason, Refusals
from vinery_serving.gateway.state.host_health import EngineHealth
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.gateway.state.traffic import ModelTraffic, Traffic
from vinery_serving.transport.messages import EngineStats


@table("is_away, status", [(False, 503), (True, 200)])
async def test_a_process_that_does_not_follow_models_is_not_ready_unless_the_database_is_away(
    is_away, status
) -> None:
    async def health() -> list[EngineHealth]:
        return [EngineHealth("tiny", None, is_asleep=True)]

    runtime = SimpleNamespace(
        health=health,
        drain=SimpleNamespace(is_begun=False),
        ledger=SimpleNamespace(has_room=True),
        database=SimpleNamespace(is_unavailable=is_away, report="unavailable"),
        limits=SimpleNamespace(state=None),
        disk=SimpleNamespace(is_healthy=True, report="enough"),
        is_started=True,
        accounts_read_at_s=time.time(),
        models_read_at_s=time.time(),
    )
    application = HealthApplication(cast(Runtime, runtime))
    assert (await application._ready())[0] == 200
    runtime.models_read_at_s -= 95
    assert (await application._ready())[0] == status


async def test_requests_that_arrive_together_share_an_answer() -> None:
    num_built = 0

    async def build() -> tuple[int, bytes, bytes]:
        nonlocal num_built
        num_built += 1
        return 200, b"text/plain", str(num_built).encode()

    shared = _Shared(build)
    answers = await asyncio.gather(*(shared() for _ in range(100)))

    assert {body for _, _, body in answers} == {b"1"}
    assert (await shared())[2] == b"2"  # one that arrives later gets a later one


def reported_by(families: Iterable[Family]) -> dict[tuple[str, ...], float]:
    """Return the samples by name and by the values of all labels except the process."""
    families = text_string_to_metric_families(metrics.as_text(families).decode())
    reported = {}
    for sample in (each for family in families for each in family.samples):
        labels = [value for label, value in sorted(sample.labels.items()) if label != "pid"]
        reported[sample.name, *labels] = sample.value
    return reported


def test_requests_refusals_and_buckets_of_durations_are_reported_by_their_labels() -> None:
    traffic = Traffic()
    traffic.models["small"] = ModelTraffic()
    traffic.models["small"].requests["completions", 499] = 3
    traffic.refusals["tokens", "key", "shadow"] = 2
    traffic.ignored["store"] = 4
    result = reported_by(metrics.of_traffic(traffic))
    assert result["vinery_requests_total", "completions", "small", "499"] == 3
    assert result["vinery_refusals_total", "shadow", "tokens", "key"] == 2
    assert result["vinery_ignored_fields_total", "store"] == 4

    traffic = Traffic()
    small = traffic.models["small"] = ModelTraffic()
    for duration_ms in (20.0, 40.0, 90_000.0):
        small.durations["first_token"].count(duration_ms)
    result = reported_by(metrics.of_traffic(traffic))
    name = "vllm:time_to_first_token_seconds"
    bounds = ("0.01", "0.025", "0.05", "60.0", "+Inf")
    assert [result[f"{name}_bucket", bound, "small"] for bound in bounds] == [0, 1, 2, 2, 3]
    assert result[f"{name}_count", "small"] == 3
    assert result[f"{name}_sum", "small"] == 90.06


def test_refusals_are_counted_by_reason_and_logged_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    refusals = Refusals(clock=lambda: now[0])
    for _ in range(1000):
        refusals.count(Reason.ADDRESS)
    now[0] = 11.0
    refusals.count(Reason.MALFORMED)

    lines = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert lines == ["address 1", "address 999, malformed 1"]
    result = reported_by([metrics.of_refusals(refusals)])
    name = "vinery_connections_refused_total"
    assert result[name, "address"] == 1000
    assert result[name, "headers_too_large"] == 0


def limits_of(*scopes: str) -> LimitService:
    limits = LimitService()
    rules = {
        scope: (Rule(number, scope, Metric.TOKENS, Window.NONE, 100),)
        for number, scope in enumerate(scopes, start=1)
    }
    limits.book.follow(Snapshot(rules))
    return limits


async def test_limits_and_usage_are_reported_but_not_of_keys_or_users_or_with_no_store() -> None:
    limits = limits_of("platform", "organization:7")
    await limits._limiter.restore([UsageBaseline(rule, rule.id * 10) for rule in limits.book.rules])
    result = reported_by(metrics.of_limits(await metrics.read_levels(limits)))
    whole, organization = ("1", "tokens", "", "platform"), ("2", "tokens", "7", "organization")
    assert result == {
        ("vinery_limit_used", *whole, "false", "none"): 10,
        ("vinery_limit_used", *organization, "false", "none"): 20,
        ("vinery_limit_amount", *whole, "false", "none"): 100,
        ("vinery_limit_amount", *organization, "false", "none"): 100,
    }

    limits = limits_of("key:1", "user:1", "project:1", "model:a:b")
    levels = await metrics.read_levels(limits)
    assert [level.rule.scope for level in levels] == ["project:1", "model:a:b"]
    name = ("vinery_limit_used", "4", "tokens", "a:b", "model", "false", "none")
    assert name in reported_by(metrics.of_limits(levels))

    store = AsyncMock()
    store.levels.side_effect = LimitsUnavailable("unavailable")
    limits._limiter = store
    assert await metrics.read_levels(limits) == ()


def test_a_figure_has_vllms_name_or_where_vllm_has_none_a_name_of_vinery() -> None:
    tokens: dict[str, Any] = {"num_prompt_tokens": 100, "num_cached_tokens": 40}
    tokens |= {"num_output_tokens": 30, "num_proposed_tokens": 20, "num_accepted_tokens": 15}
    work: dict[str, Any] = {"num_running": 2, "num_waiting": 3, "num_steps": 9, "cache_usage": 0.5}
    stats = EngineStats(tokens=TokenCounts(**tokens), num_unused_tokens=1, **work)
    silent = EngineHealth("silent", None)

    reported = reported_by(metrics.of_engines([EngineHealth("small", stats), silent]))
    expected = {"num_requests_running": 2, "num_requests_waiting": 3, "kv_cache_usage_perc": 0.5}
    expected |= {"prompt_tokens_total": 100, "generation_tokens_total": 31}
    expected |= {"prefix_cache_queries_total": 100, "prefix_cache_hits_total": 40}
    expected |= {"spec_decode_num_draft_tokens_total": 20}
    expected |= {"spec_decode_num_accepted_tokens_total": 15}
    own = {"ready": 0, "steps_total": 9, "recoveries_total": 0, "unused_tokens_total": 1}
    assert reported == (
        {(f"vllm:{name}", "0", "small"): each for name, each in expected.items()}
        | {(f"vinery_engine_{name}", "small", "0"): each for name, each in own.items()}
        | {("vinery_engine_ready", "silent", "0"): 0}
    )

    traffic = Traffic()
    traffic.models["small"].finished["stop"] = 3
    traffic.models["small"].durations["token_gap"].count(20.0, times=9)

    reported = reported_by(metrics.of_traffic(traffic))
    assert reported["vllm:request_success_total", "stop", "small"] == 3
    assert reported["vllm:inter_token_latency_seconds_count", "small"] == 9
    assert reported["vllm:inter_token_latency_seconds_sum", "small"] == pytest.approx(0.18)
    assert reported["vllm:e2e_request_latency_seconds_count", "small"] == 0


TOKEN = "a-token-of-more-than-16"
BEARER = ("authorization", f"Bearer {TOKEN}")


def scope_of(client: str | None, *headers: tuple[str, str]) -> dict[str, Any]:
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/metrics", "scheme": "http"}
    scope["client"] = None if client is None else (client, 4711)
    return scope | {"headers": [(name.encode(), value.encode()) for name, value in headers]}


@table("access", [MetricsAccess(is_public=True), MetricsAccess(TOKEN.encode())])
def test_clients_need_the_token_but_for_those_on_this_machine(access: MetricsAccess) -> None:
    for client in ("127.0.0.1", "::1", "127.9.9.9", "::ffff:127.0.0.1"):
        assert access.permits(scope_of(client)), client
    for other in ("203.0.113.9", "10.0.0.7", None, "not an address"):
        assert not access.permits(scope_of(other)), other
    for value in ("Bearer wrong", TOKEN, "Bearer ", f"Basic {TOKEN}"):
        assert not access.permits(scope_of("203.0.113.9", ("authorization", value))), value


def test_the_token_admits_from_everywhere_and_without_one_no_header() -> None:
    access = MetricsAccess(TOKEN.encode(), is_public=True)
    # A client of a proxy on this machine needs it.
    for name in ("x-forwarded-for", "x-forwarded-proto", "forwarded", "via"):
        assert not access.permits(scope_of("127.0.0.1", (name, "127.0.0.1"))), name
        assert access.permits(scope_of("127.0.0.1", (name, "127.0.0.1"), BEARER)), name

    assert access.permits(scope_of("203.0.113.9", BEARER))
    assert access.permits(scope_of("203.0.113.9", ("authorization", f"bearer {TOKEN}")))
    nothing = scope_of("203.0.113.9", ("authorization", "Bearer "))
    assert not MetricsAccess(is_public=True).permits(nothing)
    for client in ("203.0.113.9", "127.0.0.1", None):
        assert MetricsAccess().permits(scope_of(client)), "without a public URL and a token"


async def test_names_of_models_need_the_token_or_this_machine(monkeypatch: Any) -> None:
    """Without a public URL everybody may read the metrics, but a name may be a secret."""
    entries = {
        name: SimpleNamespace(name=name, id=id_, projects=projects)
        for name, id_, projects in (("open", 3, frozenset()), ("merger-1.5", 7, frozenset({2})))
    }
    runtime = SimpleNamespace(directory=SimpleNamespace(entries=entries))
    exposition = b'a{model="open"} 1\na{model="merger-1.5"} 2\nb{owner="merger-1.5"} 3\n'
    monkeypatch.setattr(metrics, "exposition", AsyncMock(return_value=exposition))
    health = HealthApplication(cast(Runtime, runtime), MetricsAccess(TOKEN.encode()))
    report = b'{"status": "ready", "models": {"open": "ready", "merger-1.5": "asleep"}}'
    ready = (200, b"application/json", report)
    health._routes["/readyz"] = AsyncMock(return_value=ready)
    open_to_all = HealthApplication(cast(Runtime, runtime))
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(dict(message))

    async def body(application: Any, path: str, *scope: Any) -> bytes:
        scope_ = {**scope_of(*scope), "path": path, "method": "GET"}
        await application(scope_, None, send)
        return bytes(sent[-1]["body"])

    hidden = b'a{model="open"} 1\na{model="model-7"} 2\nb{owner="model-7"} 3\n'
    assert await body(open_to_all, "/metrics", "203.0.113.9") == hidden
    assert await body(open_to_all, "/metrics", "127.0.0.1") == exposition
    assert await body(health, "/metrics", "203.0.113.9", BEARER) == exposition
    del entries["merger-1.5"]
    assert await body(open_to_all, "/metrics", "203.0.113.9") == hidden
    assert await body(health, "/readyz", "203.0.113.9", BEARER) == report
    assert await body(health, "/readyz", "127.0.0.1") == report
    numbers = json.loads(await body(health, "/readyz", "203.0.113.9"))
    assert numbers == {"status": "ready", "models": {"ready": 1, "asleep": 1}}


async def test_a_refused_client_gets_401_and_what_to_send() -> None:
    health = HealthApplication(
        cast(Runtime, SimpleNamespace()), MetricsAccess(TOKEN.encode(), is_public=True)
    )
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(dict(message))

    proxied = scope_of("127.0.0.1", ("x-forwarded-for", "203.0.113.9"))
    await behind(health, [])(proxied, None, send)

    assert sent[0]["status"] == 401
    assert (b"www-authenticate", b"Bearer") in sent[0]["headers"]
    assert b"VINERY_METRICS_TOKEN" in sent[1]["body"]


@table("value", ["short", "with a space in it, and long", "not-ascii-é-but-long"])
def test_a_weak_token_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("VINERY_METRICS_TOKEN", value)

    with pytest.raises(SettingError, match="VINERY_METRICS_TOKEN"):
        env.token("VINERY_METRICS_TOKEN")
