"""The report says first what was promised and what became of it."""

import json
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.compare import FirstToken, Point, Spread
from benchmarks.measures import Summary
from benchmarks.report import ModelResult, Report, machine, table, write

MACHINE = {"cpu": "Some CPU", "num_cores": 4}
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


def report(ratio: float, added_ms: float = 1.0, load: float = 0.1) -> Report:
    first = FirstToken(9, 5.0, 5.0 + added_ms, Spread(added_ms, added_ms, added_ms))
    results = (ModelResult("tiny-chat", first, (point(1, 1.0), point(64, ratio))),)
    return Report({"rounds": 3}, MACHINE | {"load_average": [load, 0, 0]}, results)


def test_an_aim_is_met_at_its_number() -> None:
    aims = {aim.what: aim.is_met for aim in report(ratio=0.90, added_ms=3.0).aims}

    assert aims["tiny-chat at 64 streams, tokens/s by those of the bare loop"] is True
    assert aims["tiny-chat at 1 stream, milliseconds added to the first token"] is True


def test_an_aim_is_missed_below_it() -> None:
    aims = {aim.what: aim.is_met for aim in report(ratio=0.89, added_ms=3.1).aims}

    assert aims["tiny-chat at 64 streams, tokens/s by those of the bare loop"] is False
    assert aims["tiny-chat at 1 stream, milliseconds added to the first token"] is False


def test_what_was_not_run_is_neither_met_nor_missed() -> None:
    aims = {aim.what: aim.is_met for aim in report(ratio=1.0).aims}

    assert aims["0.5b at 8 streams, tokens/s by those of the bare loop"] is None


def test_the_table_shows_ratios_and_verdicts() -> None:
    text = table(report(ratio=0.85))

    assert " 0.850 " in text
    assert " (0.840-0.860) " in text
    assert ">= 0.90: 0.850, NOT met" in text
    assert "0.5b at 8 streams, tokens/s by those of the bare loop >= 0.97: not measured" in text


def test_the_columns_of_the_table_stand_under_each_other() -> None:
    _, *rows = table(report(ratio=0.85)).split("\n\n")[0].splitlines()

    assert len({len(row) for row in rows}) == 1


def test_the_file_is_named_by_the_time_and_holds_everything(tmp_path: Path) -> None:
    file = write(report(ratio=0.95), tmp_path / "results", NOW)

    content = json.loads(file.read_text())
    assert file.name == "20260304T050607Z.json"
    assert list(content) == ["measured_at", "aims", "results", "settings", "machine"]
    assert content["results"][0]["points"][1]["throughput_ratio"]["median"] == 0.95
    assert content["machine"]["num_cores"] == 4


def test_a_busy_machine_is_named() -> None:
    assert "measure again" in table(report(ratio=1.0, load=2.0))
    assert "measure again" not in table(report(ratio=1.0))


def test_the_machine_tells_what_figures_depend_on() -> None:
    facts = machine()

    assert facts["num_cores"] > 0
    assert facts["cpu"]
    assert "openvino-genai" in facts["versions"]
