"""Quotas under five hundred requests at once, in one process and in two that share Redis."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Running, run_platform
from tests.own_redis import OwnRedis
from tests.system.limiting import check_many_at_once

pytestmark = pytest.mark.system


@pytest.fixture(params=["memory", "redis"])
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    if request.param == "memory":
        with run_platform(tmp_path / "home") as running:
            yield running
        return
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server on the path")
    with OwnRedis(program, tmp_path) as server:
        settings = {"REDIS_URL": server.url, "VINERY_WEB_WORKERS": "2"}
        with run_platform(tmp_path / "home", settings) as running:
            yield running


@pytest.mark.parametrize("are_short", [False, True], ids=["long", "short"])
def test_five_hundred_at_once_use_a_quota_up_and_no_more(
    platform: Running, are_short: bool
) -> None:
    check_many_at_once(platform, 500, 10_000, are_short=are_short)
