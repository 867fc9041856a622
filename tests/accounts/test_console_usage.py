"""The console shows usage by every dimension, with charts, and exports what it counts."""

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from itertools import pairwise
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone
from pages import charts_of, drawn, page, signed_in, store, tile, used

from vinery_accounts.console import charts
from vinery_accounts.console.charts import Chart, Series
from vinery_accounts.console.page import PeriodForm, UsagePage
from vinery_accounts.models import User
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.reports import Figures, Point

pytestmark = pytest.mark.django_db


def test_requests_without_a_model_have_a_name_and_no_export(alice: User) -> None:
    store(used(alice, "r1", model=""))

    text = page(signed_in(alice), "/console/usage/?by=model")
    assert re.search(r'<a href="[^"]*model=">\(none\)</a>', text)

    # The API cannot filter by an empty model. An export without a filter has all records.
    store(used(alice, "r2", model="a"))

    text = page(signed_in(alice), "/console/usage/?model=")
    assert 'Requests">1<' in text
    assert "/api/usage/export" not in text


def test_figures_of_end_users_are_those_of_the_newest_requests(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UsagePage, "max_records", 2)
    for at, name in enumerate(("anna", "ben", "carl", "dora")):
        store(used(alice, name, minutes_ago=5 + 60 * at, end_user=name))
    browser = signed_in(alice)

    text = page(browser, "/console/usage/?by=end_user")
    assert "Figures of end users are those of the newest 2 requests, since" in text
    assert {name for name in ("anna", "ben", "carl", "dora") if f">{name}</a>" in text} == {
        *("anna", "ben", "carl")
    }, "the minute of the third is whole"
    assert "of the newest" not in page(browser, "/console/usage/?by=user")
    whole = browser.get("/console/usage/table.csv?by=end_user").content.decode()
    assert "dora" in whole


def test_usage_is_shown_by_every_dimension_and_interval(alice: User) -> None:
    text = page(signed_in(alice), "/console/usage/")
    select = re.search(r'<select name="granularity".*?</select>', text, re.DOTALL)
    assert select is not None
    names = re.findall(r"<option[^>]*>([\w ]+)</option>", select[0])
    assert names == ["Auto", "1 minute", "1 hour", "1 day"]

    store(*(used(alice, f"r{at}", model=f"m{at}") for at in range(8)))
    text = page(signed_in(alice), "/console/usage/?by=model")
    assert drawn(text, "Requests by model") == {**{f"m{at}": 1 for at in range(6)}, "others": 2}

    for by in Dimension:
        text = page(signed_in(alice), f"/console/usage/?by={by}&most=num_tokens")
        name = "organisation" if by is Dimension.ORGANIZATION else by.replace("_", " ")
        assert f"<title>Usage by {name} | Vinery</title>" in text
        assert f'aria-label="Tokens by {name}' in text


def test_two_splits_are_a_table_a_chart_and_a_file_that_heads_sort(alice: User) -> None:
    store(
        used(alice, "r1", model="a", endpoint="e1", num_prompt_tokens=9, end_user="u1"),
        used(alice, "r2", model="b", endpoint="e1", num_prompt_tokens=5),
        used(alice, "r3", model="b", endpoint="e2", num_prompt_tokens=7, end_user="u1"),
        used(alice, "r4", model="b", endpoint="e1", num_prompt_tokens=1),
    )
    client, query = signed_in(alice), "by=model&by2=endpoint"

    def rows(more: str) -> list[str]:
        text = page(client, f"/console/usage/?{more}")
        cells = re.findall(r'scope="row">(.*?)</th>', text)
        return [re.sub("<.*?>", "", each) for each in cells][:-1]

    assert rows(query) == ["b and e1", "a and e1", "b and e2"]
    assert rows(f"{query}&sort=num_prompt_tokens") == ["a and e1", "b and e2", "b and e1"]
    assert rows(f"{query}&sort=-num_prompt_tokens") == ["b and e1", "b and e2", "a and e1"]
    assert rows(f"{query}&sort=name") == ["a and e1", "b and e1", "b and e2"]
    assert rows("by=model&by2=model") == ["b", "a"]
    assert rows("by=end_user&by2=model")[1:] == ["u1 and a", "u1 and b"]

    text = page(client, f"/console/usage/?{query}&sort=num_errors")
    assert drawn(text, "Requests by model and endpoint")["b · e1"] == 2
    assert 'aria-sort="descending"><a href="/console/usage/?by=model&amp;by2=endpoint' in text
    assert "sort=-num_errors" in text
    response = client.get(f"/console/usage/table.csv?{query}")
    assert "usage-by-model-and-endpoint.csv" in response.headers["Content-Disposition"]
    first, *_, last = csv.DictReader(io.StringIO(response.content.decode()))
    assert (first["model"], first["endpoint"], first["num_requests"]) == ("b", "e1", "2")
    assert (last["model"], last["endpoint"], last["num_requests"]) == ("all", "all", "4")


