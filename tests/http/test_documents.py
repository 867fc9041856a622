"""Documents for every client: long ones are sent in parts."""

import asyncio
from itertools import pairwise
from typing import Any

from vinery_serving.gateway.endpoints.documents import ConstantDocument

_LONG = b"x" * 100_001


async def test_a_long_document_leaves_room_for_other_requests() -> None:
    parts: list[dict[str, Any]] = []
    seen: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        parts.append(message)

    document = ConstantDocument(lambda: _LONG)
    sending = asyncio.create_task(document({"method": "GET"}, receive, send))
    while not sending.done():
        await asyncio.sleep(0)
        seen.append(len(parts))

    start, *bodies = parts
    assert (b"content-length", b"100001") in start["headers"]
    assert b"".join(each["body"] for each in bodies) == _LONG
    assert [each["more_body"] for each in bodies] == [True] * (len(bodies) - 1) + [False]
    assert max(after - before for before, after in pairwise(seen)) <= 2
    assert max(len(each["body"]) for each in bodies) <= 8192
