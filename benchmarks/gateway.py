"""`python -m benchmarks.gateway`: what keys, limits and accounts cost a request.

Two web processes run side by side, each with a home and a scripted engine of its own that
answers at once: one with a key, limits of several scopes and windows that never bind, and one
with VINERY_AUTH=off, to which everybody may speak. Both write usage. Rounds alternate between
them, and ratios are taken round by round, because absolute figures depend on the machine.

Throughput is requests by the seconds of CPU that the web process used, so that it is told for
one core whatever else runs. Latency is that of requests one after the other, asked of both
servers in turn. Ends with 1 when an aim is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from benchmarks.compare import Spread
from benchmarks.cpu import WebCpu
from benchmarks.load import Endpoint, connect
from benchmarks.platform_under_test import PlatformFailed, wait_until_it_answers
from benchmarks.progress import tell
from benchmarks.settings import TINY_CHAT
from serving.transport.address import engine_socket

_LEAST_REQUESTS_PER_CORE_S: Final = 800.0
_MOST_THROUGHPUT_LOST: Final = 0.10
_MOST_ADDED_MS: Final = 0.2

_REPOSITORY: Final = Path(__file__).resolve().parents[1]
_BODY: Final = {
    "model": TINY_CHAT,
    "messages": [{"role": "user", "content": "Say yes or no."}],
    "max_tokens": 1,
}
# Never reached: a refusal would be cheaper than an answer.
_LIMITS: Final = (
    *product(("--platform", "--project default"), ("requests minute", "tokens minute")),
    ("--project default", "tokens day"),
    ("--user admin", "tokens month"),
    ("--platform", "concurrency none"),
)
_AMOUNT: Final = "100000000"
_START_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class Server:
    """A web process that is ready."""

    endpoint: Endpoint
    cpu: WebCpu

    @property
    def request(self) -> bytes:
        return self.endpoint.post("/v1/chat/completions", _BODY)


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    arguments = _arguments(argv)
    with tempfile.TemporaryDirectory(prefix="vinery-bench-") as folder, ExitStack() as stack:
        on = stack.enter_context(_server(Path(folder) / "on", with_accounts=True))
        off = stack.enter_context(_server(Path(folder) / "off", with_accounts=False))
        with asyncio.Runner() as runner:
            return runner.run(_measure(on, off, arguments))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=2000, help="of a round and server")
    parser.add_argument("--connections", type=int, default=32)
    return parser.parse_args(argv)


async def _measure(on: Server, off: Server, arguments: argparse.Namespace) -> int:
    for server in (on, off):  # warm up
        await _requests_per_core_s(server, arguments.connections, arguments.requests)
    rates_on: list[float] = []
    rates_off: list[float] = []
    for number in range(arguments.rounds):
        # Whoever comes second meets a warmer machine.
        for server in (on, off) if number % 2 else (off, on):
            rate = await _requests_per_core_s(server, arguments.connections, arguments.requests)
            (rates_on if server is on else rates_off).append(rate)
    added_ms, off_ms = await _added_ms(on, off, arguments.requests)
    ratio = Spread.of([a / b for a, b in zip(rates_on, rates_off, strict=True)])
    rate_on = median(rates_on)
    tell(f"requests/s per core, accounts on: {rate_on:.0f}, off: {median(rates_off):.0f}")
    tell(f"ratio on/off: {ratio.median:.3f} ({ratio.lowest:.3f} to {ratio.highest:.3f})")
    tell(f"added at p50: {added_ms:.3f} ms, to {off_ms:.3f} ms with accounts off")
    is_met = (
        rate_on >= _LEAST_REQUESTS_PER_CORE_S
        and ratio.median >= 1 - _MOST_THROUGHPUT_LOST
        and added_ms <= _MOST_ADDED_MS
    )
    tell("the aims are met" if is_met else "an aim is missed")
    return 0 if is_met else 1


async def _requests_per_core_s(server: Server, num_connections: int, num_requests: int) -> float:
    left = iter(range(num_requests))
    connections = [await connect(server.endpoint) for _ in range(num_connections)]

    async def ask_again_and_again(number: int) -> None:
        for _ in left:
            await connections[number].ask(server.request)

    began_s = server.cpu.used_s()
    await asyncio.gather(*map(ask_again_and_again, range(num_connections)))
    ended_s = server.cpu.used_s()
    for connection in connections:
        connection.close()
    if began_s is None or ended_s is None:
        raise PlatformFailed("the web process is gone")
    return num_requests / (ended_s - began_s)


async def _added_ms(on: Server, off: Server, num_requests: int) -> tuple[float, float]:
    """How much longer a request takes at p50 with accounts, and what it takes without."""
    connections = [(server, await connect(server.endpoint)) for server in (on, off)]
    times_ms: dict[bool, list[float]] = {True: [], False: []}
    for number in range(num_requests):
        for server, connection in connections if number % 2 else reversed(connections):
            began_s = time.perf_counter()
            await connection.ask(server.request)
            times_ms[server is on].append((time.perf_counter() - began_s) * 1e3)
    for _, connection in connections:
        connection.close()
    return median(times_ms[True]) - median(times_ms[False]), median(times_ms[False])


@contextmanager
def _server(home: Path, *, with_accounts: bool) -> Iterator[Server]:
    """A web process and its engine. Raises PlatformFailed."""
    environment = {
        **os.environ,
        "VINERY_HOME": str(home),
        "VINERY_PORT": str(_free_port()),
        "VINERY_AUTH": "on" if with_accounts else "off",
        "PYTHONPATH": f"{_REPOSITORY}{os.pathsep}{_REPOSITORY / 'platform'}",
    }
    _vinery(environment, "prepare")
    for scope, what in _LIMITS if with_accounts else ():
        metric, window = what.split()
        words = ("--metric", metric, "--window", window, "--amount", _AMOUNT)
        _vinery(environment, "limit", "set", *scope.split(), *words)
    known = json.loads((home / "bootstrap.json").read_text(encoding="utf-8"))
    # The first model of a home is the reference model.
    engine = (sys.executable, "-m", "benchmarks.scripted_engine", engine_socket(home / "run", 1))
    web = (sys.executable, "-m", "vinery.cli", "web")
    with (home / "web.log").open("wb") as log, ExitStack() as stack:
        for command in (engine, web):
            process = subprocess.Popen(
                command, env=environment, cwd=_REPOSITORY, stdout=log, stderr=log
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        url = f"http://127.0.0.1:{environment['VINERY_PORT']}"
        endpoint = Endpoint(url, known["api_key"])
        _wait_until_ready(url)
        wait_until_it_answers(endpoint, TINY_CHAT)
        if with_accounts:
            _check_limits(endpoint)
        yield Server(endpoint, WebCpu(url))


def _check_limits(endpoint: Endpoint) -> None:
    """Whether they are counted: otherwise nothing would be measured."""
    headers = {"authorization": f"Bearer {endpoint.api_key}"}
    url = f"{endpoint.base_url}/v1/chat/completions"
    answer = httpx.post(url, headers=headers, json=_BODY, timeout=30)
    if answer.status_code != 200 or "x-ratelimit-limit-tokens" not in answer.headers:
        raise PlatformFailed(f"requests are not limited: {answer.status_code} {answer.headers}")


def _vinery(environment: dict[str, str], *words: str) -> None:
    command = [sys.executable, "-m", "vinery.cli", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PlatformFailed(f"vinery {' '.join(words)}: {done.stderr.strip()}")


def _wait_until_ready(url: str) -> None:
    give_up_at = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < give_up_at:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise PlatformFailed("the web process is not ready")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
