"""Both ends of the socket on which a web process answers about the requests that run now.

A process that has ended answers nothing, so its requests are not shown, and no figure is stored
anywhere. A question is a line of JSON. The answer is JSON, too: the rows, or whether the request
was stopped. Without Django's tables: the web server reads this before these are there.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from vinery_accounts.usage.entries import Admission
from vinery_serving.transport.handshake import Stranger, shake_hands, socket_key
from vinery_serving.transport.sockets import web_socket, web_sockets

log = logging.getLogger(__name__)

# A process that does not answer within this time is left out.
_WITHIN_S: Final = 2.0


class Stage(StrEnum):
    WAITING = "waiting"  # it is read, or waits for its model or for a slot of the engine
    PREFILLING = "prefilling"
    GENERATING = "generating"


class LiveRow(msgspec.Struct, frozen=True):
    admission: Admission
    stage: Stage
    num_prompt_tokens: int
    num_output_tokens: int
    tokens_per_s: float | None  # None: nothing is generated yet


class LiveServer:
    """`rows` returns the requests of this process. `stop` ends the request of an id with a reason,
    and returns whether the request runs here."""

    def __init__(
        self,
        run_dir: Path,
        secret: bytes,
        rows: Callable[[], list[LiveRow]],
        stop: Callable[[str, str], bool],
    ) -> None:
        self._run_dir, self._secret = run_dir, secret
        self._rows, self._stop = rows, stop
        self._path: Path | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Without a socket, which is logged, requests of this process are not shown."""
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
            assert self._path is not None
            await shake_hands(reader, writer, socket_key(self._secret, self._path), listens=True)
            async with asyncio.timeout(_WITHIN_S):
                question = msgspec.json.decode(await reader.readline(), type=list[str])
                answer = self._stop(*question) if question else self._rows()
                writer.write(msgspec.json.encode(answer))
                await writer.drain()
        except (OSError, EOFError, ValueError, Stranger, msgspec.MsgspecError):
            pass
        finally:
            writer.close()


async def ask_for_rows(run_dir: Path, secret: bytes) -> list[LiveRow]:
    """Raises OSError if the run folder cannot be read."""
    answers = await _ask_all(run_dir, secret, [])
    return [row for each in answers for row in msgspec.json.decode(each, type=list[LiveRow])]


async def ask_to_stop(run_dir: Path, secret: bytes, request_id: str, reason: str) -> bool:
    """Return whether a process has stopped the request. Raises OSError, as above."""
    return b"true" in await _ask_all(run_dir, secret, [request_id, reason])


async def _ask_all(run_dir: Path, secret: bytes, question: list[str]) -> list[bytes]:
    line = msgspec.json.encode(question) + b"\n"
    asked = (_ask(path, socket_key(secret, path), line) for path in web_sockets(run_dir))
    return list(filter(None, await asyncio.gather(*asked)))


async def _ask(path: Path, key: bytes, line: bytes) -> bytes:
    try:
        async with asyncio.timeout(_WITHIN_S):
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                await shake_hands(reader, writer, key, listens=False)
                writer.write(line)
                return await reader.read()
            finally:
                writer.close()
    except ConnectionRefusedError:  # its process was killed
        path.unlink(missing_ok=True)  # noqa: ASYNC240 - one system call
    except (OSError, EOFError, Stranger) as error:
        log.warning("%s does not answer: %s", path.name, error or type(error).__name__)
    return b""
