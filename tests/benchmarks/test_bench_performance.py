"""The published page of the benchmark, its picture, and what a later run finds of it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import performance
from benchmarks.aims import Aim
from benchmarks.idle import CommandCost, IdleResult, ProcessCost
from benchmarks.picture import draw
from benchmarks.report import Report, earlier

NOW = datetime(2026, 3, 4, tzinfo=UTC)
MEMORY = "an idle platform, MB of memory without the engine"
READY = "a prepared platform, seconds until ready"
SVG = "{http://www.w3.org/2000/svg}"


def idle(memory_mb: float) -> Report:
    web = ProcessCost("web", 0.003, 12.0, memory_mb)
    result = IdleResult(3.5, (web,), (CommandCost("--help", 0.1),))
    return Report({}, {"cpu": "Some CPU", "num_cores": 4}, idle=result)


def widths(aims: list[Aim]) -> list[float]:
    """The lengths of the bars: the first rectangle is the background."""
    rectangles = ElementTree.fromstring(draw(aims)).findall(f"{SVG}rect")
    return [float(each.attrib["width"]) for each in rectangles[1:]]


def test_a_row_has_the_aim_what_was_measured_and_what_was_before() -> None:
    page = performance.page(idle(255.0), {MEMORY: 330.0}, NOW)

    assert f"| {MEMORY} | <= 220 | 255 | 330 | no |" in page
    assert f"| {READY} | <= 4 | 3.5 | - | yes |" in page
    assert "| not measured |" in page


def test_a_bar_is_as_long_as_the_part_of_the_aim_that_was_reached() -> None:
    half = Aim("tokens", 0.8, 0.4, is_least=True)
    whole = Aim("seconds", 2.0, 2.0)
    twice_as_slow = Aim("seconds", 2.0, 4.0)

    short, long, slow = widths([half, whole, twice_as_slow])

    assert (short, slow) == (long / 2, long / 2)
    assert widths([Aim("seconds", 2.0, None)]) == []
    assert len(widths([Aim("seconds", 2.0, 0.0)])) == 1


def test_the_next_run_finds_the_published_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PAGE", "PICTURE", "FIGURES"):
        monkeypatch.setattr(performance, name, tmp_path / name)

    performance.publish(idle(255.0), {"hook": 1.01, MEMORY: 330.0}, NOW)

    found = earlier(tmp_path / "results", performance.FIGURES)
    assert (found["hook"], found[MEMORY]) == (1.01, 255.0)
    assert "Some CPU" in performance.PAGE.read_text()
    assert performance.PICTURE.read_text().startswith("<svg")
    assert json.loads(performance.FIGURES.read_text())["aims"]
