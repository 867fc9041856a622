"""Reading a running platform from outside: the database, the usage rows and the metrics."""

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx
import psycopg

from tests.conftest import Running, until


class Row(NamedTuple):
    """The columns of a usage row that these tests look at."""

    request_id: str
    model: str
    endpoint: str
    outcome: str
    http_status: int | None
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_reasoning_tokens: int
    username: str
    key_name: str
    queue_ms: float | None
    prefill_ms: float | None
    first_token_ms: float | None
    total_ms: float | None
    num_continuations: int
    is_exact: bool
    error_code: str
    created_at: Any  # of PostgreSQL a moment, of SQLite its text, in UTC

    def arrived_at_s(self) -> float:
        """A Unix time."""
        at = self.created_at
        moment = at if isinstance(at, datetime) else datetime.fromisoformat(at)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def rows(running: Running) -> list[Row]:
    """All usage rows, oldest first."""
    columns = ", ".join(Row._fields)
    query = f"SELECT {columns} FROM accounts_usagerecord ORDER BY created_at, id"
    return [Row(*row) for row in execute(running, query)]


def execute(running: Running, sql: str, *values: object) -> list[Any]:
    """One statement in the platform's database, of either kind; `?` stands for a value."""
    if server := running.environment.get("DATABASE_URL"):
        with psycopg.connect(server) as connection:
            cursor = connection.execute(sql.replace("?", "%s"), values)
            return cursor.fetchall() if cursor.description else []
    file = running.home / "vinery.sqlite3"
    with closing(sqlite3.connect(file, timeout=30)) as database, database:
        return database.execute(sql, values).fetchall()


@contextmanager
def locked(running: Running, table: str) -> Iterator[None]:
    """No other process writes to this table, in whichever database it is."""
    if server := running.environment.get("DATABASE_URL"):
        with psycopg.connect(server) as connection:
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield
        return
    file = running.home / "vinery.sqlite3"
    with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            database.execute("ROLLBACK")


def outcomes(running: Running) -> Counter[str]:
    """How many requests ended in which way."""
    return Counter(row.outcome for row in rows(running))


def metric(running: Running, name: str) -> float:
    """The sum of a metric over labels and web processes; 0 without the metric."""
    return sum(value for series, value in metrics(running).items() if series.startswith(name))


def labelled(running: Running, name: str, **labels: str) -> float:
    """The same for the series with these labels alone."""
    return sum(
        value
        for series, value in metrics(running).items()
        if series.startswith(name + "{")
        and all(f'{of}="{it}"' in series for of, it in labels.items())
    )


def num_sent_tokens(running: Running) -> float:
    """The generated tokens that clients have received, of all engines."""
    found = metrics(running)
    generated, unused = (
        sum(value for series, value in found.items() if series.startswith(name))
        for name in ("vllm:generation_tokens_total", "vinery_engine_unused_tokens_total")
    )
    return generated - unused


def metrics(running: Running) -> dict[str, float]:
    """All metrics by name and labels, of every web process.

    Any of the processes that share the port takes a connection, so ask until each has answered:
    metrics of one process have the label `pid`.
    """
    result: dict[str, float] = {}

    def has_heard_all() -> bool:
        result.update(_metrics_of_one(running))
        return all(f'vinery_requests_live{{pid="{pid}"}}' in result for pid in running.pids("web"))

    until(has_heard_all)
    return result


def _metrics_of_one(running: Running) -> dict[str, float]:
    text = httpx.get(f"{running.base_url}/metrics").text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {series: float(value) for series, value in lines}


def wait_until_seen(running: Running) -> None:
    """Return once every web process has read the current state of the database.

    Each process reads by itself: one may serve a new model, or refuse a key, before the others.
    """
    since = time.time()
    result: dict[str, float] = {}

    def have_all_read() -> bool:
        result.update(_metrics_of_one(running))
        return all(
            result.get(f'vinery_{what}_read_timestamp_seconds{{pid="{pid}"}}', 0.0) > since
            for pid in running.pids("web")
            for what in ("accounts", "models")
        )

    until(have_all_read, pause_s=0.1)  # processes read twice a second


def is_written(running: Running) -> bool:
    """Whether nothing runs, and the rows of all that ran are in the database."""
    names = ("requests_live", "usage_backlog_bytes")
    return not any(metric(running, f"vinery_{name}") for name in names)


def is_idle(running: Running) -> bool:
    """Whether nothing runs and nothing waits."""
    names = ("vinery_requests_live", "vllm:num_requests_running", "vllm:num_requests_waiting")
    return all(metric(running, name) == 0 for name in names)
