"""Documents for every client: long ones are sent in parts."""

import asyncio
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from vinery_serving.gateway.endpoints.documents import constant

_LONG = b"x" * 100_001


async def test_a_long_document_leaves_room_for_other_requests() -> None:
    parts: list[dict[str, Any]] = []
    seen: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        parts.append(message)

    document = constant(lambda: _LONG)
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


# -- The event loop's default executor has few threads, so nothing of a client may run there

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("gateway", "prompting", "grammars")
_DEFAULT_EXECUTOR = re.compile(r"\bto_thread\(|run_in_executor\(\s*None|thread_sensitive=False")


def test_no_room_that_a_request_passes_uses_the_default_executor() -> None:
    files = [
        path for room in ROOMS for path in (ROOT / "serving/vinery_serving" / room).rglob("*.py")
    ]

    assert len(files) > 50
    assert [each for each in files if _DEFAULT_EXECUTOR.search(each.read_text())] == []
