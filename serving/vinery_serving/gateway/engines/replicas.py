"""The engines of one model, between which its requests are divided.

A request goes to the engine whose prefix cache has most of the prompt, as far as this web process
knows from earlier requests, and otherwise to the engine with the least work. So the turns of a
conversation stay on one engine until that engine is full. The beginning of the prompt decides
between engines with equally little work, so that several web processes choose the same engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from vinery_serving.gateway.engines.models import Place
from vinery_serving.transport.client import EngineClient
from vinery_serving.transport.messages import Hello

# Prompts are compared in parts of this many tokens.
_PART_TOKENS: Final = 64
_PART_BYTES: Final = 4 * _PART_TOKENS
# So many parts are remembered; the least recently used are forgotten first.
_MAX_PARTS: Final = 100_000
# With less of a prompt in the cache, an engine with less to do is as fast.
_LEAST_KNOWN_PART: Final = 0.5

# How often a connection that takes no new requests is asked whether it has answers left.
_LOOK_INTERVAL_S: Final = 0.5


Maker = Callable[[Place], EngineClient]


class Replicas:
    """The connections of one web process to the engines of a model. Belongs to the event loop."""

    def __init__(self, new_client: Maker, places: Sequence[Place] = (Place(0),)) -> None:
        self._new_client = new_client
        self._clients = {each: new_client(each) for each in places}
        self._leaving: set[asyncio.Task[None]] = set()
        self._known = _KnownPrompts()
        self._is_open = False

    @property
    def clients(self) -> list[EngineClient]:
        return list(self._clients.values())

    @property
    def path(self) -> Path:
        return self.clients[0].path

    @property
    def is_connected(self) -> bool:
        return any(each.is_connected for each in self.clients)

    @property
    def is_running(self) -> bool:
        """Whether there is an engine, if only for the generations that it has."""
        return any(each.is_running for each in self.clients)

    @property
    def hello(self) -> Hello | None:
        """The first message of an engine that takes new generations."""
        return next((each.hello for each in self.clients if each.is_connected), None)

    def open(self) -> None:
        """Begin to keep all connections up. Needs a running event loop."""
        self._is_open = True
        for each in self.clients:
            each.open()

    async def move(self, places: Sequence[Place]) -> None:
        """Keep connections to these places. An engine elsewhere finishes its generations."""
        former = self._clients
        self._clients = {each: former.get(each) or self._new_client(each) for each in places}
        for place in places:
            if self._is_open and place not in former:
                self._clients[place].open()
        for place in former.keys() - self._clients:
            leaving = asyncio.create_task(_close_when_idle(former[place]))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        for leaving in self._leaving:
            leaving.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)
        for each in self.clients:
            await each.close()

    async def wait_connected(self, timeout_s: float) -> Hello:
        """Return the first message of the first connected engine. Raises TimeoutError."""
        if len(self.clients) == 1:
            return await self.clients[0].wait_connected(timeout_s)
        waits = [asyncio.create_task(each.wait_connected(timeout_s)) for each in self.clients]
        try:
            for next_one in asyncio.as_completed(waits, timeout=timeout_s):
                with contextlib.suppress(TimeoutError):
                    return await next_one
            raise TimeoutError
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def choose(self, prompt_ids: bytes = b"") -> EngineClient:
        """Return the connection for a prompt, whose ids are as in `Submit`."""
        able = [each for each in self.clients if each.is_connected]
        if len(self.clients) == 1 or not able:
            return self.clients[0]
        parts = list(_prompt_parts(prompt_ids))
        client, num_known = self._known.find(parts)
        is_known = client in able and num_known >= _LEAST_KNOWN_PART * len(parts)
        if client is None or not is_known or _is_full(client):
            preferred = self.clients[parts[0] % len(self.clients)] if parts else None
            client = min(able, key=lambda each: (_num_answers(each), each is not preferred))
        self._known.note(parts, client)
        return client


async def _close_when_idle(client: EngineClient) -> None:
    try:
        while client.num_generations:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_INTERVAL_S)
    finally:
        await client.close()


class _KnownPrompts:
    def __init__(self) -> None:
        self._clients: OrderedDict[int, EngineClient] = OrderedDict()

    def find(self, parts: Sequence[int]) -> tuple[EngineClient | None, int]:
        """Return the engine of the longest known beginning, and the number of parts."""
        for num_parts in range(len(parts), 0, -1):
            if (client := self._clients.get(parts[num_parts - 1])) is not None:
                return client, num_parts
        return None, 0

    def note(self, parts: Sequence[int], client: EngineClient) -> None:
        for part in parts:
            self._clients[part] = client
            self._clients.move_to_end(part)
        while len(self._clients) > _MAX_PARTS:
            self._clients.popitem(last=False)


def _prompt_parts(prompt_ids: bytes) -> Iterator[int]:
    """Yield a hash for each beginning of a prompt, the same in each process, unlike `hash` of
    bytes. An incomplete last part is left out."""
    known = 0
    for end in range(_PART_BYTES, len(prompt_ids) + 1, _PART_BYTES):
        known = hash((known, zlib.crc32(prompt_ids[end - _PART_BYTES : end])))
        yield known


def _num_answers(client: EngineClient) -> int:
    """The number of an engine's answers: as the engine reports, or of this process if greater."""
    return max(client.num_generations, 0 if client.load is None else client.load.num_answers)


def _is_full(client: EngineClient) -> bool:
    return client.hello is not None and _num_answers(client) >= client.hello.max_running
