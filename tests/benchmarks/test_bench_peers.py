"""Peers start, stand still while others are measured, and are named when they are absent."""

import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from benchmarks import peer_report, performance
from benchmarks.compare import Spread
from benchmarks.machine import REPOSITORY, Calm
from benchmarks.peer_report import Gateway, PeerReport, Point
from benchmarks.peer_servers import Absent, Peers, openarc
from tests.benchmarks.test_bench_report import MACHINE, speed
from tests.tables import table

# Answers whatever it is asked.
ANSWERS = f'shift 2\nexec {sys.executable} -m benchmarks.scripted_engine "$@"'


def checkout(folder: Path, script: str) -> Peers:
    """OpenArc's folder, with a script in place of its program."""
    program = folder / ".venv" / "bin" / "openarc"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nexport PYTHONPATH={os.pathsep.join(sys.path)}\n{script}\n")
    program.chmod(0o755)
    return Peers(folder, folder, folder, 1, 1, folder)


def test_a_peer_stands_still_but_while_it_is_awake_and_ends(tmp_path: Path) -> None:
    with openarc(checkout(tmp_path, ANSWERS)) as running:
        process = psutil.Process(running.process.pid)
        with running.awake():
            assert process.status() != psutil.STATUS_STOPPED
        while process.status() != psutil.STATUS_STOPPED:
            pass
    assert not process.is_running()


@table(
    "script, reason",
    [(None, "--openarc FOLDER"), ("echo the disk is full; exit 1", "the disk is full")],
)
def test_a_peer_that_does_not_start_has_its_reason(
    script: str | None, reason: str, tmp_path: Path
) -> None:
    peers = checkout(tmp_path / f"{script is None}", script or "")
    if script is None:
        peers = replace(peers, openarc=None)
    with pytest.raises(Absent, match=reason), openarc(peers):
        pass


def point(side: str, ratio: float) -> Point:
    return Point(side, 8, Spread(ratio, ratio, ratio), 1.0, speed(100.0))


MEASURED = PeerReport(
    settings={"users": (8,)},
    machine=MACHINE,
    versions={"llama.cpp": "1"},
    first_words={"llama.cpp": "7 of 8"},
    absent={"OpenArc": "no folder"},
    points=(point("Vinery", 1.0), point("bare loop", 0.98), point("llama.cpp", 2.5)),
    gateways=(
        Gateway("Vinery with keys and limits", 900.0, None, 2.0, 0.2),
        Gateway("LiteLLM before a scripted server", 90.0, Spread(10.0, 9.0, 11.0), 9.0, 8.0),
    ),
    calms=(Calm("servers", 120.0, 0.4),),
)


def test_a_report_has_each_ratio_beside_its_aim_and_names_who_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = tmp_path / "README.md", tmp_path / "performance.md"
    monkeypatch.setattr(peer_report, "README", pages[0])
    monkeypatch.setattr(performance, "PAGE", pages[1])
    monkeypatch.setattr(peer_report, "PICTURE", tmp_path / "peers.svg")
    for page in pages:
        page.write_text("<!-- peers --><!-- /peers -->")
    before = {"llama.cpp, 8 at once: tokens/s of Vinery by its own": 2.0}

    peer_report.publish(MEASURED, before, datetime(2026, 3, 4, tzinfo=UTC))

    readme, text = (page.read_text() for page in pages)
    assert "| llama.cpp | 2.50 | - |" in readme
    assert "| LiteLLM before a scripted server | - | 10.00 |" in readme
    assert "llama.cpp, 8 at once: tokens/s of Vinery by its own | >= 1 | 2.5 | 2 | yes |" in text
    assert "OpenArc, 8 at once: tokens/s of Vinery by its own | >= 1 | - | - | not measured" in text
    assert "servers: other programs used 40% of the machine" in text
    assert all("OpenArc was not measured: no folder" in each for each in (readme, text))
    assert "2.5 (&gt;= 1)" in peer_report.PICTURE.read_text()


def test_the_pages_have_room_for_what_is_measured() -> None:
    assert "<!-- peers -->" in (REPOSITORY / "README.md").read_text()
    assert "<!-- bench -->" in (REPOSITORY / "docs" / "performance.md").read_text()
