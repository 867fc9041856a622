"""`python -m benchmarks.hostile`: what a neighbour notices of hostile clients.

A platform of its own, a neighbour with a key of another organisation that asks ten times a
second, and beside it the corpus, one request after the other, and then the clients that need
many connections. First a quiet time, with which the neighbour's waits are compared; last a pause,
after which the memory is. Absolute times are those of this machine, which the senders share: on a
busy one, compare with the quiet time. Ends with 1 when an aim is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks import report
from benchmarks.hostile.case import Case
from benchmarks.hostile.clients import Client, clients
from benchmarks.hostile.corpus import corpus
from benchmarks.hostile.neighbour import CHAT, INTERVAL_S, LIVEZ
from benchmarks.hostile.send import Target, fault_of, send
from benchmarks.hostile.watch import (
    Neighbour,
    Web,
    blocks_of_loop,
    neighbour_of,
    percentile,
)
from benchmarks.platform_under_test import OwnPlatform, own_platform, wait_until_it_answers
from benchmarks.progress import show
from benchmarks.settings import REPOSITORY, TINY_CHAT

_MOST_P99_GROWN_S: Final = 0.020
_MOST_WAIT_S: Final = 0.250
_MOST_LIVEZ_S: Final = 0.050
_MOST_MEMORY_GROWN_MB: Final = 150.0
# Answers of the neighbour to each of its two requests that a case is measured with, at least.
_LEAST_ANSWERS: Final = 3
_CLIENTS: Final = "client"
_WORST: Final = 10


@dataclass(frozen=True)
class Measured:
    """One hostile request or client, and what its neighbour noticed."""

    name: str
    kind: str
    scale: int
    request_mb: float
    status: int
    fault: str | None
    took_s: float
    web_cpu_s: float
    web_grown_mb: float
    waits_s: Sequence[float]
    livez_s: Sequence[float]
    num_failed: int  # of the neighbour's requests

    @property
    def worst_s(self) -> float:
        return max(self.waits_s, default=0.0)


@dataclass(frozen=True)
class Quiet:
    """The neighbour alone."""

    waits_s: Sequence[float]
    livez_s: Sequence[float]
    memory_mb: float


def main(argv: list[str] | None = None) -> int:
    """Measure, print, write."""
    arguments = _arguments(argv)
    show("starting a platform")
    with own_platform() as platform:
        wait_until_it_answers(platform.endpoint, TINY_CHAT)
        target, key = _keys(platform)
        with neighbour_of(platform.endpoint.base_url, key) as neighbour:
            bench = _Bench(target, Web.of(platform.pid), neighbour)
            quiet = bench.quiet(arguments.quiet_s)
            measured = list(bench.run(_chosen(target, arguments), arguments.scales))
            show(f"a pause of {arguments.rest_s:.0f} s")
            time.sleep(arguments.rest_s)
            grown_mb = bench.web.memory_mb() - quiet.memory_mb
            blocks = blocks_of_loop(platform.endpoint.base_url)
    aims = list(_aims(quiet, measured, grown_mb))
    print("\n".join(_table(quiet, measured)))
    print(f"blocks of the event loop, by their longest seconds: {blocks or 'none'}")
    print("\n".join(f"{'met' if is_met else 'MISSED':>7}  {line}" for line, is_met in aims))
    found = {"grown_mb": grown_mb, "blocks": blocks}
    show(f"written to {_write(arguments, quiet, measured, found)}")
    return 0 if all(is_met for _, is_met in aims) else 1


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile")
    add = parser.add_argument
    add("--only", action="append", metavar="WORD", help="kinds or names with this word")
    add("--all", action="store_true", help="fields by every endpoint, too: five times as many")
    add("--every", type=int, default=1, metavar="N", help="only each Nth request")
    add("--scales", type=_numbers, default=(1, 2), metavar="N,N", help="of sizes (default: 1,2)")
    add("--quiet-s", type=float, default=10.0, help="the neighbour alone (default: 10)")
    add("--rest-s", type=float, default=60.0, help="before the memory is compared (default: 60)")
    add("--output", type=Path, default=REPOSITORY / "benchmarks" / "results", help="a folder")
    return parser.parse_args(argv)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _keys(platform: OwnPlatform) -> tuple[Target, str]:
    """The hostile client, and the key of its neighbour, in an organisation of its own."""
    platform.run("organization", "create", "neighbours")
    platform.run("project", "create", "quiet", "--organization", "neighbours")
    key = platform.run("key", "create", "--name", "quiet", "--project", "neighbours/quiet")
    scopes = [word for name in ("inference", "usage", "manage") for word in ("--scope", name)]
    hostile = platform.run("key", "create", "--name", "hostile", *scopes)
    time.sleep(2)  # web processes follow within a second
    return Target(platform.endpoint.base_url, hostile.split()[-1]), key.split()[-1]


def _chosen(target: Target, arguments: argparse.Namespace) -> list[Case | Client]:
    document = httpx.get(f"{target.base_url}/openapi.json").json()
    cases = [case for case in corpus(document) if arguments.all or not case.is_extra]
    found: list[Case | Client] = [*cases[:: arguments.every], *clients()]
    words = arguments.only or [""]
    return [each for each in found if any(word in f"{_kind(each)} {each.name}" for word in words)]


def _kind(each: Case | Client) -> str:
    return each.kind if isinstance(each, Case) else _CLIENTS


@dataclass(frozen=True)
class _Bench:
    """A platform under test, with its neighbour."""

    target: Target
    web: Web
    neighbour: Neighbour

    def quiet(self, duration_s: float) -> Quiet:
        show(f"quiet for {duration_s:.0f} s")
        begun_s = time.monotonic()
        time.sleep(duration_s)
        waits_s, livez_s = self._waits(begun_s)
        return Quiet(waits_s, livez_s, self.web.memory_mb())

    def run(self, chosen: Sequence[Case | Client], scales: Sequence[int]) -> Iterator[Measured]:
        """Each of them in each scale; a request whose size is constant once."""
        for number, each in enumerate(chosen):
            if number % 50 == 0:
                show(f"{number} of {len(chosen)}: {_kind(each)}")
            for scale in scales if isinstance(each, Client) or each.size > 1000 else scales[:1]:
                measured = self._measure(each, scale)
                if measured.fault or measured.worst_s > _MOST_WAIT_S:
                    show(f"  {measured.worst_s:.2f} s: {each.name}: {measured.fault or 'right'}")
                yield measured

    def _measure(self, each: Case | Client, scale: int) -> Measured:
        body_mb, status, fault = 0.0, 0, None
        begun_s = time.monotonic()
        cpu_s, memory_mb = self.web.cpu_s(), self.web.memory_mb()
        if isinstance(each, Case):
            outcome = send(self.target, each, each.size * scale)
            body_mb, status = outcome.request_bytes / 1e6, outcome.status
            fault = fault_of(each, outcome)
        else:
            each.act(self.target, scale)
        took_s = time.monotonic() - begun_s
        self.neighbour.wait_for(2 * _LEAST_ANSWERS, begun_s, timeout_s=120)
        waits_s, livez_s = self._waits(begun_s)
        answers = self.neighbour.since(begun_s)
        return Measured(
            each.name,
            _kind(each),
            scale,
            round(body_mb, 3),
            status,
            fault,
            took_s,
            self.web.cpu_s() - cpu_s,
            self.web.memory_mb() - memory_mb,
            waits_s,
            livez_s,
            sum(answer.status != 200 for answer in answers),
        )

    def _waits(self, begun_s: float) -> tuple[list[float], list[float]]:
        """Those of the neighbour's chats and of its looks at `/livez` that were due since."""
        begun_s -= INTERVAL_S
        chats, looks = (self.neighbour.since(begun_s, what) for what in (CHAT, LIVEZ))
        return [each.wait_s for each in chats], [each.wait_s for each in looks]


