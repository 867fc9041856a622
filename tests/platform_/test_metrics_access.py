"""Who may read `/metrics` of a server with a public URL."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.tables import table
from vinery.cli.web import behind
from vinery.config import env
from vinery.config.env import SettingError
from vinery.health.application import HealthApplication
from vinery.health.metrics_access import MetricsAccess
from vinery_serving.runtime.runtime import Runtime

TOKEN = "a-token-of-more-than-16"
BEARER = ("authorization", f"Bearer {TOKEN}")


def scope_of(client: str | None, *headers: tuple[str, str]) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "GET",
        "path": "/metrics",
        "scheme": "http",
        "client": None if client is None else (client, 4711),
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }


@table("access", [MetricsAccess(is_public=True), MetricsAccess(TOKEN.encode())])
@table("client", ["127.0.0.1", "::1", "127.9.9.9", "::ffff:127.0.0.1"])
def test_clients_on_this_machine_need_no_token(access: MetricsAccess, client: str) -> None:
    assert access.permits(scope_of(client))


@table("access", [MetricsAccess(is_public=True), MetricsAccess(TOKEN.encode())])
@table(
    "scope",
    [
        scope_of("203.0.113.9"),
        scope_of("10.0.0.7"),
        scope_of(None),
        scope_of("not an address"),
        scope_of("203.0.113.9", ("authorization", "Bearer wrong")),
        scope_of("203.0.113.9", ("authorization", TOKEN)),
        scope_of("203.0.113.9", ("authorization", "Bearer ")),
        scope_of("203.0.113.9", ("authorization", f"Basic {TOKEN}")),
    ],
)
def test_other_clients_need_the_token(access: MetricsAccess, scope: dict[str, Any]) -> None:
    assert not access.permits(scope)


@table("name", ["x-forwarded-for", "x-forwarded-proto", "forwarded", "via"])
def test_a_client_of_a_proxy_on_this_machine_needs_the_token(name: str) -> None:
    access = MetricsAccess(TOKEN.encode(), is_public=True)

    assert not access.permits(scope_of("127.0.0.1", (name, "127.0.0.1")))
    assert access.permits(scope_of("127.0.0.1", (name, "127.0.0.1"), BEARER))


def test_the_token_admits_from_everywhere_and_without_one_no_header() -> None:
    access = MetricsAccess(TOKEN.encode(), is_public=True)

    assert access.permits(scope_of("203.0.113.9", BEARER))
    assert access.permits(scope_of("203.0.113.9", ("authorization", f"bearer {TOKEN}")))
    nothing = scope_of("203.0.113.9", ("authorization", "Bearer "))
    assert not MetricsAccess(is_public=True).permits(nothing)
    for client in ("203.0.113.9", "127.0.0.1", None):
        assert MetricsAccess().permits(scope_of(client)), "without a public URL and a token"


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
