"""Outages of what a platform stands on, under load: the clock is set, the disk is full, PostgreSQL
fails over, a newer version migrates the database. No answer is lost from the ledger."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests import stores
from tests.conftest import Running, run_platform, until
from tests.false_clock import FalseClock
from tests.own_postgres import OwnPostgres, folder_of_programs
from tests.relay import Relay
from tests.system.clients import chat, command, complete, is_ready, new_key, vinery
from tests.system.ledger import execute, is_written, metric, rows, wait_until_seen
from tests.system.load import load
from tests.system.test_outages import Servers

DAY_S = 86_400
NUM_FAILOVERS = 3


def num_recorded(platform: Running) -> int:
    """How many answers the ledger has, once all are in it."""
    until(lambda: is_written(platform), timeout_s=120)
    return sum(row.outcome == "ok" for row in rows(platform))


def kill(platform: Running, *roles: str) -> None:
    for role in roles:
        killed = platform.kill(role)
        until(lambda role=role, killed=killed: platform.has_replaced(role, killed))


def replace_each(platform: Running) -> None:
    """Without a failed request."""
    kill(platform, "node", "jobs")
    former = platform.pids("web")
    command(platform, "reload")
    until(lambda: platform.has_replaced("web", former))


def test_the_clock_is_set_forward_and_back_by_a_day(tmp_path: Path) -> None:
    clock = FalseClock(tmp_path)
    with run_platform(tmp_path / "home", clock.environment) as platform:
        what = ("--metric", "tokens", "--window", "day", "--amount", "10000000")
        command(platform, "limit", "set", "--platform", *what)
        with load(platform) as clients:
            for num_days in (1, -1, 0):
                clock.set(num_days * DAY_S)
                clients.wait_for_more()
                kill(platform, "node", "jobs")
                clients.wait_for_more()
                until(lambda: is_ready(platform))
        for num_days in (1, -1):
            clock.set(num_days * DAY_S)
            kill(platform, "web")
            until(lambda: is_ready(platform))
            assert complete(platform).status_code == 200
        assert num_recorded(platform) == clients.num_answers + 2
        assert len({row.arrived_at_s() // DAY_S for row in rows(platform)}) == 3


def test_postgresql_fails_over_to_its_standby_and_to_the_next_one(tmp_path: Path) -> None:
    programs = folder_of_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    with ExitStack() as servers:
        first = servers.enter_context(OwnPostgres(programs))
        relay = Relay(first.url)
        with run_platform(tmp_path / "home", {"DATABASE_URL": relay.url}) as platform:
            with load(platform) as clients:
                for _ in range(NUM_FAILOVERS):
                    second = servers.enter_context(first.standby())
                    first.wait_for_standby()
                    clients.wait_for_more()
                    first.kill()
                    until(lambda: metric(platform, "vinery_database_away"))
                    clients.wait_for_more()
                    second.promote()
                    relay.lead_to(second.url)
                    until(lambda: not metric(platform, "vinery_database_away"))
                    first = second
                clients.wait_for_more()
                replace_each(platform)
            assert num_recorded(platform) == clients.num_answers
            assert len({row.request_id for row in rows(platform)}) == len(rows(platform))
            assert "balanced" in command(platform, "usage", "verify")
            secret = command(platform, "key", "create", "--name", "of the last server")
            key = next(word for word in secret.split() if word.startswith("vny_"))
            until(lambda: complete_with(platform, key))


def complete_with(platform: Running, key: str) -> bool:
    url = f"{platform.base_url}/v1/models"
    return httpx.get(url, headers={"authorization": f"Bearer {key}"}).status_code == 200


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", folder], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(file: Path) -> None:
    """Take all space, to the last byte."""
    with file.open("wb", buffering=0) as open_file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while open_file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


def test_nothing_that_was_answered_on_a_full_disk_is_lost(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, run_platform(disk / "home") as platform:
        num_answers = 0

        def answers() -> bool:
            nonlocal num_answers
            is_answered = complete(platform).status_code == 200
            num_answers += is_answered
            return is_answered

        for killed in ((), ("web",), ("node", "jobs", "web")):
            fill(disk / "filling")
            for _ in range(40):
                answers()
            kill(platform, *killed)
            (disk / "filling").unlink()
            until(lambda: is_ready(platform))
            assert answers()
        assert num_answers > 40
        # A web process that starts on a full disk leaves what a dead one has answered to a job.
        until(lambda: num_recorded(platform) == num_answers, timeout_s=120)


@pytest.mark.parametrize("policy", ["allow", "refuse"])
def test_a_platform_that_starts_while_database_and_redis_are_away_serves_and_counts_later(
    tmp_path: Path, policy: str
) -> None:
    if not {"VINERY_TEST_POSTGRES_URL", "VINERY_TEST_REDIS_URL"} <= os.environ.keys():
        pytest.skip("there is no PostgreSQL and no Redis to lose")
    servers = Servers(Relay(stores.new_postgres_database()), Relay(stores.new_redis_database()))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "DATABASE_URL": servers.database.url,
        "REDIS_URL": servers.redis.url,
        "VINERY_LIMITS_WHEN_AWAY": policy,
        "VINERY_PORT": str(port),
    }
    with run_platform(tmp_path / "home", settings) as platform:
        key = new_key(platform, "limited")
        ((number,),) = execute(platform, "SELECT id FROM accounts_apikey WHERE name = 'limited'")
        what = ("--metric", "requests", "--window", "day", "--amount", "4")
        vinery(platform, "limit", "set", "--key", str(number), *what)
        wait_until_seen(platform)
        first = chat(platform, key=key, max_tokens=3)
        assert first.status_code == 200
        until(lambda: is_written(platform))

    for relay in (servers.database, servers.redis):
        relay.cut()
    served = {"allow": 200, "refuse": 503}[policy]
    with run_platform(tmp_path / "home", settings) as platform:
        assert "the database is away" in platform.log.read_text()
        answers = [chat(platform, key=key, max_tokens=3) for _ in range(3)]
        assert {each.status_code for each in answers} == {served}

        for relay in (servers.database, servers.redis):
            relay.join()
        for name in ("vinery_database_away", "vinery_limits_store_away"):
            until(lambda name=name: metric(platform, name) == 0, timeout_s=60)  # type: ignore[misc]
        num_left = 0 if policy == "allow" else 3
        statuses = [chat(platform, key=key, max_tokens=3).status_code for _ in range(4)]
        assert statuses == [200] * num_left + [429] * (4 - num_left)
        until(lambda: is_written(platform), timeout_s=120)
        booked = {
            row.request_id: (row.num_prompt_tokens, row.num_output_tokens) for row in rows(platform)
        }
        for each in (first, *answers):
            if each.status_code == 200:
                usage = each.json()["usage"]
                counts = usage["prompt_tokens"], usage["completion_tokens"]
                assert booked[each.headers["x-request-id"]] == counts
        until(lambda: "the database is back" in platform.log.read_text())
        assert all(platform.pids(role) for role in ("web", "node", "engine", "jobs"))
