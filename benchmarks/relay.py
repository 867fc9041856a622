"""`python -m benchmarks.relay`: what an engine of another host costs more than one of this host.

A scripted engine sends frames of tokens for 1 to 64 streams. One client has them from its Unix
socket and one through a relay, in turns of one run. The processor time is that of the client and of
the relay, as the kernel counts it; the time until a first token is by the clock.
"""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import uvloop

from benchmarks.gateway import started
from benchmarks.machine import process_s
from tests.cluster.hosts import Host, running, web_key
from tests.fakes.engine import KEY
from vinery_serving.core.request import Sampling
from vinery_serving.transport.client import EngineClient
from vinery_serving.transport.messages import Submit, TokenOutput
from vinery_serving.transport.sockets import UnixAddress

_STREAMS: Final = (1, 8, 16, 64)
_ROUNDS: Final = 7
_TOKENS: Final = 128  # of each stream in a round
_FIRSTS: Final = 20  # answers of one token in a round
_START_S: Final = 120.0


@dataclass(frozen=True)
class Side:
    """A client, and the relay between it and the engine."""

    client: EngineClient
    relay_pid: int | None = None
    first_s: list[float] = field(default_factory=list)
    # By the number of streams.
    client_s: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    relay_s: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def measure(self, num_streams: int) -> None:
        if num_streams == 1:
            for _ in range(_FIRSTS):
                begin = time.perf_counter()
                await self._answer(1)
                self.first_s.append(time.perf_counter() - begin)
        client_s, relay_s = self._used_s()
        await asyncio.gather(*(self._answer(_TOKENS) for _ in range(num_streams)))
        client_end_s, relay_end_s = self._used_s()
        num_tokens = num_streams * _TOKENS
        self.client_s[num_streams].append((client_end_s - client_s) / num_tokens)
        self.relay_s[num_streams].append((relay_end_s - relay_s) / num_tokens)

    def _used_s(self) -> tuple[float, float]:
        return process_s(os.getpid()), process_s(self.relay_pid) if self.relay_pid else 0.0

    async def _answer(self, num_tokens: int) -> None:
        submit = Submit(self.client.new_id(), b"", Sampling(), num_tokens, 60.0)
        stream = self.client.submit([submit])
        while True:
            for update in await stream.next():
                if isinstance(update, TokenOutput) and update.finish:
                    return


@asynccontextmanager
async def _sides(host: Host) -> AsyncIterator[tuple[Side, Side]]:
    here = EngineClient(UnixAddress(host.socket_of()), host.key_of())
    there = EngineClient(host.engine(), web_key())
    for client in (here, there):
        client.open()
        await client.wait_connected(_START_S)
    try:
        yield Side(here), Side(there, host.pid)
    finally:
        await here.close()
        await there.close()


def _added_us(here: list[float], there: list[float]) -> float:
    return 1e6 * (median(there) - median(here))


async def main() -> None:
    with TemporaryDirectory() as folder:
        async with running(Path(folder)) as host:
            words = ("benchmarks.scripted_engine", host.socket_of())
            with started(words, {"SOCKET_SECRET": KEY.hex(), "FRAME_TOKENS": "1"}):
                async with _sides(host) as (here, there):
                    for num_streams in _STREAMS * _ROUNDS:
                        for side in (here, there):
                            await side.measure(num_streams)
    print(f"added to a first token: {_added_us(here.first_s, there.first_s):.0f} us")
    for num_streams in _STREAMS:
        client_us = _added_us(here.client_s[num_streams], there.client_s[num_streams])
        relay_us = 1e6 * median(there.relay_s[num_streams])
        print(
            f"added to a token of {num_streams} streams: {client_us + relay_us:.1f} us, "
            f"of the client {client_us:.1f} and of the relay {relay_us:.1f}"
        )


if __name__ == "__main__":
    uvloop.run(main())
