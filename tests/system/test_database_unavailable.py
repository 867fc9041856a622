"""A database that becomes unavailable: requests are served, pages and probes report it, and no
usage is lost."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests import forked_commands, stores
from tests.conftest import Running, run_platform, until
from tests.relay import Relay
from tests.system.clients import http_of
from tests.system.ledger import metric, rows
from tests.system.limiting import ask

pytestmark = pytest.mark.stores

PAGES = ("", "admin/", "accounts/login/", "accounts/", "console/", "console/keys/", "api/keys/")


@pytest.fixture(scope="module")
def relay() -> Relay:
    if not os.environ.get("VINERY_TEST_POSTGRES_URL"):
        pytest.skip("VINERY_TEST_POSTGRES_URL is not set, so there is no PostgreSQL to lose")
    return Relay(stores.new_postgres_database())


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, relay: Relay) -> Iterator[Running]:
    # One web process: answers then show the state of this process.
    settings = {"DATABASE_URL": relay.url, "VINERY_WEB_WORKERS": "1"}
    with run_platform(tmp_path_factory.mktemp("unavailable") / "home", settings) as running:
        yield running


@contextmanager
def without_database(platform: Running, relay: Relay, how: str) -> Iterator[None]:
    """Cut: connections are refused. Blocked: questions are taken, and nothing is answered."""
    ways = {"cut": (relay.cut, relay.join), "blocked": (relay.block, relay.unblock)}
    leave, come_back = ways[how]
    leave()
    try:
        until(lambda: is_unavailable(platform))
        yield
    finally:
        come_back()
        until(lambda: not is_unavailable(platform), timeout_s=60)


def test_health_names_each_check(platform: Running) -> None:
    # Redis has not answered before the first request with a limit, or the first look.
    until(lambda: "has not" not in probe(platform, "readyz")["redis"])
    result = probe(platform, "readyz")

    assert without_ages(result) == {
        "status": "ready",
        "models": {"tiny-chat": "ready"},
        "database": "answered N s ago",
        "keys": "read N s ago",
        "model_table": "read N s ago",
        "limits": "counted",
        "redis": "answered N s ago" if "REDIS_URL" in platform.environment else "not used",
        "disk": "enough, seen N s ago",
        "usage": "recorded",
    }
    assert without_ages(probe(platform, "startupz")) == {
        "status": "started",
        "keys": "read",
        "models": "read",
        "database": "answered N s ago",
    }
    assert metric(platform, "vinery_database_away") == 0
    assert metric(platform, "vinery_disk_free_bytes") > 0


@pytest.mark.parametrize("how", ["cut", "blocked"])
def test_it_serves_reports_the_outage_and_answers_503_where_it_needs_the_database(
    platform: Running, relay: Relay, how: str
) -> None:
    with without_database(platform, relay, how):
        result = probe(platform, "readyz")
        assert result["status"] == "degraded"
        assert re.match(r"unavailable, answered \d+ s ago: data of \d+ s ago", result["database"])
        assert ask(platform).status_code == 200
        assert probe(platform, "livez") == {"status": "alive"}
        assert metric(platform, "vinery_usage_backlog_bytes") > 0

        for path in PAGES:
            answer = answered(platform, path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5"), path
            assert "The database does not answer" in answer.text
            is_page = answer.headers["content-type"].startswith("text/html")
            assert is_page != path.startswith("api/")
        # Static files need no database.
        assert answered(platform, "static/admin/css/base.css").status_code == 200
        with http_of(platform) as http:
            assert [each["id"] for each in http.get("/v1/models").json()["data"]] == ["tiny-chat"]

    assert answered(platform, "accounts/login/").status_code == 200
    assert answered(platform, "api/keys/").status_code == 401


def test_without_copies_the_old_process_stays_and_a_new_one_refuses_at_once(
    platform: Running, relay: Relay
) -> None:
    # One request of each outage, behind a writer that waits longer after each failure.
    until(lambda: len(rows(platform)) == 2, timeout_s=90)
    assert probe(platform, "readyz")["status"] == "ready"

    relay.cut()
    try:
        until(lambda: is_unavailable(platform))
        shutil.rmtree(platform.home / "cache" / "sealed")
        web = platform.pids("web")
        done = forked_commands.run("reload", environment=platform.environment)
        assert done.returncode == 1
        assert "web-1 is not replaced: the database does not answer, and there" in done.stderr
        assert platform.pids("web") == web
        assert ask(platform).status_code == 200

        killed = platform.kill("web")
        until(lambda: platform.has_replaced("web", killed))
        waiting = until(lambda: answered(platform, "startupz"))
        assert waiting.status_code == 503
        assert waiting.json()["status"] == "starting"
        until(lambda: "unavailable" in answered(platform, "startupz").json()["database"])
        assert probe(platform, "livez") == {"status": "alive"}
        assert answered(platform, "readyz").status_code == 503

        refused = ask(platform)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "unavailable"
        assert refused.headers["retry-after"]
        assert refused.headers["access-control-allow-origin"] == "*"
    finally:
        relay.join()

    until(lambda: answered(platform, "readyz").status_code == 200, timeout_s=60)
    assert ask(platform).status_code == 200


def is_unavailable(platform: Running) -> bool:
    return bool(metric(platform, "vinery_database_away"))


def answered(platform: Running, path: str) -> httpx.Response:
    return httpx.get(f"{platform.base_url}/{path}", timeout=30)


def probe(platform: Running, path: str) -> dict[str, Any]:
    response = answered(platform, path)
    assert response.status_code == 200, response.text
    return dict(response.json())


def without_ages(report: dict[str, Any]) -> dict[str, Any]:
    return {
        name: re.sub(r"\d+ s ago", "N s ago", value) if isinstance(value, str) else value
        for name, value in report.items()
    }
