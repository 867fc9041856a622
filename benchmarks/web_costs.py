"""`python -m benchmarks.web_costs`: the processor time of the web process for a streamed chat.

The engine is scripted, so requests and tokens are all that the web process works for. Streams of
two tokens and of `--tokens` are asked in turns: the difference is the cost of tokens, the rest that
of a request. With `--base`, the web process of another checkout is asked in turn, and ratios are
taken round by round, so that other load on the machine matters little.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.gateway import Home, Server, used_s
from benchmarks.load import connect, streamed
from benchmarks.machine import REPOSITORY, show
from benchmarks.settings import TINY_CHAT

_SHORT = 2  # tokens
_NUM_SHORT = 6  # short streams for each long one


@dataclass(frozen=True)
class _Cost:
    """Microseconds of one round."""

    request: float
    token: float


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    arguments = _arguments(argv)
    trees = [REPOSITORY] if arguments.base is None else [REPOSITORY, arguments.base.resolve()]
    with tempfile.TemporaryDirectory(prefix="vinery-bench-") as folder, ExitStack() as stack:
        homes = [Home(Path(folder) / str(at), True, tree) for at, tree in enumerate(trees)]
        for home in homes:
            home.prepare()
        servers = [stack.enter_context(home.serve()) for home in homes]
        with asyncio.Runner() as runner:
            rounds = [
                runner.run(_round(servers, arguments.streams, arguments.tokens, number))
                for number in range(1 + arguments.rounds)
            ]
    _show(trees, rounds[1:])  # the first is to warm up
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web_costs")
    parser.add_argument("--base", type=Path, metavar="FOLDER", help="of another checkout")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--streams", type=int, default=16, help="at once")
    parser.add_argument("--tokens", type=int, default=128, help="of a long stream")
    return parser.parse_args(argv)


async def _round(
    servers: Sequence[Server], num_streams: int, num_tokens: int, number: int
) -> list[_Cost]:
    costs = {}
    for server in servers if number % 2 else reversed(servers):
        short = await _streams_us(server, num_streams, _SHORT, _NUM_SHORT)
        long = await _streams_us(server, num_streams, num_tokens, 1)
        token = (long - short) / (num_tokens - _SHORT)
        costs[server] = _Cost(short - _SHORT * token, token)
    return [costs[server] for server in servers]


async def _streams_us(server: Server, num_streams: int, num_tokens: int, times: int) -> float:
    """Return the microseconds of one stream."""
    messages = [{"role": "user", "content": "Count to 60."}]
    body = streamed(TINY_CHAT, num_tokens, messages=messages)
    request = server.endpoint.post("/v1/chat/completions", body)
    connections = [await connect(server.endpoint) for _ in range(num_streams)]
    began_s = used_s(server)
    for _ in range(times):
        await asyncio.gather(*(each.ask(request) for each in connections))
    ended_s = used_s(server)
    for each in connections:
        each.close()
    return (ended_s - began_s) / (num_streams * times) * 1e6


def _show(trees: Sequence[Path], rounds: Sequence[Sequence[_Cost]]) -> None:
    for name in ("request", "token"):
        values = [[getattr(cost, name) for cost in costs] for costs in rounds]
        line = f"us for a {name}: {median(each[0] for each in values):.1f}"
        if len(trees) > 1:
            ratios = sorted(own / other for own, other in values)
            quarter = len(ratios) // 4
            spread = (ratios[at] for at in (len(ratios) // 2, quarter, -1 - quarter))
            line += f", of {trees[1]}: {median(each[1] for each in values):.1f}"
            line += ", ratio {:.3f} ({:.3f} to {:.3f})".format(*spread)
        show(line)


if __name__ == "__main__":
    sys.exit(main())
