"""Outages of what a platform stands on, under load: the clock is set, the disk is full, PostgreSQL
fails over, a newer version migrates the database. No answer is lost from the ledger."""

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests import stores
from tests.conftest import Running, run_platform, until
from tests.own_postgres import OwnPostgres, folder_of_programs
from tests.relay import Relay
from tests.system.clients import command, complete, is_ready
from tests.system.ledger import execute, is_written, metric, rows
from tests.system.load import load

pytestmark = pytest.mark.system

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


# Adds the seconds in a shared file to the wall clock. libfaketime breaks sleeps of threads.
CLOCK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *shift;

__attribute__((constructor)) static void begin(void) {
    int fd = open(getenv("CLOCK_SHIFT"), O_RDONLY | O_CLOEXEC);
    void *page = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
    shift = page == MAP_FAILED ? 0 : page;
    close(fd);
}
int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, clock, at);
    if (shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += *shift;
    return failed;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


def test_the_clock_is_set_forward_and_back_by_a_day(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler for a clock that can be set")
    source, library, shift = (tmp_path / name for name in ("clock.c", "clock.so", "shift"))
    source.write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)

    def set_clock(num_days: int) -> None:
        with shift.open("r+b" if shift.exists() else "wb") as file:
            file.write(struct.pack("l", num_days * DAY_S))

    set_clock(0)
    environment = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(shift)}
    with run_platform(tmp_path / "home", environment) as platform:
        what = ("--metric", "tokens", "--window", "day", "--amount", "10000000")
        command(platform, "limit", "set", "--platform", *what)
        with load(platform) as clients:
            for num_days in (1, -1, 0):
                set_clock(num_days)
                clients.wait_for_more()
                kill(platform, "node", "jobs")
                clients.wait_for_more()
                until(lambda: is_ready(platform))
        for num_days in (1, -1):
            set_clock(num_days)
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


@pytest.mark.parametrize("is_null", [True, False], ids=["optional", "required"])
def test_a_newer_version_migrates_the_database_while_this_one_serves(
    tmp_path: Path, *, is_null: bool
) -> None:
    settings = {}
    if not is_null:  # SQLite has no required columns without a default
        if not os.environ.get("VINERY_TEST_POSTGRES_URL"):
            pytest.skip("VINERY_TEST_POSTGRES_URL is not set")
        settings["DATABASE_URL"] = stores.new_postgres_database()
    with run_platform(tmp_path / "home", settings) as platform:
        with load(platform) as clients:
            for table in ("accounts_usagerecord", "accounts_apikey", "serving_servedmodel"):
                add_newer_column(platform, table, is_null=is_null)
                clients.wait_for_more()
            insert = "INSERT INTO django_migrations (app, name, applied) VALUES (?, ?, ?)"
            execute(platform, insert, "accounts", "9999_newer", "2026-01-01 00:00:00+00:00")
            replace_each(platform)
            clients.wait_for_more()
        if not is_null:
            assert metric(platform, "vinery_usage_backlog_bytes")
            # A newer version would store the rows that wait, and fill its column.
            alter = "ALTER TABLE accounts_usagerecord ALTER COLUMN newer SET DEFAULT 0"
            execute(platform, alter)
        assert num_recorded(platform) == clients.num_answers


def add_newer_column(platform: Running, table: str, *, is_null: bool) -> None:
    """As a migration of Django does."""
    alter = f"ALTER TABLE {table} ADD COLUMN newer integer"
    if is_null:
        execute(platform, f"{alter} NULL")
        return
    execute(platform, f"{alter} NOT NULL DEFAULT 0")
    execute(platform, f"ALTER TABLE {table} ALTER COLUMN newer DROP DEFAULT")


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
        assert num_recorded(platform) == num_answers
