"""`vinery usage` on the usage records of a home folder."""

import csv
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.platform_ import scripts
from tests.platform_.conftest import Vinery
from tests.tables import table
from vinery_accounts.usage.recovery import report_loss

_STORE = """
import django; django.setup()
from datetime import UTC, datetime, timedelta
from tests.accounts.usage_builders import admission, settlement
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.store import store_settlements

def asked(number, model, output, age, status=200):
    at = datetime.now(UTC) - age
    return settlement(
        admission=admission(f"r{number}", key_id=4, key_name="=laptop", model=model, started_at=at),
        outcome=Outcome.OK if status else Outcome.FAILED, http_status=status,
        num_prompt_tokens=1000, num_cached_tokens=0, num_output_tokens=output,
    )

store_settlements([
    asked(1, "small", 5, timedelta(minutes=30)),
    asked(2, "large", 20, timedelta(minutes=20)),
    asked(3, "large", 30, timedelta(minutes=10)),
    asked(4, "old", 1, timedelta(days=3), status=None),
])
"""


@pytest.fixture(scope="module", autouse=True)
def four_requests(installation: dict[str, str]) -> None:
    """One of the requests is three days old and was never answered."""
    environment = installation | {"DJANGO_SETTINGS_MODULE": "vinery_platform.settings"}
    result = scripts.run_python("-c", _STORE, environment=environment)
    assert result.returncode == 0, result.stderr


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line)


def test_usage_is_shown_for_each_interval_or_a_month_with_the_total(vinery: Vinery) -> None:
    result = vinery("usage", "show")

    heads, *points, total = result.stdout.splitlines()
    assert cells(heads)[:4] == ["HOUR", "REQUESTS", "ERRORS", "INPUT"]
    assert len(points) in (1, 2)  # the requests of the last half hour
    assert sum(int(cells(point)[1]) for point in points) == 3
    assert cells(total)[:6] == ["TOTAL", "3", "0", "3,000", "0", "55"]

    now = datetime.now(UTC)
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    ages = (timedelta(minutes=30), timedelta(minutes=20), timedelta(minutes=10), timedelta(days=3))
    num_this = sum(now - age >= first for age in ages)

    this = vinery("usage", "show", "--month", "this").stdout.splitlines()
    last = vinery("usage", "show", "--month", "last").stdout.splitlines()
    assert cells(this[-1])[:2] == ["TOTAL", str(num_this)]
    assert cells(last[-1])[:2] == ["TOTAL", str(len(ages) - num_this)]


def test_usage_is_printed_as_the_api_answers_it(vinery: Vinery) -> None:
    body = json.loads(vinery("usage", "show", "--json").stdout)
    assert body["totals"]["num_requests"] == 3
    assert sum(each["figures"]["num_requests"] for each in body["points"]) == 3
    grouped = json.loads(vinery("usage", "show", "--json", "--by", "model", "--top", "1").stdout)
    assert grouped["num_groups"] == 2
    (group,) = grouped["groups"]
    assert (group["values"], group["figures"]["num_output_tokens"]) == ({"model": "large"}, 50)
    assert grouped["points"] == []


def test_usage_is_shown_by_groups_the_largest_first_and_by_status(vinery: Vinery) -> None:
    result = vinery("usage", "show", "--by", "model", "--by", "key", "--last", "7d")

    _, *groups = [cells(line) for line in result.stdout.splitlines()]
    assert [group[:3:2] for group in groups] == [["large", "2"], ["old", "1"], ["small", "1"]]
    assert {group[1] for group in groups} == {"=laptop (4)"}
    assert groups[0][-2].count(" / ") == 2
    filters = ("--model", "small", "--time-zone", "Asia/Kolkata")
    filtered = vinery("usage", "show", "--by", "model", *filters)
    assert [cells(line)[0] for line in filtered.stdout.splitlines()] == ["MODEL", "small"]

    last = ("--last", "7d")

    shown = vinery("usage", "show", "--by", "status", *last)
    unanswered = vinery("usage", "show", "--by", "model", "--status", "none", *last)
    answered = vinery("usage", "export", "--status", "2xx", "--status", "4xx", *last)
    assert [cells(line)[:2] for line in shown.stdout.splitlines()[1:]] == [["2xx", "3"], ["-", "1"]]
    assert [cells(line)[:2] for line in unanswered.stdout.splitlines()[1:]] == [["old", "1"]]
    rows = list(csv.DictReader(answered.stdout.splitlines()))
    assert [row["http_status"] for row in rows] == ["200", "200", "200"]


@table(
    "words, message",
    [
        (("--status", "404"), "invalid choice"),
        (("--from", "tomorrow"), "is not a time like"),
        (("--time-zone", "Mars/Base"), "is no time zone like"),
        (("--last", "30d", "--granularity", "minute"), "coarser granularity"),
        (("--from", "2026-03-02", "--to", "2026-03-01"), "ends before it begins"),
        (("--month", "this", "--to", "2026-03-01"), "A month has its own end. Leave out --to"),
        (("--month", "this", "--last", "7d"), "not allowed with argument"),
    ],
)
def test_wrong_arguments_are_refused(vinery: Vinery, words: tuple[str, ...], message: str) -> None:
    result = vinery("usage", "show", *words)

    assert result.returncode != 0
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_records_of_a_time_are_exported_to_a_file(vinery: Vinery, tmp_path: Path) -> None:
    file = tmp_path / "usage.csv"

    result = vinery("usage", "export", "--last", "7d", "--model", "large", "-o", str(file))
    assert (result.returncode, result.stdout) == (0, "")
    with file.open(newline="", encoding="utf-8") as rows:
        found = list(csv.DictReader(rows))
    assert [row["request_id"] for row in found] == ["r2", "r3"]
    assert found[0]["key_name"] == "'=laptop"
    refused = vinery("usage", "export", "-o", str(tmp_path / "none" / "usage.csv"))
    assert refused.returncode == 1
    assert "cannot be written" in refused.stderr

    yesterday = datetime.now(UTC) - timedelta(days=1)
    times = ("--from", "2020-01-01", "--to", yesterday.isoformat())

    result = vinery("usage", "export", "--format", "jsonl", *times)
    assert [json.loads(line)["request_id"] for line in result.stdout.splitlines()] == ["r4"]


def test_usage_that_was_lost_is_reported(vinery: Vinery, installation: dict[str, str]) -> None:
    balanced = vinery("usage", "verify", "--last", "4d")
    assert balanced.returncode == 0
    days = balanced.stdout.splitlines()
    assert all(day.endswith("balanced") for day in days)
    assert sum(int(day.split()[1]) for day in days) == 4
    folder = Path(installation["VINERY_HOME"]) / "usage"
    report_loss(folder, 3)

    result = vinery("usage", "verify", "--last", "1d")

    assert result.returncode == 1
    assert "could not write the usage of 3 requests" in result.stdout
    assert vinery("usage", "verify", "--from", "2026-01-01", "--to", "2026-01-02").returncode == 0
    (folder / "lost_requests.txt").unlink()
