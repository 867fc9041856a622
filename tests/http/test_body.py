"""Reading request bodies: complete, limited, and with a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from serving.core.errors import BodyTooLarge, InvalidRequest
from serving.http import consumers
from serving.http.consumers import ClientGone, _read_body

Message = MutableMapping[str, Any]


def receiving(*messages: Message) -> Any:
    queue = list(messages)

    async def receive() -> Message:
        if not queue:
            await asyncio.Event().wait()
        return queue.pop(0)

    return receive


def chunk(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_in_chunks_is_joined() -> None:
    receive = receiving(chunk(b"ab", more=True), chunk(b"", more=True), chunk(b"c", more=False))

    assert await _read_body(receive) == b"abc"


async def test_a_body_that_is_too_large_is_refused_before_its_end(settings: Any) -> None:
    settings.VINERY_MAX_BODY_BYTES = 3

    with pytest.raises(BodyTooLarge):
        await _read_body(receiving(chunk(b"abcd", more=True)))


async def test_a_disconnect_during_the_body_is_noticed() -> None:
    with pytest.raises(ClientGone):
        await _read_body(receiving(chunk(b"a", more=True), {"type": "http.disconnect"}))


async def test_a_client_that_sends_nothing_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumers, "_BODY_TIMEOUT_S", 0.01)

    with pytest.raises(InvalidRequest, match="arrived"):
        await _read_body(receiving(chunk(b"a", more=True)))
