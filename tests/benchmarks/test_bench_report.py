"""The report has the aims and their results, and is published."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks import performance
from benchmarks.compare import FirstToken, ModelResult, Point, Spread
from benchmarks.crowds import Crowd, CrowdsResult, Neighbour
from benchmarks.machine import Calm
from benchmarks.measures import Summary
from benchmarks.report import Report, earlier, write
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


def shown(measured: Report, earlier: Mapping[str, float]) -> str:
    return "\n".join(performance.section(measured, earlier, NOW))


@table("ratio, added_ms, is_met", [(0.85, 2.0, True), (0.84, 2.1, False)])
def test_an_aim_is_met_at_its_number(ratio: float, added_ms: float, is_met: bool) -> None:
    aims = {aim.what: aim.is_met for aim in report(ratio, added_ms).aims}

    assert aims["tiny-chat at 64 streams, tokens/s by those of the bare loop"] is is_met
    assert aims["tiny-chat at 1 stream, milliseconds added to the first token"] is is_met
    assert aims["0.5b at 8 streams, tokens/s by those of the bare loop"] is None, "not run"


def test_the_file_is_named_by_the_time_and_stands_beside_a_later_report(tmp_path: Path) -> None:
    file = write(report(ratio=0.81).document(NOW), tmp_path, NOW)

    content = json.loads(file.read_text())
    assert file.name == "20260304T050607Z.json"
    parts = ("results", "speculation", "crowds")
    assert list(content) == ["measured_at", "aims", *parts, "settings", "machine", "calm"]
    assert content["machine"]["num_cores"] == 4
    assert content["results"][0]["points"][1]["throughput_ratio"]["median"] == 0.81

    write(report(ratio=0.82).document(NOW), tmp_path, NOW + timedelta(days=1))
    nothing = Report({}, MACHINE).document(NOW)
    write(nothing, tmp_path, NOW + timedelta(days=2))
    (tmp_path / "broken.json").write_text("{")
    text = shown(report(ratio=0.95), earlier(tmp_path))
    assert f"| {THROUGHPUT} | >= 0.85 | 0.95 | 0.82 | yes |" in text


THROUGHPUT = "tiny-chat at 64 streams, tokens/s by those of the bare loop"


def crowd(num_clients: int, tokens_per_s: float, num_failed: int = 0) -> Crowd:
    requests = num_clients * 2
    return Crowd(num_clients, requests, 0, num_failed, tokens_per_s, 9.0, 1.0, 2.0, 3.0, 250.0)


def test_the_aims_of_crowds_are_of_all_of_them() -> None:
    beside = [Neighbour("one stream", 0, 10.0, 11.0), Neighbour("500 prompts", 0, 25.0, 30.0)]
    result = CrowdsResult((crowd(32, 100.0), crowd(256, 90.0, num_failed=1)), tuple(beside))
    crowded = Report({}, MACHINE, crowds=result)

    found = {
        aim.what: (aim.measured, aim.is_met) for aim in crowded.aims if aim.measured is not None
    }
    assert found == {
        "crowds of up to 1,000, requests without an answer": (1.0, False),
        "256 clients, tokens/s by those of 32": (0.9, False),
        "the web process beside crowds, MB at most": (250.0, True),
        "first token of another key beside 500 prompts, by that beside a stream": (2.5, False),
    }
    assert "beside 500 prompts: 25 ms, p99 30 ms, 2.50 times, 0 refused" in shown(crowded, {})


def test_only_the_section_of_a_benchmark_is_written_anew_and_the_picture_has_its_aims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PAGE", "PICTURE"):
        monkeypatch.setattr(performance, name, tmp_path / name)
    performance.PAGE.write_text("# P\n\n<!-- bench -->\nold\n<!-- /bench -->\n\nother\n")

    performance.publish(report(0.8), {}, NOW)

    text = performance.PAGE.read_text()
    assert text.startswith("# P\n\n<!-- bench -->\n\n`make bench`")
    assert text.endswith("\n<!-- /bench -->\n\nother\n")
    assert "Some CPU" in text
    assert "old" not in text
    assert "0.8 (&gt;= 0.85)" in performance.PICTURE.read_text()
