"""A database that goes away: models are served on, everybody who looks is told, and nothing of
what was used is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests import stores
from tests.conftest import Running, run_platform, until
from tests.relay import Relay
from tests.system.books import metric, rows
from tests.system.limiting import ask

pytestmark = pytest.mark.system

PAGES = ("", "admin/", "accounts/login/", "accounts/", "console/", "console/keys/", "api/keys/")


@pytest.fixture(scope="module")
def relay() -> Relay:
    if not os.environ.get("VINERY_TEST_POSTGRES_URL"):
        pytest.skip("VINERY_TEST_POSTGRES_URL is not set, so there is no PostgreSQL to lose")
    return Relay(stores.new_postgres_database())


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, relay: Relay) -> Iterator[Running]:
    # One web process: what is asked for is then what this one knows.
    settings = {"DATABASE_URL": relay.url, "VINERY_WEB_WORKERS": "1"}
    with run_platform(tmp_path_factory.mktemp("away") / "home", settings) as running:
        yield running


@contextmanager
def without_database(platform: Running, relay: Relay, how: str) -> Iterator[None]:
    """Cut: connections are refused. Blocked: questions are taken, and nothing is said."""
    leave, come_back = {
        "cut": (relay.cut, relay.join),
        "blocked": (relay.block, relay.unblock),
    }[how]
    leave()
    try:
        until(lambda: is_away(platform))
        yield
    finally:
        come_back()
        until(lambda: not is_away(platform), timeout_s=60)


def test_health_names_each_check(platform: Running) -> None:
    told = probe(platform, "readyz")

    assert told == {
        "status": "ready",
        "models": {"tiny-chat": "ready"},
        "database": "answers",
        "keys": "up to date",
        "limits": "counted",
        "disk": "enough",
    }
    assert probe(platform, "startupz") == {
        "status": "started",
        "keys": "read",
        "models": "read",
        "database": "answers",
    }
    assert metric(platform, "vinery_database_away") == 0
    assert metric(platform, "vinery_disk_free_bytes") > 0


@pytest.mark.parametrize("how", ["cut", "blocked"])
def test_it_serves_on_and_says_what_is_away(platform: Running, relay: Relay, how: str) -> None:
    with without_database(platform, relay, how):
        told = probe(platform, "readyz")
        assert told["status"] == "degraded"
        assert told["database"].startswith("unavailable: data of ")
        assert metric(platform, "vinery_database_away") == 1
        assert ask(platform).status_code == 200
        assert probe(platform, "livez") == {"status": "alive"}
        assert metric(platform, "vinery_usage_backlog_bytes") > 0


@pytest.mark.parametrize("how", ["cut", "blocked"])
def test_every_door_that_needs_it_says_so(platform: Running, relay: Relay, how: str) -> None:
    with without_database(platform, relay, how):
        answers = {path: said(platform, path) for path in PAGES}

        assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(
            PAGES, 503
        )
        for path, answer in answers.items():
            assert answer.headers["retry-after"] == "5"
            assert "The database does not answer" in answer.text
            is_page = answer.headers["content-type"].startswith("text/html")
            assert is_page != path.startswith("api/")
        # What needs no database is there.
        assert said(platform, "static/admin/css/base.css").status_code == 200
        key = {"authorization": f"Bearer {platform.api_key}"}
        models = httpx.get(f"{platform.base_url}/v1/models", headers=key, timeout=30)
        assert [each["id"] for each in models.json()["data"]] == ["tiny-chat"]

    assert said(platform, "accounts/login/").status_code == 200
    assert said(platform, "api/keys/").status_code == 401


def test_what_was_used_meanwhile_is_in_the_books(platform: Running) -> None:
    # Of each of the two tests above one, behind a writer that waits longer after each failure.
    until(lambda: len(rows(platform)) == 2, timeout_s=90)
    assert probe(platform, "readyz")["status"] == "ready"


def test_a_web_process_that_starts_meanwhile_says_so_and_is_there_when_the_database_is(
    platform: Running, relay: Relay
) -> None:
    relay.cut()
    try:
        killed = platform.kill("web")
        until(lambda: platform.has_replaced("web", killed))
        waiting = until(lambda: said(platform, "startupz"))
        assert waiting.status_code == 503
        assert waiting.json()["status"] == "starting"
        until(lambda: said(platform, "startupz").json()["database"] == "unavailable")
        assert probe(platform, "livez") == {"status": "alive"}
        assert said(platform, "readyz").status_code == 503

        refused = ask(platform)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "unavailable"
        assert refused.headers["retry-after"]
        assert refused.headers["access-control-allow-origin"] == "*"
    finally:
        relay.join()

    until(lambda: said(platform, "readyz").status_code == 200, timeout_s=60)
    assert ask(platform).status_code == 200


def is_away(platform: Running) -> bool:
    return bool(metric(platform, "vinery_database_away"))


def said(platform: Running, path: str) -> httpx.Response:
    return httpx.get(f"{platform.base_url}/{path}", timeout=30)


def probe(platform: Running, path: str) -> dict[str, Any]:
    """What a probe is told that succeeds."""
    response = said(platform, path)
    assert response.status_code == 200, response.text
    told: dict[str, Any] = response.json()
    return told
