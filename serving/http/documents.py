"""What the server says about itself to everyone: its version, and its OpenAPI document.

No key is needed. Each is made once and served from memory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import cache

from django.conf import settings

from serving.core.errors import MethodNotAllowed
from serving.http.consumers import JSON
from serving.http.edge import Receive, Scope, Send, send_whole
from serving.protocols.openapi.document import Facts, document


class Document:
    """An ASGI application that answers `GET` with the same JSON every time."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. Raises `MethodNotAllowed`."""
        if scope["method"] not in ("GET", "HEAD"):
            raise MethodNotAllowed(scope["method"], allowed="GET, HEAD")
        body = await asyncio.to_thread(self._make)
        await send_whole(send, 200, JSON, body, is_head=scope["method"] == "HEAD")


@cache
def version() -> bytes:
    """As vLLM answers it."""
    return json.dumps({"version": settings.VINERY_VERSION}).encode()


@cache
def openapi() -> bytes:
    """Takes a tenth of a second to make, and then none."""
    facts = Facts(settings.VINERY_VERSION, settings.VINERY_MAX_BODY_BYTES // 2**20)
    return json.dumps(document(facts), ensure_ascii=False).encode()
