"""`python -m benchmarks.gateway`: what keys, limits and accounts cost a request.

Two web processes run side by side, each with its own home and a scripted engine that answers at
once. The first has a key, and limits of several scopes and windows that never bind; the second has
VINERY_AUTH=off, and needs no key. Both write usage. Within a round both are asked in turns of a
fraction of a second, and ratios are taken round by round, because the speed of a machine changes
from one second to the next. Two processes of the same code always differ by some percent, so there
are several such pairs.

Throughput is requests by the web process's CPU seconds in a round: a figure per core, independent
of other load. The work of a process while the other is asked, such as looking for changed keys,
counts too. Latency is of requests one after the other, asked of both servers in turn. Ends with 1
when an aim is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from benchmarks.compare import Spread
from benchmarks.load import Connection, Endpoint, connect
from benchmarks.machine import REPOSITORY, WebCpu, free_port, show
from benchmarks.platform_under_test import PlatformFailed, wait_until_it_answers
from benchmarks.settings import TINY_CHAT
from vinery_serving.transport.sockets import EngineAddress, engine_socket, settings_key

_LEAST_REQUESTS_PER_CORE_S: Final = 800.0
_MOST_THROUGHPUT_LOST: Final = 0.10
_MOST_ADDED_MS: Final = 0.2

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
_NUM_AT_A_TURN: Final = 200  # requests


@dataclass(frozen=True, eq=False)
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
    with tempfile.TemporaryDirectory(prefix="vinery-bench-") as folder:
        homes = Home(Path(folder) / "on", True), Home(Path(folder) / "off", False)
        for home in homes:
            home.prepare()
        pairs = [_measure_pair(homes, arguments) for _ in range(arguments.pairs)]
    return _show(pairs)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway")
    parser.add_argument("--pairs", type=int, default=8, help="of fresh processes")
    parser.add_argument("--rounds", type=int, default=2, help="with each pair")
    parser.add_argument("--requests", type=int, default=2000, help="of each server in a round")
    parser.add_argument("--connections", type=int, default=32)
    return parser.parse_args(argv)


@dataclass(frozen=True)
class _Pair:
    """The measurements of two processes."""

    rates: Sequence[Sequence[float]]  # requests by second of a core, on and off, by round
    times_ms: Sequence[float]  # at p50, on and off


def _measure_pair(homes: Sequence[Home], arguments: argparse.Namespace) -> _Pair:
    with ExitStack() as stack:
        servers = [stack.enter_context(home.serve()) for home in homes]
        with asyncio.Runner() as runner:
            return runner.run(_measure(servers, arguments))


async def _measure(servers: Sequence[Server], arguments: argparse.Namespace) -> _Pair:
    rounds = [
        await requests_per_core_s(servers, arguments.connections, arguments.requests)
        for _ in range(1 + arguments.rounds)
    ]
    # The first is to warm up.
    return _Pair(rounds[1:], await median_times_ms(servers, arguments.requests))


def _show(pairs: Sequence[_Pair]) -> int:
    rates_on, rates_off = zip(*chain.from_iterable(pair.rates for pair in pairs), strict=True)
    ratio = Spread.of([on / off for on, off in zip(rates_on, rates_off, strict=True)])
    rate_on = median(rates_on)
    added_ms = median(on - off for on, off in (pair.times_ms for pair in pairs))
    off_ms = median(off for _, off in (pair.times_ms for pair in pairs))
    show(f"requests/s per core, accounts on: {rate_on:.0f}, off: {median(rates_off):.0f}")
    show(f"ratio on/off: {ratio.median:.3f} ({ratio.lowest:.3f} to {ratio.highest:.3f})")
    show(f"added at p50: {added_ms:.3f} ms, to {off_ms:.3f} ms with accounts off")
    is_met = (
        rate_on >= _LEAST_REQUESTS_PER_CORE_S
        and ratio.median >= 1 - _MOST_THROUGHPUT_LOST
        and added_ms <= _MOST_ADDED_MS
    )
    show("the aims are met" if is_met else "an aim is missed")
    return 0 if is_met else 1


async def requests_per_core_s(
    servers: Sequence[Server], num_connections: int, num_requests: int
) -> list[float]:
    """Of each server, when they are asked in turns."""
    connections = {
        server: [await connect(server.endpoint) for _ in range(num_connections)]
        for server in servers
    }
    began_s = [used_s(server) for server in servers]
    for turn in range(num_requests // _NUM_AT_A_TURN):
        # The second server runs on a warmer machine.
        for server in servers if turn % 2 else reversed(servers):
            connections[server] = [
                each if each.is_open else await connect(server.endpoint)
                for each in connections[server]
            ]
            await _ask(connections[server], server.request, _NUM_AT_A_TURN)
    ended_s = [used_s(server) for server in servers]
    for each in chain.from_iterable(connections.values()):
        each.close()
    num_asked = num_requests // _NUM_AT_A_TURN * _NUM_AT_A_TURN
    return [num_asked / (end - begin) for begin, end in zip(began_s, ended_s, strict=True)]


async def _ask(connections: Sequence[Connection], request: bytes, num_requests: int) -> None:
    left = iter(range(num_requests))

    async def ask_again_and_again(connection: Connection) -> None:
        for _ in left:
            await connection.ask(request)

    await asyncio.gather(*map(ask_again_and_again, connections))


def used_s(server: Server) -> float:
    used_s = server.cpu.used_s()
    if used_s is None:
        raise PlatformFailed("the web process is gone")
    return used_s


async def median_times_ms(servers: Sequence[Server], num_requests: int) -> list[float]:
    """Return each server's time of a request at p50, with requests one after the other."""
    connections = [await connect(server.endpoint) for server in servers]
    asked = [
        (connection, server.request, list[float]())
        for connection, server in zip(connections, servers, strict=True)
    ]
    for number in range(num_requests):
        for connection, request, times_ms in asked if number % 2 else reversed(asked):
            began_s = time.perf_counter()
            await connection.ask(request)
            times_ms.append((time.perf_counter() - began_s) * 1e3)
    for connection in connections:
        connection.close()
    return [median(times_ms) for _, _, times_ms in asked]


