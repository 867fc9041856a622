"""Charts are well-formed SVG and contain every number; tables and marks are tags of templates."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from django.template import Context, Template
from django.template.loader import render_to_string
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tables import table
from vinery_accounts.console import charts
from vinery_accounts.console.charts import Chart, Series
from vinery_accounts.usage.reports import Figures, Point

START = datetime(2026, 3, 1, tzinfo=UTC)


def chart(*values: list[float | None], names: str = "abcdef", **changes: object) -> Chart:
    num_points = len(values[0]) if values else 0
    usual: dict[str, object] = {
        "name": "Requests",
        "what": "How many there were.",
        "points": points(START, timedelta(hours=1), num_points),
        "series": [Series(name, each) for name, each in zip(names, values, strict=False)],
        "zone": UTC,
    }
    return Chart(**(usual | changes))  # type: ignore[arg-type]


def points(start: datetime, length: timedelta, num_points: int) -> list[Point]:
    borders = [start + length * number for number in range(num_points + 1)]
    return [Point(since, until, Figures()) for since, until in pairwise(borders)]


def page(shown: Chart) -> str:
    return render_to_string("console/chart.html", {"chart": shown})


def drawn(shown: Chart) -> ElementTree.Element:
    root = ElementTree.fromstring(page(shown)).find("svg")
    assert root is not None
    return root


def bars_of(root: ElementTree.Element) -> list[ElementTree.Element]:
    return root.findall("g[@class='shapes']/rect")


def labels_of(root: ElementTree.Element) -> list[str | None]:
    return [label.text for label in root.findall(".//text[@class='x']")]


numbers = st.floats(0, 1e12) | st.integers(0, 10)


@settings(max_examples=examples(20))
@given(
    st.integers(1, 40).flatmap(
        lambda length: st.lists(
            st.lists(numbers, min_size=length, max_size=length), min_size=1, max_size=4
        )
    )
)
def test_bars_are_stacked_within_the_frame(rows: list[list[float | None]]) -> None:
    root = drawn(chart(*rows))

    for bar in bars_of(root):
        top, height = float(bar.attrib["y"]), float(bar.attrib["height"])
        assert height >= 0
        assert 9.9 <= top <= top + height <= 164.1
    num_tooltips = len(root.findall(".//rect[@class='column']/title"))
    assert num_tooltips == len(rows[0])


def test_bars_have_heights_in_proportion_equal_widths_and_their_colours() -> None:
    root = drawn(chart([1, 2, 4], [1, 0, 0]))

    heights = [(bar.attrib["class"], float(bar.attrib["height"])) for bar in bars_of(root)]
    unit = heights[0][1]
    assert heights == [
        ("colour-1", unit),
        ("colour-2", pytest.approx(unit, abs=0.02)),
        ("colour-1", pytest.approx(2 * unit, abs=0.02)),
        ("colour-1", pytest.approx(4 * unit, abs=0.05)),
    ]

    whole = points(START, timedelta(hours=1), 3)
    part = Point(whole[-1].until, whole[-1].until + timedelta(minutes=2), Figures())
    root = drawn(chart([1, 1, 1, 1], points=[*whole, part]))
    assert len({bar.attrib["width"] for bar in bars_of(root)}) == 1

    failed = chart(series=[Series("failed", [1], "failed")], points=points(START, timedelta(1), 1))
    assert [bar.attrib["class"] for bar in bars_of(drawn(failed))] == ["colour-failed"]


def test_a_chart_of_zeros_has_an_axis_to_one_and_names_are_escaped() -> None:
    root = drawn(chart([0, 0, 0]))

    assert [mark.text for mark in root.findall(".//text[@class='y']")] == ["0", "1"]
    assert root.attrib["aria-label"] == "Requests: How many there were. At most 0."

    text = page(chart([1], names="<")).replace("&lt;", "")

    assert "<:" not in text


def test_lines_end_where_values_are_missing_and_reach_the_largest() -> None:
    root = drawn(chart([1, 2, None, 3, None, 4, 5], is_of_durations=True))

    assert [len(line.attrib["points"].split()) for line in root.iter("polyline")] == [2, 2]
    assert len(list(root.iter("circle"))) == 1
    assert "a: not measured" in (root.findall(".//title")[2].text or "")

    shown = chart([10, 20], [30, 40], is_of_lines=True)
    assert len(list(drawn(shown).iter("polyline"))) == 2
    assert shown.largest_text == "40"


def test_numbers_are_short_and_durations_have_their_unit() -> None:
    numbers = {0: "0", 7: "7", 999: "999", 999.9: "1k", 1234: "1.23k", 2_000_000: "2M"}
    assert {each: charts.short(each) for each in numbers} == numbers
    durations = {0: "0 ms", 12.34: "12.3 ms", 999.7: "1 s", 1250: "1.25 s", 180_000: "3 min"}
    assert {each: charts.duration(each) for each in durations} == durations


@table(
    "minute, length, result",
    [
        (23, timedelta(minutes=1), ["12:30", "12:40", "12:50", "13:00", "13:10", "13:20"]),
        (0, timedelta(hours=1), ["02 Mar 00:00", "03 Mar 00:00"]),
        # In a zone with a half-hour offset, no hour begins at these times.
        (30, timedelta(hours=1), ["01 Mar 22:30", "02 Mar 18:30", "03 Mar 14:30"]),
    ],
)
def test_ticks_are_at_round_times(minute: int, length: timedelta, result: list[str]) -> None:
    start = START + timedelta(hours=12, minutes=minute)

    root = drawn(chart([0] * 60, points=points(start, length, 60)))

    assert labels_of(root) == result


def rendered(text: str, **context: object) -> str:
    return " ".join(Template(text).render(Context(context)).split())


def test_tables_have_escaped_columns_and_figures_and_states_are_marked() -> None:
    row = "{% for each in rows %}<tr><td>{{ each }}</td></tr>{% endfor %}"

    page = rendered('{% table "Host|#Bytes|" %}' + row + "{% endtable %}", rows=["<b>"])
    assert '<tr><th>Host</th><th class="figure">Bytes</th><th></th></tr>' in page
    assert "<tbody> <tr><td>&lt;b&gt;</td></tr> </tbody>" in page
    assert page.count("<table>") == page.count("</table>") == 1

    page = rendered("{% table columns %}{% endtable %}", columns=["<b>", "#<i>"])
    assert '<th>&lt;b&gt;</th><th class="figure">&lt;i&gt;</th>' in page

    assert rendered('{% state 1 "disabled" %}') == '<span class="state state-active">active</span>'
    assert rendered('{% state 0 "disabled" %}') == '<span class="state">disabled</span>'
