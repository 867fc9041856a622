"""Answers pages and commands of this home about the running requests of this web process, and stops
some of them.

A question is one signed line. The answer is JSON: the rows, or whether the request was stopped.
"""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from django.core.signing import BadSignature

from vinery_serving.gateway.state.drain import LiveRequests
from vinery_serving.models.live_requests import read_question
from vinery_serving.transport.sockets import web_socket

log = logging.getLogger(__name__)

_WITHIN_S: Final = 10.0


class LiveSocket:
    def __init__(self, live: LiveRequests, run_dir: Path) -> None:
        self._live = live
        self._run_dir = run_dir
        self._path: Path | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Without a socket a warning is logged, and requests of this process are not
        shown."""
        try:
            path = web_socket(self._run_dir)
            # The name comes after the listener: an asker removes a socket without a listener.
            draft = path.with_suffix(".new")
            draft.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._serve, str(draft))
            draft.chmod(0o600)
            draft.rename(path)
            self._path = path
        except OSError as error:
            log.warning("running requests of this process are not shown: %s", error)

    def close(self) -> None:
        if self._server is not None and self._path is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, ValueError, TimeoutError, BadSignature):
                async with asyncio.timeout(_WITHIN_S):
                    writer.write(self._answer(read_question(await reader.readline())))
                    await writer.drain()
        finally:
            writer.close()

    def _answer(self, question: list[str]) -> bytes:
        if not question:
            return msgspec.json.encode(self._live.rows())
        request_id, reason = question
        return msgspec.json.encode(self._live.stop(request_id, reason))