def test_the_period_before_is_drawn_and_shares_have_no_sum(alice: User) -> None:
    store(used(alice, "r1", num_prompt_tokens=8, num_cached_tokens=2))
    store(*(used(alice, f"old{at}", minutes_ago=1500 + at) for at in range(2)))

    for path in ("", "usage/"):
        text = page(signed_in(alice), f"/console/{path}?compare=on")
        assert "period before</span>" in text
        assert "period before</span>" not in page(signed_in(alice), f"/console/{path}")
        found = re.search(r'"earlier": (\[.*?\])', text)
        assert found is not None
        assert sum(json.loads(found[1])) == 2
        assert "-50 % vs previous period" in text

    opened = r'"opens": "/console/(.*?)\?(.*?)"'
    for query, leads_to in (("period=1h&by=user", "requests/"), ("period=7d", "usage/")):
        found = re.search(
            opened, page(signed_in(alice), f"/console/usage/?{query}&model=reference-chat")
        )
        assert found is not None
        assert found[1] == leads_to
        assert json.loads(f'"{found[2]}"') == "model=reference-chat&zone=UTC"

    assert tile(page(signed_in(alice), "/console/?status=fine&from=abc"), "requests") == "1"
    text = page(signed_in(alice), "/console/usage/?most=cached_share&compare=on")
    assert drawn(text, "Cached share of the input by model") == {"reference-chat": 25}


def test_each_group_has_a_link_and_the_table_is_exported_as_shown(alice: User) -> None:
    store(used(alice, "r1", model="=a"), used(alice, "r2", model="b"), used(alice, "r3", model="b"))

    text = page(signed_in(alice), "/console/usage/?by=model&period=7d")

    rows = re.findall(r'scope="row">(?:<a href="(.*?)">)?(.*?)<.*?Requests">(\d+)', text, re.DOTALL)
    assert rows == [
        ("/console/usage/?by=model&amp;period=7d&amp;model=b", "b", "2"),
        ("/console/usage/?by=model&amp;period=7d&amp;model=%3Da", "=a", "1"),
        ("", "All", "3"),
    ]

    response = signed_in(alice).get("/console/usage/table.csv?by=model&period=7d")
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    exported = list(csv.DictReader(io.StringIO(response.content.decode())))
    figures = [(row["model"], row["num_requests"]) for row in exported]
    assert figures == [("b", "2"), ("'=a", "1"), ("all", "3")]
    assert "/console/usage/table.csv?by=model&amp;period=7d" in text


def test_the_export_has_the_rows_that_the_page_counts(alice: User, bob: User) -> None:
    store(used(alice, "r1", model="a"), used(alice, "r2", model="b"), used(bob, "r3", model="a"))

    assert exported(signed_in(alice), "/console/usage/?period=1h&model=a") == ["r1"]

    none: dict[str, Any] = {"outcome": Outcome.FAILED, "http_status": None}
    store(used(alice, "r5"), used(alice, "r6", http_status=404), used(alice, "r7", **none))
    client = signed_in(alice)
    grouped = page(client, "/console/usage/?by=status&period=1h")

    for status, name, request_id in (("4xx", "4xx", "r6"), ("none", "(no answer)", "r7")):
        link = re.search(rf'<a href="([^"]*status={status})">{re.escape(name)}</a>', grouped)
        assert link is not None
        assert exported(client, unescape(link[1])) == [request_id]


