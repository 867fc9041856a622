"""Reading a running platform from outside: its usage rows and its metrics."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import NamedTuple

import httpx

from tests.conftest import Running


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
    first_token_ms: float | None
    total_ms: float | None


def rows(running: Running) -> list[Row]:
    """All usage rows, oldest first."""
    columns = ", ".join(Row._fields)
    query = f"SELECT {columns} FROM accounts_usagerecord ORDER BY created_at, id"
    connection = sqlite3.connect(f"file:{running.home / 'vinery.sqlite3'}?mode=ro", uri=True)
    try:
        return [Row(*row) for row in connection.execute(query)]
    finally:
        connection.close()


def outcomes(running: Running) -> Counter[str]:
    """How many requests ended in which way."""
    return Counter(row.outcome for row in rows(running))


def metric(running: Running, name: str) -> float:
    """The sum of a metric over its labels; 0 when it is not there."""
    text = httpx.get(f"{running.base_url}/metrics", timeout=10).text
    lines = [line for line in text.splitlines() if line.startswith(name)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def is_idle(running: Running) -> bool:
    """Whether nothing runs and nothing waits."""
    names = ("vinery_requests_live", "vinery_engine_running", "vinery_engine_waiting")
    return all(metric(running, name) == 0 for name in names)