_PRINT_DIGEST_AND_SECRET = (
    "from django.conf import settings; from vinery_serving.models.models import ServedModel; "
    "print(ServedModel.objects.get().settings_digest, settings.VINERY_SOCKET_SECRET.hex())"
)


@contextmanager
def started(
    words: Sequence[object], environment: Mapping[str, str], tree: Path = REPOSITORY
) -> Iterator[None]:
    """A Python module in a process, with the code of a checkout."""
    command = [sys.executable, "-m", *map(str, words)]
    variables, none = {**os.environ, "PYTHONPATH": _paths(tree), **environment}, subprocess.DEVNULL
    with subprocess.Popen(command, env=variables, cwd=tree, stdout=none, stderr=none) as process:
        try:
            yield
        finally:
            process.terminate()


@dataclass(frozen=True)
class Home:
    """A folder that a web process serves from."""

    path: Path
    has_accounts: bool
    tree: Path = REPOSITORY  # with the code of the web process
    variables: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        """Make the key and the limits. Raises PlatformFailed."""
        vinery = ("-m", "vinery_platform.cli")
        self._run(*vinery, "prepare")
        for scope, what in _LIMITS if self.has_accounts else ():
            metric, window = what.split()
            words = ("--metric", metric, "--window", window, "--amount", _AMOUNT)
            self._run(*vinery, "limit", "set", *scope.split(), *words)

    @contextmanager
    def serve(self) -> Iterator[Server]:
        """A web process and its engine. Raises PlatformFailed."""
        path, secret = self._engine_socket()
        words = "benchmarks.scripted_engine", path
        with started(words, {"SOCKET_SECRET": secret}), self.web() as web:
            if self.has_accounts:
                _check_limits(web.endpoint)
            yield web

    @contextmanager
    def web(self, model: str = TINY_CHAT) -> Iterator[Server]:
        """A web process, once the model answers. Raises PlatformFailed."""
        environment = self._environment()
        known = json.loads((self.path / "bootstrap.json").read_text(encoding="utf-8"))
        url = f"http://127.0.0.1:{environment['VINERY_PORT']}"
        with started(("vinery_platform.cli", "web"), environment, self.tree):
            wait_until_it_answers(endpoint := Endpoint(url, known["api_key"]), model)
            yield Server(endpoint, WebCpu(url))

    def _engine_socket(self) -> tuple[Path, str]:
        """The socket of the reference model, the first model of a home, and the secret of the
        sockets. Raises PlatformFailed."""
        digest, secret = self.run_code(_PRINT_DIGEST_AND_SECRET).split()
        return engine_socket(self.path / "run", EngineAddress(1, settings_key(digest))), secret

    def run_code(self, code: str) -> str:
        """Return what it prints. Raises PlatformFailed."""
        return self._run("manage.py", "shell", "--no-imports", "-c", code)

    def _run(self, *words: str) -> str:
        """Return the output of a Python command. Raises PlatformFailed."""
        command, environment = [sys.executable, *words], self._environment()
        done = subprocess.run(
            command, env=environment, cwd=self.tree, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise PlatformFailed(f"{' '.join(words[1:])}: {done.stderr.strip()}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONHASHSEED": "0",  # one difference less
            "VINERY_HOME": str(self.path),
            "VINERY_PORT": str(free_port()),
            "VINERY_AUTH": "on" if self.has_accounts else "off",
            "PYTHONPATH": _paths(self.tree),
            **self.variables,
        }


def _check_limits(endpoint: Endpoint) -> None:
    """Check that limits are counted: otherwise nothing would be measured."""
    url = f"{endpoint.base_url}/v1/chat/completions"
    answer = httpx.post(url, headers=endpoint.headers, json=_BODY, timeout=30)
    if answer.status_code != 200 or "x-ratelimit-limit-tokens" not in answer.headers:
        raise PlatformFailed(f"requests are not limited: {answer.status_code} {answer.headers}")


def _paths(tree: Path) -> str:
    own = [str(tree / each) for each in ("", "platform", "serving", "accounts")]
    return os.pathsep.join((*own, *sys.path))


if __name__ == "__main__":
    sys.exit(main())
