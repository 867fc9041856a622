"""`python -m benchmarks.peers`: Vinery beside other servers, and beside a proxy.

One model with random weights is written for all engines, with exactly the same weights. All servers
get the same streamed chats in turn, with as many threads; while one is measured, the others are
stopped. Ratios are taken round by round. A peer that does not install, start, answer alike or
answer at all is named with the reason, and the others are measured all the same.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import machine, peer_report, report
from benchmarks.__main__ import HALF_BILLION_SHAPE, half_billion
from benchmarks.bare import BareEngine
from benchmarks.compare import Spread
from benchmarks.gateway import Home, Server, median_times_ms, requests_per_core_s
from benchmarks.load import BadResponse, ServedModel
from benchmarks.machine import WebCpu, show, wait_until_calm
from benchmarks.measures import Run, medians, num_same_texts, summary
from benchmarks.peer_report import BARE, GATEWAYS, PROXIES, VINERY, Gateway, PeerReport, Point
from benchmarks.peer_servers import STARTS, Absent, Peers, Starts, litellm, scripted
from benchmarks.peer_weights import write_checkpoint
from benchmarks.platform_under_test import PlatformFailed, own_platform
from benchmarks.prompts import Prompt, PromptSource, rambling
from benchmarks.settings import HALF_BILLION, RESULTS, default_cache, numbers
from tests.random_models.folder import write_folder
from vinery_serving.engine.options import EngineOptions

_NOT_MEASURED: Final = (Absent, BadResponse, OSError)
_NUM_FIRST: Final = 8  # answers whose first words are compared
_WARM_UP_TOKENS: Final = 4
_PROMPT_WORDS: Final = 55  # 64 tokens with those of the template
_CONNECTIONS: Final = 32
# Name: full, quick.
_NUMBERS: Final = {"rounds": (3, 1), "tokens": (128, 16), "requests": (2000, 200)}


@dataclass(frozen=True)
class Side:
    """A server, or the bare loop."""

    name: str
    version: str
    run: Callable[[list[Prompt], int], Run]
    awake: Callable[[], AbstractContextManager[None]] = nullcontext

    def ask(self, prompts: list[Prompt], num_tokens: int) -> Run:
        """Answer all but the first, which wakes the side. Raises one of _NOT_MEASURED, also for
        answers of another length."""
        with self.awake():
            self.run(prompts[:1], 1)
            run = self.run(prompts[1:], num_tokens)
        for stream, prompt in zip(run.streams, prompts[1:], strict=True):
            lengths = stream.num_prompt_tokens, stream.num_tokens
            if lengths != (len(prompt.ids), num_tokens):
                wanted = f"{len(prompt.ids)} and {num_tokens}"
                raise BadResponse(f"it reads and answers {lengths} tokens, not {wanted}")
        return run


@dataclass
class PeerBench:
    """Measures all sides that can be measured."""

    settings: argparse.Namespace
    prompts: PromptSource
    sides: list[Side] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    first_words: dict[str, str] = field(default_factory=dict)

    def start(self, peers: Peers, starts: Starts, stack: ExitStack) -> None:
        """Start Vinery, the bare loop and the peers."""
        options = EngineOptions(num_threads=peers.num_threads)
        platform = stack.enter_context(own_platform())
        platform.serve(HALF_BILLION, peers.graph, {"num_threads": peers.num_threads})
        server = stack.enter_context(ServedModel(platform.endpoint, HALF_BILLION))
        bare = stack.enter_context(BareEngine(peers.graph, options))
        self.sides += [Side(VINERY, "", server.run), Side(BARE, "", bare.run)]
        for name, start in starts.items():
            try:
                running = stack.enter_context(start(peers))
                served = stack.enter_context(ServedModel(running.endpoint, running.model))
                self._add(Side(name, running.version, served.run, running.awake))
            except _NOT_MEASURED as error:
                self._leave_out(name, error)

    def measure(self, num_users: int) -> Iterator[Point]:
        """All sides with so many users at once."""
        runs: dict[str, list[Run]] = {side.name: [] for side in self.sides}
        for number in range(-1, self.settings.rounds):  # the first warms up
            prompts = self.prompts.take(1 + num_users)
            num_tokens = self.settings.tokens if number >= 0 else _WARM_UP_TOKENS
            at = number % len(self.sides)
            for side in self.sides[at:] + self.sides[:at]:
                try:
                    run = side.ask(prompts, num_tokens)
                except _NOT_MEASURED as error:
                    if side.name in (VINERY, BARE):
                        raise
                    self._leave_out(side.name, error)
                    continue
                if number >= 0:
                    runs[side.name].append(run)
                    speed = run.num_tokens / run.duration_s
                    show(f"  {num_users} users, round {number + 1}: {side.name} {speed:.0f} tok/s")
        for side in self.sides:
            yield _point(side.name, num_users, runs[VINERY], runs[side.name])

    def _add(self, side: Side) -> None:
        """Take the side if it has the weights of the bare loop: rounding changes some first words,
        other weights all. Raises one of _NOT_MEASURED."""
        prompts = self.prompts.take(1 + _NUM_FIRST)
        runs = [each.ask(prompts, _WARM_UP_TOKENS) for each in (self.sides[1], side)]
        words = [[stream.text.split()[:1] for stream in run.streams] for run in runs]
        num_same = sum(one == other for one, other in zip(*words, strict=True))
        if num_same < _NUM_FIRST / 4:
            raise Absent(f"{num_same} of {_NUM_FIRST} answers begin like those of the bare loop")
        self.sides.append(side)
        self.first_words[side.name] = f"{num_same} of {_NUM_FIRST}"

    def _leave_out(self, name: str, error: Exception) -> None:
        self.absent[name] = _line(error)
        self.sides = [side for side in self.sides if side.name != name]
        show(f"{name}: not measured: {self.absent[name]}")


def main(argv: list[str] | None = None, starts: Starts = STARTS) -> int:
    """Measure, print, write."""
    settings = _settings(argv)
    folder, facts = settings.cache / "peers", machine.facts()
    folder.mkdir(parents=True, exist_ok=True)
    graph = half_billion(settings.cache)
    peers = Peers(
        folder=folder,
        model=_checkpoint(graph),
        graph=graph,
        num_threads=settings.threads,
        most_users=max(*settings.users, _NUM_FIRST),
        openarc=settings.openarc,
    )
    calms, now = [], datetime.now(UTC)
    prompts = PromptSource(graph, rambling(_PROMPT_WORDS))
    bench = PeerBench(settings, prompts)
    with ExitStack() as stack:
        bench.start(peers, starts, stack)
        calms.append(wait_until_calm("servers"))
        points = tuple(point for users in settings.users for point in bench.measure(users))
    calms.append(wait_until_calm("gateways"))
    gateways: tuple[Gateway, ...] = ()
    try:
        gateways = tuple(_gateways(folder, settings, bench.absent))
    except (*_NOT_MEASURED, PlatformFailed) as error:
        bench.absent["LiteLLM"] = _line(error)
    finished = PeerReport(
        settings={"users": settings.users} | {name: vars(settings)[name] for name in _NUMBERS},
        machine=facts,
        versions={side.name: side.version for side in bench.sides if side.version},
        first_words=bench.first_words,
        absent=bench.absent,
        points=points,
        gateways=gateways,
        calms=tuple(calms),
    )
    earlier = report.earlier(settings.output)
    file = report.write(finished.document(now), settings.output, now, "peers-")
    print("\n".join(peer_report.section(finished, earlier, now)))
    show(f"written to {file}")
    if settings.draw:
        peer_report.publish(finished, earlier, now)
    return 0


def _checkpoint(graph: Path) -> Path:
    """The folder with the same weights for other engines, written (1.5 GB) when it is not there."""
    folder = graph.with_name(f"{graph.name}-checkpoint")
    return folder if folder.exists() else write_folder(HALF_BILLION_SHAPE, folder, write_checkpoint)


def _gateways(
    folder: Path, settings: argparse.Namespace, absent: dict[str, str]
) -> Iterator[Gateway]:
    """Vinery with and without accounts, and LiteLLM before Vinery and a scripted server."""
    with tempfile.TemporaryDirectory(prefix="vinery-bench-") as scratch, ExitStack() as stack:
        # The last is asked by the proxy alone: processor time is that of a whole round.
        homes = [Home(Path(scratch) / name, name == "on") for name in ("on", "off", "behind")]
        for home in homes:
            home.prepare()
        *servers, behind_proxy = [stack.enter_context(home.serve()) for home in homes]
        alone = stack.enter_context(scripted()).endpoint
        servers.append(Server(alone, WebCpu(alone.base_url)))
        try:
            for behind, urls in ((alone, ()), (behind_proxy.endpoint, (behind_proxy.endpoint,))):
                proxy = stack.enter_context(litellm(folder, homes[0].path, behind)).endpoint
                cpu = WebCpu(proxy.base_url, *(each.base_url for each in urls))
                servers.append(Server(proxy, cpu))
        except _NOT_MEASURED as error:
            absent["LiteLLM"] = _line(error)
        with asyncio.Runner() as runner:
            rates, times_ms = runner.run(_ask_gateways(servers, settings))
    for number, name in enumerate(GATEWAYS[: len(servers)]):
        base = {0: 1, 3: 2, 4: 1}.get(number)  # what the gateway adds its time to
        yield Gateway(
            name,
            requests_per_core_s=median(each[number] for each in rates),
            ratio=Spread.of([r[0] / r[number] for r in rates]) if name in PROXIES else None,
            p50_ms=times_ms[number],
            added_ms=None if base is None else times_ms[number] - times_ms[base],
        )


async def _ask_gateways(
    servers: Sequence[Server], settings: argparse.Namespace
) -> tuple[list[list[float]], list[float]]:
    rates = [
        await requests_per_core_s(servers, _CONNECTIONS, settings.requests)
        for _ in range(1 + settings.rounds)  # the first warms up
    ]
    return rates[1:], await median_times_ms(servers, settings.requests // 2)


def _point(name: str, num_users: int, vinery: list[Run], runs: list[Run]) -> Point:
    pairs = list(zip(vinery, runs, strict=True))
    speeds = [[run.num_tokens / run.duration_s for run in pair] for pair in pairs]
    return Point(
        name,
        num_users,
        ratio=Spread.of([one / other for one, other in speeds]),
        same_texts=sum(num_same_texts(*pair) for pair in pairs) / (num_users * len(runs)),
        speed=medians([summary(run) for run in runs]),
    )


def _line(error: Exception) -> str:
    return " ".join(f"{error or type(error).__name__}".split())[:700]


def _settings(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    add = parser.add_argument
    add("--quick", action="store_true", help="small numbers, written to build/bench")
    add("--users", type=numbers, metavar="N,N", help="at once (default: 1,8,32; quick: 1,4)")
    for name, (full, quick) in _NUMBERS.items():
        add(f"--{name.replace('_', '-')}", type=int, help=f"(default: {full}; quick: {quick})")
    add("--openarc", type=Path, metavar="FOLDER", help="a checkout with its .venv")
    add("--threads", type=int, default=os.cpu_count() or 1, metavar="N", help="of each server")
    add("--cache", type=Path, default=default_cache(), help="of models and peers")
    add("--output", type=Path, help="folder of the JSON file")
    add("--draw", action="store_true", help="write docs/performance.md and README.md, too")
    settings = parser.parse_args(argv)
    defaults: dict[str, object] = {name: each[settings.quick] for name, each in _NUMBERS.items()}
    defaults["users"] = (1, 4) if settings.quick else (1, 8, 32)
    defaults["output"] = RESULTS[settings.quick]
    for name, value in defaults.items():
        setattr(settings, name, vars(settings)[name] or value)
    return settings


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # end the servers, too
    sys.exit(main())
