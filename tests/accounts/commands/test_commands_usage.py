"""Usage and refusals by command."""

import csv
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from row_builders import stored_refusal
from usage_builders import store

from tests.accounts.commands.conftest import Vinery, created_key
from tests.tables import table
from vinery_accounts.models import Project, User
from vinery_accounts.usage.entries import Outcome


def test_usage_is_filtered_by_names_and_by_ids(vinery_: Vinery, search: Project) -> None:
    alice, key, acme = User.objects.get(username="alice"), created_key(vinery_), search.organization
    owners = {"user_id": alice.pk, "key_id": key.pk, "project_id": search.pk}
    owners["organization_id"] = acme.pk
    now = timezone.now()
    for request_id, more in (("hers", owners), ("gone", {"user_id": 4711})):
        store(request_id, started_at=now, **more)
        stored_refusal(request_id, limit_id=1, **more)

    def exported(*words: str) -> list[str]:
        lines = vinery_("usage", "export", "--format", "jsonl", *words).out.splitlines()
        return [json.loads(line)["request_id"] for line in lines]

    for words in (
        ("--user", "alice"),
        ("--key", key.hint),
        ("--project", "acme/search"),
        ("--organization", "acme"),
    ):
        rows = vinery_("refusals", "list", "--json", *words).rows
        assert exported(*words) == [row["request_id"] for row in rows] == ["hers"]
    assert exported("--user", "4711") == ["gone"]
    for command in (("usage", "show"), ("usage", "export"), ("refusals", "list")):
        refusal = vinery_(*command, "--user", "zoe").refusal
        assert refusal == "There is no user zoe. See: vinery user list\n"
    refusal = vinery_("usage", "show", "--outcome", "fine").refusal
    assert "There is no outcome fine. There are: ok, " in refusal


def test_media_have_columns_where_there_are_some(vinery_: Vinery) -> None:
    now = timezone.now()
    store("a", started_at=now)
    heads = vinery_("usage", "show").out.splitlines()[0]
    assert "IMAGE" not in heads and "MEDIA" not in heads

    store("b", started_at=now, num_image_tokens=1234, num_media=56)

    for words in ((), ("--by", "model")):
        heads, *_, row = vinery_("usage", "show", *words).out.splitlines()
        assert "IMAGE" in heads and "MEDIA" in heads
        assert "PIXELS" not in heads
        assert "1,234" in row and "56" in row


def test_usage_is_made_up_beside_the_usage_of_others_only_if_asked(vinery_: Vinery) -> None:
    store("theirs")
    small = ("demo-data", "--requests", "20", "--days", "1")
    assert "There is usage of others here. Add --yes" in vinery_(*small).refusal
    made = vinery_(*small, "--yes").out
    assert made.startswith(
        "20 requests are made up, and the models demo-* have prices in EUR. This"
    )
    assert vinery_("demo-data", "--remove").out == "The demo data is removed.\n"
    assert vinery_("demo-data", "--remove").out == "There is no demo data.\n"


def test_refusals_are_exported_in_order_of_time(vinery_: Vinery, tmp_path: Path) -> None:
    now, of_key = timezone.now(), {"scope": "key:12", "needed": 31.0}
    stored_refusal("later", key_name="=1+1", created_at=now - timedelta(hours=1), **of_key)
    stored_refusal("earlier", created_at=now - timedelta(hours=2), **of_key)

    [first, second] = csv.DictReader(vinery_("refusals", "export").out.splitlines())
    assert (first["request_id"], second["request_id"]) == ("earlier", "later")
    assert (first["wait_s"], second["key_name"], second["is_shadow"]) == ("", "'=1+1", "false")

    file = tmp_path / "refusals.jsonl"
    words = ("--format", "jsonl", "-o", str(file), "--scope", "key:12")
    assert vinery_("refusals", "export", *words).out == ""
    [first, second] = map(json.loads, file.read_text().splitlines())
    assert (first["wait_s"], second["key_name"], second["needed"]) == (None, "=1+1", 31.0)


# -- Usage over time and in groups

AGES = [timedelta(minutes=30), timedelta(minutes=20), timedelta(minutes=10), timedelta(days=3)]


@pytest.fixture
def four_requests(db: None) -> None:
    """One of the requests is three days old and was never answered."""
    for number, model, output in ((1, "small", 5), (2, "large", 20), (3, "large", 30)):
        stored_request(number, model, num_output_tokens=output)
    stored_request(4, "old", num_output_tokens=1, outcome=Outcome.FAILED, http_status=None)


def stored_request(number: int, model: str, **changes: object) -> None:
    at, key = datetime.now(UTC) - AGES[number - 1], {"key_id": 4, "key_name": "=laptop"}
    tokens = {"num_prompt_tokens": 1000, "num_cached_tokens": 0}
    store(f"r{number}", model=model, started_at=at, **key, **tokens, **changes)


