"""Outages of what a platform stands on, under load: the clock is set, the disk is full, PostgreSQL
is another server, a newer version migrates the database. No answer is lost from the ledger."""

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from tests import stores
from tests.conftest import Running, run_platform, until
from tests.relay import Relay
from tests.system.clients import command, complete, is_ready
from tests.system.ledger import execute, is_written, metric, rows
from tests.system.load import load

pytestmark = pytest.mark.system

DAY_S = 86_400


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


def test_postgresql_fails_over_to_another_server(tmp_path: Path) -> None:
    if not os.environ.get("VINERY_TEST_POSTGRES_URL"):
        pytest.skip("VINERY_TEST_POSTGRES_URL is not set")
    database = stores.new_postgres_database()
    relay = Relay(database)
    with run_platform(tmp_path / "home", {"DATABASE_URL": relay.url}) as platform:
        with load(platform) as clients:
            relay.cut()
            until(lambda: metric(platform, "vinery_database_away"))
            exchange_for_copy(database)
            relay.join()
            until(lambda: not metric(platform, "vinery_database_away"))
            clients.wait_for_more()
            replace_each(platform)
        assert num_recorded(platform) == clients.num_answers
        secret = command(platform, "key", "create", "--name", "of the second server")
        key = next(word for word in secret.split() if word.startswith("vny_"))
        until(lambda: complete_with(platform, key))


def exchange_for_copy(url: str) -> None:
    """From now on another database has this name, as after the promotion of a standby."""
    name = urlsplit(url).path.strip("/")
    copy = urlsplit(until(lambda: copied(url))).path.strip("/")
    with psycopg.connect(os.environ["VINERY_TEST_POSTGRES_URL"], autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name}")
        connection.execute(f"ALTER DATABASE {copy} RENAME TO {name}")


def copied(url: str) -> str:
    """Empty while the server has connections to the database."""
    try:
        return stores.new_postgres_database(template=url)
    except psycopg.errors.ObjectInUse:
        return ""


def complete_with(platform: Running, key: str) -> bool:
    url = f"{platform.base_url}/v1/models"
    return httpx.get(url, headers={"authorization": f"Bearer {key}"}).status_code == 200


def test_a_newer_version_migrates_the_database_while_this_one_serves(tmp_path: Path) -> None:
    with run_platform(tmp_path / "home") as platform:
        with load(platform) as clients:
            for table in ("accounts_usagerecord", "accounts_apikey", "serving_servedmodel"):
                execute(platform, f"ALTER TABLE {table} ADD COLUMN newer integer NULL")
                clients.wait_for_more()
            insert = "INSERT INTO django_migrations (app, name, applied) VALUES (?, ?, ?)"
            execute(platform, insert, "accounts", "9999_newer", "2026-01-01 00:00:00+00:00")
            replace_each(platform)
            clients.wait_for_more()
        assert num_recorded(platform) == clients.num_answers


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