def exported(client: Client, address: str) -> list[str]:
    """The ids of the requests in the export that a page links to."""
    found = re.search(r'href="(/api/usage/export.*?)"', page(client, address))
    assert found is not None
    response: Any = client.get(unescape(found[1]))
    text = async_to_sync(_all_of)(response)
    return [row["request_id"] for row in csv.DictReader(io.StringIO(text))]


async def _all_of(response: Any) -> str:
    return b"".join([chunk async for chunk in response.streaming_content]).decode()


def test_months_are_those_of_the_time_zone(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 3, 31, 23, 30, tzinfo=UTC)
    monkeypatch.setattr(timezone, "now", lambda: now)

    def period(name: str, zone: str) -> tuple[str, str]:
        found = PeriodForm.of({"period": name, "zone": zone}).found
        return found.since.isoformat(), found.until.isoformat()

    assert period("month", "UTC") == ("2026-03-01T00:00:00+00:00", now.isoformat())
    assert period("last-month", "UTC") == ("2026-02-01T00:00:00+00:00", "2026-03-01T00:00:00+00:00")
    # In Berlin, April has begun, and the clocks have changed in March.
    march = ("2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00")
    assert period("last-month", "Europe/Berlin") == march


def test_the_overview_renews_all_but_its_charts(alice: User) -> None:
    store(used(alice, "r1"))
    client = signed_in(alice)
    whole = page(client, "/console/")
    parts = re.findall(r'id="(\w+)" data-live', whole)
    assert parts == ["health", "figures"]
    assert "Requests" in charts_of(whole)
    assert 'hx-trigger="sse:change throttle:5s"' in whole
    assert 'hx-trigger="sse:change"' in page(client, "/console/models/")

    store(used(alice, "r2"))
    fresh = client.get("/console/", headers={"X-Live": "1"}).content.decode()
    assert tile(fresh, "requests") == "2"
    assert all(f'id="{each}" data-live' in fresh for each in parts)
    assert not charts_of(fresh)
    assert "<html" not in fresh


def test_errors_of_clients_are_drawn_apart_from_failures(alice: User) -> None:
    limited: dict[str, Any] = {"outcome": Outcome.REJECTED, "http_status": 429, "total_ms": 1.5}
    wrong: dict[str, Any] = {"outcome": Outcome.REJECTED, "http_status": 400, "total_ms": 1.5}
    failed: dict[str, Any] = {"outcome": Outcome.FAILED, "http_status": 500, "total_ms": 1.5}
    store(
        *(used(alice, f"l{number}", **limited) for number in range(3)),
        used(alice, "r1", finish_reason="quota_exceeded", total_ms=500.0),
        used(alice, "r2", **wrong),
        used(alice, "r3", **failed),
    )

    text = page(signed_in(alice), "/console/")

    parts = ("answered", "refused by limits", "client errors", "failed")
    assert drawn(text, "Requests") == dict(zip(parts, (1, 3, 1, 1), strict=True))
    only = page(signed_in(alice), "/console/?status=5xx")
    assert drawn(only, "Requests") == dict(zip(parts, (0, 0, 0, 1), strict=True))
    causes = "3 by limits, 1 of clients, 1 of the server, 1 cut short"
    assert (tile(text, "errors"), tile(text, "refused")) == ("2", "3")
    assert "33.3 % of requests: 1 of clients, 1 of the server" in text
    assert "50 % of requests: 1 cut short" in text
    for name, num in {"errors": 2, "refused": 3}.items():
        [listed] = re.findall(rf'id="{name}"><dt>.*?<a href="([^"]+)"', text)
        rows = page(signed_in(alice), unescape(listed))
        assert rows.count('<th scope="row" class="moment">') == num
    assert causes in page(signed_in(alice), "/console/usage/")
    assert tile(text, "total") == "493\xa0ms"  # of 500, in its bucket