# -- Figures ------------------------------------------------------------------------------


def _all(measured: Sequence[Measured], name: str) -> list[float]:
    return [value for each in measured for value in getattr(each, name)]


def _table(quiet: Quiet, measured: Sequence[Measured]) -> Iterator[str]:
    """A row for each kind, and the requests that the neighbour noticed most."""
    head = ("kind", "sent", "wrong", "p50", "p99", "worst", "livez", "cpu s", "MB")
    yield _row(head)
    yield _row(("quiet", "", "", *_times(quiet.waits_s, quiet.livez_s), "", ""))
    for kind in dict.fromkeys(each.kind for each in measured):
        own = [each for each in measured if each.kind == kind]
        times = _times(_all(own, "waits_s"), _all(own, "livez_s"))
        most = f"{max(each.web_cpu_s for each in own):.1f}"
        wrong = str(sum(each.fault is not None for each in own))
        grown = f"{max(each.web_grown_mb for each in own):.0f}"
        yield _row((kind, str(len(own)), wrong, *times, most, grown))
    yield "\nmost noticed: milliseconds, CPU seconds of the web process"
    for each in sorted(measured, key=lambda each: each.worst_s)[: -_WORST - 1 : -1]:
        yield f"{each.worst_s * 1e3:8.0f} {each.web_cpu_s:6.1f}  {each.name} (x{each.scale})"
    yield ""


