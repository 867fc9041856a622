"""A week of made-up usage in the API and the console, compared with sums by SQL."""

import csv
import io
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from django.db import connection
from django.test import Client
from pages import page, tile

from benchmarks.generated_usage import write_usage
from vinery_accounts.console import words
from vinery_accounts.models import User
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.histogram import RELATIVE_ERROR
from vinery_accounts.usage.rollups import SUMS
from vinery_accounts.usage.verify import verify

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

UNTIL: Final = datetime(2026, 3, 8, tzinfo=UTC)
SINCE: Final = UNTIL - timedelta(days=7)
COUNTED: Final = {
    "num_requests": "1 = 1",
    "num_errors": "outcome IN ('rejected', 'failed', 'interrupted')",
    "num_taken": "num_prompt_tokens > 0",
    "num_limited": "outcome = 'rejected' AND http_status = 429",
    "num_client_errors": "outcome = 'rejected' AND http_status <> 429",
    "num_server_errors": "outcome IN ('failed', 'interrupted')",
    "num_cut_short": "finish_reason = 'quota_exceeded'",
}
MEASURED: Final = {
    **dict.fromkeys(("first_token_ms", "inter_token_ms", "queue_ms"), "1 = 1"),
    "total_ms": "outcome = 'ok'",
}
# What SQL groups by where that is no column of records.
COLUMNS: Final = {Dimension.STATUS: "http_status / 100"}


def sql(query: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return list(cursor.fetchall())


def sums_by(column: str) -> dict[Any, dict[str, float]]:
    """Every sum of a report, by the values of a column."""
    columns = [
        f"SUM(CASE WHEN {COUNTED[name]} THEN 1 ELSE 0 END)"
        if name in COUNTED
        else f"SUM(COALESCE({name}, 0))"
        for name in SUMS
    ]
    query = f"SELECT {column}, {', '.join(columns)} FROM accounts_usagerecord GROUP BY 1"
    return {value: dict(zip(SUMS, map(float, sums), strict=True)) for value, *sums in sql(query)}


def percentile(name: str, share: float) -> float:
    """The nearest rank."""
    source = f"FROM accounts_usagerecord WHERE {name} IS NOT NULL AND {MEASURED[name]}"
    ((num,),) = sql(f"SELECT COUNT(*) {source}")
    rank = max(1, -(-num * round(share * 100) // 100))
    ((found,),) = sql(f"SELECT {name} {source} ORDER BY {name} LIMIT 1 OFFSET {rank - 1}")
    return float(found)


def check(figures: Mapping[str, Any], expected: Mapping[str, float]) -> None:
    assert {name: figures[name] for name in SUMS} == pytest.approx(expected)
    assert figures["num_tokens"] == expected["num_prompt_tokens"] + expected["num_output_tokens"]


def test_a_week_of_usage_has_the_figures_of_its_records(root: User, client: Client) -> None:
    write_usage(2000, UNTIL, days=7, with_rows=True)
    assert not any(checked.differences for checked in verify(SINCE, UNTIL))
    ((all_of_it),) = sums_by("1").values()
    period = f"from={SINCE:%Y-%m-%dT00:00:00Z}&to={UNTIL:%Y-%m-%dT00:00:00Z}"

    report = client.get(f"/api/usage?{period}&granularity=day").json()
    check(report["totals"], all_of_it)
    assert len(report["points"]) == 7
    for name in SUMS:
        in_points = sum(point["figures"][name] for point in report["points"])
        assert in_points == pytest.approx(all_of_it[name])
    for name in MEASURED:
        for share in (50, 95, 99):
            found = report["totals"][name][f"p{share}"]
            exact = percentile(name, share / 100)
            assert found == pytest.approx(exact, rel=RELATIVE_ERROR + 1e-6), (name, share)

    for by in Dimension:
        expected = sums_by(COLUMNS.get(by, by.column))
        grouped = client.get(f"/api/usage?{period}&group_by={by}&limit=200").json()
        assert grouped["num_groups"] == len(expected)
        for group in grouped["groups"]:
            value = by.to_stored(group["values"][by])
            check(group["figures"], expected[value])

    own = f"period=own&since={SINCE:%Y-%m-%dT00:00}&until={UNTIL:%Y-%m-%dT00:00}"
    text = page(client, f"/console/?{own}")
    for id_, name in {
        "requests": "num_requests",
        "errors": "num_errors",
        "input": "num_prompt_tokens",
        "output": "num_output_tokens",
    }.items():
        assert tile(text, id_) == words.count(int(all_of_it[name]))
    response = client.get(f"/console/usage/table.csv?by=model&{own}")
    models = sums_by("model") | {"all": all_of_it}
    rows = list(csv.DictReader(io.StringIO(response.content.decode(), newline="")))
    assert {row["model"] for row in rows} == models.keys()
    for row in rows:
        in_file = {name: float(row[name]) for name in SUMS if name in row}
        assert len(in_file) >= 12
        assert in_file == {name: models[row["model"]][name] for name in in_file}
