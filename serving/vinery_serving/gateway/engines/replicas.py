"""The engines of one model, between which its requests are divided.

A request goes to the engine with the least work: the tokens of the prompt that its prefix cache
does not have, and the answers that run and wait. So the turns of a conversation stay on one engine
until it is full. Engines report what their caches have, so all web processes choose alike. Between
engines with equal work the beginning of the prompt decides, by a rank of each engine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from vinery_serving.core.prompt_parts import PART_BYTES, PART_TOKENS, digests, rank
from vinery_serving.gateway.engines.models import Place
from vinery_serving.transport.client import EngineClient
from vinery_serving.transport.messages import Hello

# An answer that runs or waits slows a new one as much as so many tokens of its prompt.
_ANSWER_TOKENS: Final = 64
# How often a connection that takes no new requests is asked whether it has answers left.
_LOOK_INTERVAL_S: Final = 0.5

Maker = Callable[[Place], EngineClient]


class Replicas:
    """The connections of one web process to the engines of a model. Belongs to the event loop."""

    def __init__(self, new_client: Maker, places: Sequence[Place] = (Place(0),)) -> None:
        self._new_client = new_client
        self._clients = {each: new_client(each) for each in places}
        self._leaving: dict[EngineClient, asyncio.Task[None]] = {}
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
            client = former[place]
            self._leaving[client] = asyncio.create_task(self._close_when_idle(client))

    async def _close_when_idle(self, client: EngineClient) -> None:
        while client.num_generations:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_INTERVAL_S)
        await client.close()
        self._leaving.pop(client, None)

    async def close(self) -> None:
        leaving, self._leaving = self._leaving, {}
        for task in leaving.values():
            task.cancel()
        await asyncio.gather(*leaving.values(), return_exceptions=True)
        for each in (*leaving, *self.clients):
            await each.close()

    async def wait_connected(self, timeout_s: float) -> Hello:
        """Return the first message of the first connected engine. Raises TimeoutError."""
        waits = [asyncio.create_task(each.wait_connected(timeout_s)) for each in self.clients]
        try:
            for next_one in asyncio.as_completed(waits):
                with contextlib.suppress(TimeoutError):
                    return await next_one
            raise TimeoutError
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def announce(self) -> None:
        """See `EngineClient.announce`. Which engine gets the request is not known yet."""
        for each in self.clients:
            each.announce()

    def choose(self, prompt_ids: bytes = b"", cache_key: bytes | None = None) -> EngineClient:
        """Return the connection for a prompt. Ids and key are as in `Submit`."""
        able = [each for each in self.clients if each.is_connected]
        if len(self.clients) == 1 or not able:
            return self.clients[0]
        parts = list(digests(prompt_ids, cache_key))
        free = [each for each in able if not _is_full(each)]
        client = min(free or able, key=lambda each: _work(each, parts))
        if client.known is not None:
            client.known.note_sent(parts[: len(prompt_ids) // PART_BYTES])
        return client


def _work(client: EngineClient, parts: Sequence[int]) -> tuple[int, int]:
    """Return the tokens to compute before this prompt's first, and a rank of equal engines."""
    num_known = 0 if client.known is None else client.known.num_known(parts)
    num_tokens = PART_TOKENS * (len(parts) - num_known) + _ANSWER_TOKENS * _num_answers(client)
    return num_tokens, rank(parts[0], client.seed) if parts else 0


def _num_answers(client: EngineClient) -> int:
    """The number of an engine's answers: as the engine reports, or of this process if greater."""
    return max(client.num_generations, 0 if client.load is None else client.load.num_answers)


def _is_full(client: EngineClient) -> bool:
    return client.hello is not None and _num_answers(client) >= client.hello.max_running