def cells(text: str) -> Sequence[list[str]]:
    return [re.split(r"\s{2,}", line) for line in text.splitlines()]


@pytest.mark.usefixtures("four_requests")
def test_usage_is_shown_for_each_interval_or_a_month_with_the_total(vinery_: Vinery) -> None:
    heads, *points, total = cells(vinery_("usage", "show").out)
    assert heads[:4] == ["HOUR", "REQUESTS", "ERRORS", "INPUT"]
    assert len(points) in (1, 2)  # the requests of the last half hour
    assert sum(int(point[1]) for point in points) == 3
    assert total[:6] == ["TOTAL", "3", "0", "3,000", "0", "55"]

    now = datetime.now(UTC)
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    num_this = sum(now - age >= first for age in AGES)

    this = cells(vinery_("usage", "show", "--month", "this").out)
    last = cells(vinery_("usage", "show", "--month", "last").out)
    assert this[-1][:2] == ["TOTAL", str(num_this)]
    assert last[-1][:2] == ["TOTAL", str(len(AGES) - num_this)]


@pytest.mark.usefixtures("four_requests")
def test_usage_is_printed_as_the_api_answers_it(vinery_: Vinery) -> None:
    body = json.loads(vinery_("usage", "show", "--json").out)
    assert body["totals"]["num_requests"] == 3
    assert sum(each["figures"]["num_requests"] for each in body["points"]) == 3
    grouped = json.loads(vinery_("usage", "show", "--json", "--by", "model", "--top", "1").out)
    assert grouped["num_groups"] == 2
    (group,) = grouped["groups"]
    assert (group["values"], group["figures"]["num_output_tokens"]) == ({"model": "large"}, 50)
    assert grouped["points"] == []


@pytest.mark.usefixtures("four_requests")
def test_usage_is_shown_by_groups_the_largest_first_and_by_status(vinery_: Vinery) -> None:
    result = vinery_("usage", "show", "--by", "model", "--by", "key", "--last", "7d")
    _, *groups = cells(result.out)
    assert [group[:3:2] for group in groups] == [["large", "2"], ["old", "1"], ["small", "1"]]
    assert {group[1] for group in groups} == {"=laptop (4)"}
    assert groups[0][-2].count(" / ") == 2
    filters = ("--model", "small", "--time-zone", "Asia/Kolkata")
    filtered = vinery_("usage", "show", "--by", "model", *filters)
    assert [line[0] for line in cells(filtered.out)] == ["MODEL", "small"]

    last = ("--last", "7d")

    shown = vinery_("usage", "show", "--by", "status", *last)
    unanswered = vinery_("usage", "show", "--by", "model", "--status", "none", *last)
    answered = vinery_("usage", "export", "--status", "2xx", "--status", "4xx", *last)
    assert [line[:2] for line in cells(shown.out)[1:]] == [["2xx", "3"], ["-", "1"]]
    assert [line[:2] for line in cells(unanswered.out)[1:]] == [["old", "1"]]
    rows = list(csv.DictReader(answered.out.splitlines()))
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
def test_wrong_arguments_are_refused(
    vinery_: Vinery, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    try:
        refusal = vinery_("usage", "show", *words).refusal
    except SystemExit:  # of argparse
        refusal = capsys.readouterr().err
    assert message in refusal


@pytest.mark.usefixtures("four_requests")
def test_records_of_a_time_are_exported_to_a_file(vinery_: Vinery, tmp_path: Path) -> None:
    file = tmp_path / "usage.csv"

    result = vinery_("usage", "export", "--last", "7d", "--model", "large", "-o", str(file))
    assert (result.status, result.out) == (0, "")
    with file.open(newline="", encoding="utf-8") as rows:
        found = list(csv.DictReader(rows))
    assert [row["request_id"] for row in found] == ["r2", "r3"]
    assert found[0]["key_name"] == "'=laptop"
    refused = vinery_("usage", "export", "-o", str(tmp_path / "none" / "usage.csv"))
    assert "cannot be written" in refused.refusal

    yesterday = datetime.now(UTC) - timedelta(days=1)
    times = ("--from", "2020-01-01", "--to", yesterday.isoformat())

    result = vinery_("usage", "export", "--format", "jsonl", *times)
    assert [json.loads(line)["request_id"] for line in result.out.splitlines()] == ["r4"]


@pytest.mark.usefixtures("four_requests")
def test_usage_and_its_rollups_are_compared_by_day(vinery_: Vinery) -> None:
    balanced = vinery_("usage", "verify", "--last", "4d")
    assert balanced.status == 0
    days = balanced.out.splitlines()
    assert all(day.endswith("balanced") for day in days)
    assert sum(int(day.split()[1]) for day in days) == 4
