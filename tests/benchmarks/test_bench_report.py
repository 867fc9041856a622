"""The report begins with the aims and their results, and is published with a picture."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import performance
from benchmarks.aims import Aim
from benchmarks.calm import Calm
from benchmarks.compare import FirstToken, Point, Spread
from benchmarks.hook import OFF, HookPoint, HookResult
from benchmarks.idle import CommandCost, IdleResult, ProcessCost
from benchmarks.measures import Summary
from benchmarks.picture import draw
from benchmarks.recovery import Departure, RecoveryResult, Restart
from benchmarks.report import ModelResult, Report, earlier, write
from benchmarks.report import table as shown
from tests.tables import table

MACHINE = {
    "cpu": "Some CPU",
    "num_cores": 4,
    "memory_gb": 8,
    "system": "Linux",
    "python": "3.11",
    "commit": "abc",
    "versions": {"openvino": "1"},
}
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def speed(tokens_per_s: float) -> Summary:
    return Summary(
        num_tokens=100,
        tokens_per_s=tokens_per_s,
        first_token_p50_ms=1.0,
        first_token_p99_ms=2.0,
        token_gap_p50_ms=3.0,
        token_gap_p99_ms=4.0,
        chunk_gap_p50_ms=3.0,
        chunk_gap_p99_ms=4.0,
        web_cpu_us_per_token=None,
        client_cpu_us_per_token=12.0,
    )


def point(num_streams: int, ratio: float) -> Point:
    bare, server = speed(1000.0), speed(1000.0 * ratio)
    return Point(
        num_streams=num_streams,
        throughput_ratio=Spread(ratio, ratio - 0.01, ratio + 0.01),
        token_gap_p50_ratio=Spread(1.0, 1.0, 1.0),
        token_gap_p99_ratio=Spread(1.0, 1.0, 1.0),
        same_texts=1.0,
        bare=bare,
        server=server,
        bare_rounds=(bare,),
        server_rounds=(server,),
    )


def report(ratio: float, added_ms: float = 1.0, busy: float = 0.0) -> Report:
    first = FirstToken(9, 5.0, 5.0 + added_ms, Spread(added_ms, added_ms, added_ms))
    results = (ModelResult("tiny-chat", first, (point(1, 1.0), point(64, ratio))),)
    return Report({"rounds": 3}, MACHINE, results, calms=(Calm("server", 120.0, busy),))


@table("ratio, added_ms, is_met", [(0.85, 2.0, True), (0.84, 2.1, False)])
def test_an_aim_is_met_at_its_number(ratio: float, added_ms: float, is_met: bool) -> None:
    aims = {aim.what: aim.is_met for aim in report(ratio, added_ms).aims}

    assert aims["tiny-chat at 64 streams, tokens/s by those of the bare loop"] is is_met
    assert aims["tiny-chat at 1 stream, milliseconds added to the first token"] is is_met
    assert aims["0.5b at 8 streams, tokens/s by those of the bare loop"] is None, "not run"


def hooked(ratio: float) -> Report:
    point = HookPoint(
        OFF, 1, Spread(ratio, 0.99, 1.04), Spread(1.01, 1, 1.02), 4.0, 4.0 * ratio, 10.0
    )
    return Report({}, MACHINE, hooks=(HookResult("32k", 32_000, (point,)),))


def test_the_table_shows_ratios_verdicts_a_busy_machine_and_a_hook_that_may_cost_nothing() -> None:
    text = shown(report(ratio=0.84, busy=0.5))
    assert " 0.840 " in text
    assert " (0.830-0.850) " in text
    assert ">= 0.85: 0.840, NOT met" in text
    assert "0.5b at 8 streams, tokens/s by those of the bare loop >= 0.98: not measured" in text
    _, *rows = text.split("\n\n")[0].splitlines()
    assert len({len(row) for row in rows}) == 1, "the columns do not stand under each other"
    assert "server: other programs used 50% of the machine" in text
    assert "other programs" not in shown(report(ratio=1.0))

    what = "32k at 1 stream, step time with the hook off by that without it"
    assert {aim.what: aim.is_met for aim in hooked(1.02).aims}[what] is True
    assert {aim.what: aim.is_met for aim in hooked(1.03).aims}[what] is False

    title, columns, row, *_ = shown(hooked(1.02)).splitlines()
    assert "(32,000 tokens)" in title
    assert columns.split()[-3:] == ["without/without", "added", "us"]
    assert row.split() == ["1", "off", "4.08", "/", "4.00", "1.020", "(0.990-1.040)", "1.010", "10"]


def test_the_file_is_named_by_the_time_and_stands_beside_a_later_report(tmp_path: Path) -> None:
    file = write(report(ratio=0.81), tmp_path, NOW)

    content = json.loads(file.read_text())
    assert file.name == "20260304T050607Z.json"
    parts = ("results", "hooks", "requests", "speculation", "recovery", "crowds", "idle")
    assert list(content) == ["measured_at", "aims", *parts, "settings", "machine", "calm"]
    assert content["machine"]["num_cores"] == 4
    assert content["results"][0]["points"][1]["throughput_ratio"]["median"] == 0.81

    write(report(ratio=0.82), tmp_path, NOW + timedelta(days=1))
    write(Report({}, MACHINE), tmp_path, NOW + timedelta(days=2))  # measured nothing
    (tmp_path / "broken.json").write_text("{")
    text = shown(report(ratio=0.95), earlier(tmp_path, tmp_path / "none.json"))
    assert "tokens/s by those of the bare loop >= 0.85: 0.950, met (earlier 0.820)" in text


def test_the_slowest_recovery_decides() -> None:
    departures = (
        Departure("closed", 1, Spread(20, 10, 30)),
        Departure("killed", 64, Spread(20, 10, 1001)),
    )
    restarts = (Restart(3.0, 2.5), Restart(4.5, 2.5))
    recovered = Report({}, MACHINE, recovery=RecoveryResult(departures, restarts))

    aims = {aim.what: (aim.measured, aim.is_met) for aim in recovered.aims}
    assert aims["seconds until the slot of a client that left is free"] == (1.001, False)
    assert aims["seconds of a killed engine, beside loading"] == (2.0, True)
    assert "3.00 (2.50), 4.50 (2.50)" in shown(recovered)


def test_an_idle_platform_has_a_row_for_each_process() -> None:
    result = IdleResult(
        ready_s=3.5,
        processes=(ProcessCost("engine", 0.001, 1.5, 400.0), ProcessCost("web", 0.003, 12.0, 98.4)),
        commands=(CommandCost("--help", 0.08), CommandCost("key list", 0.45)),
    )
    idle = Report({}, MACHINE, idle=result)

    aims = {aim.what: (aim.measured, aim.is_met) for aim in idle.aims}
    assert aims["an idle platform, part of a core"] == (0.004, True)
    assert aims["an idle platform, MB of memory without the engine"] == (98.4, True)
    assert aims["the slowest command, seconds"] == (0.45, False)
    assert "all: 0.40% of a core, 98 MB without the engine; ready after 3.5 s" in shown(idle)


MEMORY = "an idle platform, MB of memory without the engine"
READY = "a prepared platform, seconds until ready"
SVG = "{http://www.w3.org/2000/svg}"


def idle(memory_mb: float) -> Report:
    web = ProcessCost("web", 0.003, 12.0, memory_mb)
    result = IdleResult(3.5, (web,), (CommandCost("--help", 0.1),))
    return Report({}, MACHINE, idle=result)


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


def test_the_next_run_finds_these_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAGE", "PICTURE", "FIGURES"):
        monkeypatch.setattr(performance, name, tmp_path / name)

    performance.publish(idle(255.0), {"hook": 1.01, MEMORY: 330.0}, NOW)

    found = earlier(tmp_path / "results", performance.FIGURES)
    assert (found["hook"], found[MEMORY]) == (1.01, 255.0)
    assert "Some CPU" in performance.PAGE.read_text()
    assert performance.PICTURE.read_text().startswith("<svg")
    assert json.loads(performance.FIGURES.read_text())["aims"]