def _times(waits_s: Sequence[float], livez_s: Sequence[float]) -> tuple[str, ...]:
    """Milliseconds of chats at p50, p99 and at most, and of `/livez` at most."""
    chats = percentile(waits_s, 0.5), percentile(waits_s, 0.99), max(waits_s, default=0.0)
    return tuple(f"{value * 1e3:.0f}" for value in (*chats, max(livez_s, default=0.0)))


def _row(cells: Sequence[str]) -> str:
    return f"{cells[0]:24}" + "".join(f"{cell:>8}" for cell in cells[1:])


def _aims(
    quiet: Quiet, measured: Sequence[Measured], grown_mb: float
) -> Iterator[tuple[str, bool]]:
    waits_s, livez_s = _all(measured, "waits_s"), _all(measured, "livez_s")
    grown_s = percentile(waits_s, 0.99) - percentile(quiet.waits_s, 0.99)
    worst_s, livez_worst_s = max(waits_s, default=0.0), max(livez_s, default=0.0)
    num_failed = sum(each.num_failed for each in measured)
    num_wrong = sum(each.fault is not None for each in measured)
    yield f"p99 grows by {grown_s * 1e3:.0f} ms, at most 20", grown_s <= _MOST_P99_GROWN_S
    yield f"the longest wait is {worst_s * 1e3:.0f} ms, at most 250", worst_s <= _MOST_WAIT_S
    is_live = livez_worst_s <= _MOST_LIVEZ_S
    yield f"/livez answers within {livez_worst_s * 1e3:.0f} ms, at most 50", is_live
    is_small = grown_mb <= _MOST_MEMORY_GROWN_MB
    yield f"memory grows by {grown_mb:.0f} MB, at most 150", is_small
    yield f"{num_failed} requests of the neighbour fail, at most 0", num_failed == 0
    yield f"{num_wrong} answers are wrong, at most 0", num_wrong == 0


def _write(
    arguments: argparse.Namespace,
    quiet: Quiet,
    measured: Sequence[Measured],
    found: Mapping[str, Any],
) -> Path:
    now = datetime.now(UTC)
    content: dict[str, Any] = {
        "settings": {name: str(value) for name, value in vars(arguments).items()},
        "machine": report.machine(),
        "quiet": asdict(quiet),
        **found,
        "measured": [asdict(each) for each in measured],
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    file: Path = arguments.output / f"hostile-{now:%Y-%m-%dT%H-%M-%S}.json"
    file.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return file


if __name__ == "__main__":
    sys.exit(main())
