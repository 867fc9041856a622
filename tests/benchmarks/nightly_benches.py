"""Each benchmark with small numbers, so that none is broken when its figures are wanted."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as bench
from benchmarks import peers
from benchmarks.machine import Calm
from benchmarks.peer_servers import Absent, Running
from tests import own_postgres
from tests.platform_ import scripts


def are_points_plausible(points: list[dict[str, Any]]) -> bool:
    sides = [point[side] for point in points for side in ("bare", "server")]
    return all(each["num_tokens"] > 0 and each["tokens_per_s"] > 0 for each in sides) and all(
        point["same_texts"] > 0 and point["throughput_ratio"]["median"] > 0 for point in points
    )


def is_server_plausible(results: list[dict[str, Any]]) -> bool:
    (result,) = results
    return (
        [each["num_streams"] for each in result["points"]] == [1, 2]
        and are_points_plausible(result["points"])
        and result["first_token"]["server_p50_ms"] > 0
    )


def is_speculation_plausible(points: list[dict[str, Any]]) -> bool:
    num_accepted = {each["way"]: each["num_accepted"] for each in points}
    return (
        num_accepted.keys() == {"draft model", "prompt lookup", "lookup of one"}
        and num_accepted["draft model"] > 0  # a lookup in short answers may find nothing
        and all(each["num_accepted"] <= each["num_proposed"] for each in points)
        and all(each["speed"]["median"] > 0 for each in points)
        and all(each["same_texts"] == 1 for each in points if each["kind"] == "chat")
    )


def are_crowds_plausible(result: dict[str, Any]) -> bool:
    crowds = result["crowds"]
    return (
        bool(crowds)
        and all(each["num_refused"] + each["num_failed"] == 0 for each in crowds)
        and all(min(each["tokens_per_s"], each["bare_tokens_per_s"]) > 0 for each in crowds)
        and [each["num_refused"] for each in result["neighbours"]] == [0, 0]
    )


PARTS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "server": ("results", is_server_plausible),
    "speculation": ("speculation", is_speculation_plausible),
    "crowds": ("crowds", are_crowds_plausible),
}


@pytest.mark.system
@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_the_benchmark_has_plausible_figures(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "wait_until_calm", lambda part: Calm(part, 0.0, 0.0))
    # A crowd of more than run at once.
    numbers = "--streams 1,2 --rounds 1 --tokens 8 --first-token-requests 3 --crowd 128 --chats 2"
    words = f"--quick --only {part} --models tiny-chat {numbers} --output {tmp_path}"

    assert bench.main(words.split()) == 0

    (file,) = tmp_path.glob("*.json")
    name, is_plausible = PARTS[part]
    figures = json.loads(file.read_text(encoding="utf-8"))[name]
    assert is_plausible(figures), figures


def run(module: str, *words: str) -> tuple[int, str]:
    """How a benchmark ended, and what it printed. It ends with 1 when an aim is missed, as on a
    busy machine, and after a fault."""
    # The user that runs PostgreSQL has no access to the folder of these tests.
    ended = scripts.new_python("-m", f"benchmarks.{module}", *words, environment={"TMPDIR": "/tmp"})
    assert "Traceback" not in ended.stderr, ended.stderr[-4000:]
    return ended.returncode, ended.stdout + ended.stderr


def by_database(printed: str, title: str) -> Iterator[str]:
    """The figures of each database that was measured."""
    for name in ("sqlite", *(() if "PostgreSQL is not installed" in printed else ("postgresql",))):
        yield printed.partition(f"\n{name}, {title}\n")[2]


@pytest.mark.system
def test_reports_are_measured_over_made_up_usage_that_vinery_would_add_up_alike() -> None:
    _, printed = run("usage_reports", "--requests", "20000", "--repeats", "0")

    for figures in by_database(printed, "20,000 requests, 62 days"):
        (num_rows,) = re.findall(r"verify a day of ([\d,]+) requests", figures)[:1]
        assert 100 < int(num_rows.replace(",", "")) < 1500, printed
        assert re.findall(r"export as \w+ +([\d,]+) rows/s", figures)[0] != "0", printed


@pytest.mark.system
def test_stored_objects_are_measured_in_each_database() -> None:
    _, printed = run("stored_objects", "--items", "20000")

    for figures in by_database(printed, "20,000 items"):
        assert len(re.findall(r"^(?:.+) +[\d.]+ ms", figures, re.M)) > 80, printed


@pytest.mark.system
def test_the_cost_of_accounts_is_measured() -> None:
    words = ("--pairs", "1", "--rounds", "1", "--requests", "200", "--connections", "4")

    _, printed = run("gateway", *words)

    (on, off) = re.findall(r"accounts on: (\d+), off: (\d+)", printed)[0]
    assert min(int(on), int(off)) > 0, printed
    assert re.search(r"an aim is missed|the aims are met", printed), printed


@pytest.mark.system
def test_the_processor_time_of_the_web_process_is_measured() -> None:
    words = ("--rounds", "1", "--streams", "2", "--tokens", "8")

    status, printed = run("web_costs", *words)

    assert status == 0, printed
    for name in ("request", "token"):
        assert re.search(rf"us for a {name}: -?[\d.]+$", printed, re.MULTILINE), printed


@pytest.mark.system
def test_the_tokens_of_one_two_and_four_hosts_are_measured() -> None:
    if own_postgres.folder_of_programs() is None:
        pytest.skip("PostgreSQL is not installed")
    _, printed = run("hosts", "--rounds", "1", "--seconds", "1", "--slots", "2")

    for number in (1, 2, 4):
        assert re.search(rf"^\| {number} \| [1-9]\d* \|", printed, re.MULTILINE), printed
    assert re.search(r"an aim is missed|the aims are met", printed), printed


@pytest.mark.system
def test_first_tokens_are_measured_beside_background_responses() -> None:
    words = ("--background", "20", "--rounds", "1", "--chats", "10")

    _, printed = run("low_tier", *words)

    assert float(re.findall(r"^ratio: ([\d.]+)", printed, re.MULTILINE)[0]) > 0, printed
    assert re.search(r"background tokens/s meanwhile: [1-9]", printed), printed


@pytest.mark.system
def test_gaps_of_streams_are_measured_beside_a_long_prompt() -> None:
    sizes = ("--streams", "2", "--tokens", "48", "--words", "1200", "--rounds", "1")

    _, printed = run("long_prompts", "--folder", "models/tiny-chat", "--after", "0", *sizes)

    for name in ("largest gap", "prompt"):
        assert re.search(rf"^{name}: .* ratio [\d.]+$", printed, re.MULTILINE), printed


@pytest.mark.system
def test_all_streams_survive_a_killed_engine_and_the_ledger_agrees() -> None:
    status, printed = run("kills", "--trials", "1", "--what", "killed", "--roles", "engine", "web")

    (engine,) = re.findall(r"\| engine \| killed \| 16 \| (.*?) \|.*\| 0 \|", printed)
    assert engine == "same text 16", printed
    assert re.search(r"\| web \| killed \| 16 \|.*\| 0 \|", printed), printed
    assert status == 0, printed


@contextmanager
def absent(*_: object) -> Iterator[Running]:
    raise Absent("it is not installed")
    yield


@pytest.mark.system
def test_vinery_is_measured_beside_its_peers_and_an_absent_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(
        bench.HALF_BILLION_SHAPE, vocab_size=3072, intermediate_size=1024, num_hidden_layers=2
    )
    for module in (bench, peers):
        monkeypatch.setattr(module, "HALF_BILLION_SHAPE", small)
    monkeypatch.setattr(peers, "wait_until_calm", lambda part: Calm(part, 0.0, 0.0))
    monkeypatch.setattr(peers, "litellm", absent)
    words = f"--quick --users 1,2 --tokens 8 --cache {tmp_path / 'cache'} --output {tmp_path}"

    assert peers.main(words.split(), {"llama.cpp": absent}) == 0

    (file,) = tmp_path.glob("peers-*.json")
    figures = json.loads(file.read_text(encoding="utf-8"))
    assert figures["absent"] == dict.fromkeys(("llama.cpp", "LiteLLM"), "it is not installed")
    measured = [(each["num_users"], each["side"]) for each in figures["points"]]
    assert measured == [(users, side) for users in (1, 2) for side in ("Vinery", "bare loop")]
    assert all(each["speed"]["num_tokens"] == each["num_users"] * 8 for each in figures["points"])
    assert all(each["requests_per_core_s"] > 0 for each in figures["gateways"])
    assert "llama.cpp, 2 at once: tokens/s of Vinery by its own" in {
        each["what"] for each in figures["aims"] if each["measured"] is None
    }
