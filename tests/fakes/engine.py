"""Fake engines with scripted answers and faults.

`FakeEngine` speaks the engine's protocol over a real socket. A script is a coroutine for each
connection, and can also refuse, hang and die. `InMemoryEngine` has no socket: a test decides which
updates arrive together.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import msgspec

from vinery_serving.engine.options import EngineOptions
from vinery_serving.gateway.engines.models import ModelEntry
from vinery_serving.gateway.engines.suspects import Quarantine, Suspects
from vinery_serving.transport import messages
from vinery_serving.transport.client import GenerationUpdate
from vinery_serving.transport.handshake import shake_hands
from vinery_serving.transport.messages import Cancel, Hello, Submit, ToEngine
from vinery_serving.transport.sockets import FrameReader, pack

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = b"of the sockets of this home"
HELLO = Hello(messages.PROTOCOL_VERSION, 1, max_context=2048, max_running=4)


class Gateway:
    """A connection of a gateway, as a script sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._inbox: list[ToEngine] = []

    async def receive(self) -> ToEngine:
        """Return the next message. Raises EOFError when the gateway has disconnected."""
        while not self._inbox:
            received = await self._reader.read(1 << 16)
            if not received:
                raise EOFError
            self._inbox += [
                msgspec.msgpack.decode(frame, type=ToEngine)
                for frame in self._frames.feed(received)
            ]
        return self._inbox.pop(0)

    async def receive_submit(self) -> Submit:
        """Return the next `Submit`; other messages are dropped."""
        while not isinstance(message := await self.receive(), Submit):
            pass
        return message

    async def receive_cancel(self) -> Cancel:
        """Return the next `Cancel`; other messages are dropped."""
        while not isinstance(message := await self.receive(), Cancel):
            pass
        return message

    def send(self, *sent: msgspec.Struct) -> None:
        self._writer.write(b"".join(pack(each) for each in sent))

    def accept(self, submit: Submit) -> None:
        unenforced = "" if submit.grammar is None else submit.grammar.unenforced
        self.send(messages.Accepted(submit.id, unenforced))

    def tokens(self, submit: Submit, ids: Sequence[int], finish: str | None = None) -> None:
        output = messages.TokenOutput(submit.id, tuple(ids), finish, 0.001, 0)
        self.send(messages.StepOutputs((output,)))

    def leave(self) -> None:
        self.send(messages.Leaving())
        self.die()

    def die(self) -> None:
        """Break the connection, as an engine that is killed."""
        self._writer.transport.abort()


Script = Callable[[Gateway], Awaitable[None]]


class FakeEngine:
    """`async with FakeEngine(path, *scripts)` listens on the socket at `path`.

    Each connection runs the next script. The last script serves all further connections.
    """

    def __init__(self, path: Path, *scripts: Script, key: bytes = KEY) -> None:
        self._path = path
        self._key = key
        self._scripts = list(scripts)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, str(self._path))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        gateway = Gateway(reader, writer)
        with suppress(EOFError), closing(writer):
            await shake_hands(reader, writer, self._key, listens=True)
            gateway.send(HELLO)
            await script(gateway)


class CharacterDecoder:
    """A decoder for which each token is a character."""

    def feed(self, token_id: int) -> str:
        return chr(token_id)

    def feed_all(self, token_ids: Sequence[int]) -> str:
        return "".join(map(chr, token_ids))

    def finish(self) -> str:
        """Return no rest: a token is never half a character."""
        return ""


class InMemoryEngine:
    """Stands for `gateway.engines.directory.Engine`, with replicas, clients and output stream.

    Any submission is accepted. Each call of `next` returns the next list of the script.
    """

    def __init__(self, *script: list[GenerationUpdate]) -> None:
        self._script = list(script)
        self._num_ids = 0
        self.replicas = self
        self.is_connected = True
        self.hello = HELLO
        self.entry = ModelEntry(1, "m", Path("/"), EngineOptions(), True, NOW, NOW)
        self.quarantine, self.suspects = Quarantine(), Suspects()
        self.submitted: list[Submit] = []
        self.load = None
        self.max_context = None  # any length

    def choose(self, prompt_ids: bytes, cache_key: bytes | None) -> Self:
        return self

    async def ready(self, *, goes_on: bool = False) -> tuple[Self, Hello]:
        """Return itself and the engine's first message."""
        return self, self.hello

    def new_decoder(
        self, *, is_raw: bool, shows_special: bool = False, after: Sequence[int] = ()
    ) -> CharacterDecoder:
        return CharacterDecoder()

    def new_id(self) -> int:
        self._num_ids += 1
        return self._num_ids

    def submit(self, submits: Sequence[Submit]) -> Self:
        """Return itself as the output stream."""
        self.submitted += submits
        return self

    async def send_rest(self) -> None:
        """All was sent."""

    async def next(self, timeout_s: float) -> list[GenerationUpdate]:
        return self._script.pop(0)

    def cancel(self, num_used: Mapping[int, int]) -> None:
        """Do nothing."""