def test_media_have_columns_a_tile_and_a_chart_where_there_are_some(alice: User) -> None:
    client = signed_in(alice)
    store(used(alice, "r1", model="chat"))
    text = page(client, "/console/usage/?by=model")
    assert "Image tokens" not in text
    assert "edia" not in text.partition("<main")[2]
    assert 'id="media"' not in page(client, "/console/")

    media = {"num_media": 3, "num_media_bytes": 2048, "num_media_pixels": 3_100_000}
    store(used(alice, "r2", model="seer", num_image_tokens=1234, **media))
    text = page(client, "/console/usage/?by=model")

    cells = re.findall(r'data-name="Media">(\d+)', text)
    assert sorted(cells) == ["0", "3", "3"]
    assert "2.0\xa0KB, 3.1\xa0megapixels" in unescape(text)
    assert tile(page(client, "/console/"), "media") == "3"
    assert "1,234 input tokens, 2.0\xa0KB" in unescape(page(client, "/console/"))
    assert "Media by model" in page(client, "/console/usage/?by=model&most=num_media")

    cells = re.findall(r'data-name="Image tokens">([\d,]+)<', text)
    assert sorted(cells) == ["0", "1,234", "1,234"]


START = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def chart(*values: list[float | None], names: str = "abcdef", **changes: object) -> Chart:
    num_points = len(values[0]) if values else 0
    usual: dict[str, object] = {
        "name": "Requests",
        "what": "How many there were.",
        "points": points(START, HOUR, num_points),
        "series": [Series(name, each) for name, each in zip(names, values, strict=False)],
        "zone": UTC,
    }
    return Chart(**(usual | changes))  # type: ignore[arg-type]


def points(start: datetime, length: timedelta, num_points: int) -> list[Point]:
    borders = [start + length * number for number in range(num_points + 1)]
    return [Point(since, until, Figures()) for since, until in pairwise(borders)]


def drawing(shown: Chart) -> str:
    return render_to_string("console/chart.html", {"chart": shown})


def test_a_chart_has_its_times_values_and_colours() -> None:
    whole = points(START, HOUR, 3)
    part = Point(whole[-1].until, whole[-1].until + timedelta(minutes=2), Figures())
    shown = chart([1, 2, 4, 0.1 + 0.2], [1, 0, None, 1], points=[*whole, part], earlier=[1] * 9)

    data = shown.data()

    start_s = int(START.timestamp())
    assert data["borders"] == [start_s + each for each in (0, 3600, 7200, 10800, 10920)]
    assert data["step"] == 3600
    assert data["values"] == [[1, 2, 4, 0.3], [1, 0, None, 1]]
    assert data["earlier"] == [1] * 4
    assert (data["kind"], data["unit"], data["zone"]) == ("bars", "", "UTC")
    assert chart([1], is_of_durations=True).data()["unit"] == "ms"
    failed = chart(series=[Series("a", [1]), Series("b", [1], "failed")], points=whole[:1])
    assert failed.colours == ["1", "failed"]


def test_names_are_escaped_and_the_text_has_the_largest_value() -> None:
    text = drawing(chart([1, 20], [3, 40], names="<b"))
    assert 'aria-label="Requests: How many there were. At most 60."' in text
    assert charts_of(text) == {"Requests": {"<": [1, 20], "b": [3, 40]}}
    assert "<b>" not in text.replace("&lt;", "")

    assert chart([10, 20], [30, 40], is_of_lines=True).largest_text == "40"
    assert chart([None, 2500.0], is_of_durations=True).largest_text == "2.5\xa0s"
    assert "At most 0." in drawing(chart())


def test_the_table_has_the_newest_columns_with_a_value() -> None:
    rows = list(chart([1, 0, 3], [None, 0, 0.5], unit="%").rows())
    assert rows == [("01 Mar 2026, 02:00", ["3 %", "0.5 %"]), ("01 Mar 2026, 00:00", ["1 %", "-"])]

    assert len(list(chart([1] * 500).rows())) == 100


def test_numbers_are_short_and_durations_have_their_unit() -> None:
    numbers = {0: "0", 7: "7", 999: "999", 999.9: "1k", 1234: "1.23k", 2_000_000: "2M"}
    assert {each: charts.short(each) for each in numbers} == numbers
    durations = {0: "0 ms", 12.34: "12.3 ms", 999.7: "1 s", 1250: "1.25 s", 180_000: "3 min"}
    found = {each: charts.duration(each) for each in durations}
    assert found == {each: text.replace(" ", "\xa0") for each, text in durations.items()}
