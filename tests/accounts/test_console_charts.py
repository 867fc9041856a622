"""Charts give a script their numbers, and readers without it a table."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from django.template.loader import render_to_string
from pages import charts_of

from vinery_accounts.console import charts
from vinery_accounts.console.charts import Chart, Series
from vinery_accounts.usage.reports import Figures, Point

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


def page(shown: Chart) -> str:
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
    text = page(chart([1, 20], [3, 40], names="<b"))
    assert 'aria-label="Requests: How many there were. At most 60."' in text
    assert charts_of(text) == {"Requests": {"<": [1, 20], "b": [3, 40]}}
    assert "<b>" not in text.replace("&lt;", "")

    assert chart([10, 20], [30, 40], is_of_lines=True).largest_text == "40"
    assert chart([None, 2500.0], is_of_durations=True).largest_text == "2.5\xa0s"
    assert "At most 0." in page(chart())


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
