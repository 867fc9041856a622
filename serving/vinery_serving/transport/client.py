"""The gateway's end of the socket: one connection per engine, many generations on it.

`EngineClient` keeps the connection up while it is open, and connects again within moments of an
engine's start. When a connection breaks, every `OutputStream` on it raises `EngineDisconnected`,
and the stream's owner decides whether to submit again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, assert_never, cast

import msgspec
from msgspec import structs

from vinery_serving.core.prompt_parts import KnownParts, seed
from vinery_serving.transport import relayed
from vinery_serving.transport.handshake import Handshake, Stranger
from vinery_serving.transport.messages import (
    Accepted,
    Cancel,
    Draining,
    EngineStats,
    FromEngine,
    Grant,
    Hello,
    Leaving,
    Load,
    MediaPixels,
    PicturesTested,
    Ping,
    Pong,
    PoolTexts,
    Rejected,
    StepOutputs,
    Submit,
    TestPictures,
    TextVectors,
    TokenOutput,
    speaks_with,
)
from vinery_serving.transport.sockets import (
    FrameReader,
    InvalidFrame,
    TlsAddress,
    UnixAddress,
    pack,
)

# How often a lost engine is looked for. A waiting request notices a new engine after this
# time at the latest. A failed connect to a Unix socket costs 50 us.
_RECONNECT_S: Final = 0.05

# A request of many long prompts or of pictures is sent in parts of about this size, so that
# messages of other requests need not wait until the engine has read all of it.
_PART_BYTES: Final = 64 * 1024
_ids = itertools.count(1)

# A message about one generation. Its `id` is the generation's.
GenerationUpdate = Accepted | TokenOutput | Rejected
UpdateT = TypeVar("UpdateT", bound=GenerationUpdate | TextVectors)


class EngineDisconnected(Exception):
    """The connection to the engine broke, or there is none."""

    def __init__(self, *, is_planned: bool = False) -> None:
        super().__init__()
        self.is_planned = is_planned
        """Whether the engine was ended, or left, on purpose. Otherwise it may have crashed."""


class _Stream(Generic[UpdateT]):
    """The updates from an engine about the requests of some ids. One task reads the stream. The
    inbox is bounded: an engine sends at most `max_new_tokens` outputs for each generation."""

    def __init__(self, link: _Link, ids: Iterable[int]) -> None:
        self._link = link
        self._open = set(ids)
        self._inbox: list[UpdateT] = []
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = 0.0  # seconds of the loop's clock
        self._lost: EngineDisconnected | None = None

    async def next(self, timeout_s: float | None = None) -> list[UpdateT]:
        """Return all updates since the last call; wait for the first if there is none. Returns an
        empty list after `timeout_s` without updates. Raises EngineDisconnected."""
        if not self._inbox and self._lost is None:
            await self._wait(timeout_s)
        if self._inbox:
            updates, self._inbox = self._inbox, []
            return updates if len(updates) == 1 else _merge_outputs(updates)
        if self._lost is not None:
            raise self._lost
        return []

    def grant(self, id_: int, num_tokens: int, *, is_last: bool) -> None:
        """Let a generation have `num_tokens` in all, and then pause, or end if `is_last`."""
        if id_ in self._open:
            self._link.grant(Grant(id_, num_tokens, is_last))

    def cancel(self, num_used: Mapping[int, int] | None = None) -> None:
        """Free these requests in the engine; None: all that have not ended. `num_used` has the
        tokens that the client used, by id: the engine may have generated more."""
        if num_used is None:
            num_used = dict.fromkeys(self._open, 0)
        for id_, num_tokens in num_used.items():
            self._open.discard(id_)
            if self._lost is None:
                self._link.cancel(id_, num_tokens)
        if not self._open and self._timer is not None:
            self._timer.cancel()

    def put(self, update: UpdateT, *, is_end: bool) -> None:
        if is_end:
            self._open.discard(update.id)
        self._inbox.append(update)
        self._wake()

    def lose(self, lost: EngineDisconnected) -> None:
        self._open.clear()
        self._lost = lost
        self._wake()

    async def _wait(self, timeout_s: float | None) -> None:
        self._waiter = self._loop.create_future()
        if timeout_s is not None:
            self._wake_at = self._loop.time() + timeout_s
            if self._timer is None:
                self._timer = self._loop.call_at(self._wake_at, self._time_out)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _time_out(self) -> None:
        """One timer serves all waits: a timer for each token would cost more than the decoding."""
        if self._loop.time() < self._wake_at:
            self._timer = self._loop.call_at(self._wake_at, self._time_out)
            return
        self._timer = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


OutputStream = _Stream[GenerationUpdate]
VectorStream = _Stream[TextVectors | Rejected]


def _merge_outputs(updates: list[Any]) -> list[Any]:
    """Join the outputs of a generation at the place of the first, for a gateway that is behind."""
    joined: list[Any] = []
    outputs: dict[int, list[TokenOutput]] = {}
    for update in updates:
        if not isinstance(update, TokenOutput):
            joined += map(_merged_output, outputs.values())
            outputs.clear()
            joined.append(update)
        else:
            outputs.setdefault(update.id, []).append(update)
    joined += map(_merged_output, outputs.values())
    return joined


def _merged_output(outputs: Sequence[TokenOutput]) -> TokenOutput:
    """Join consecutive outputs. The counts of draft tokens are sums already."""
    first, last = outputs[0], outputs[-1]
    if first is last:
        return first
    return structs.replace(
        first,
        token_ids=tuple(chain.from_iterable([each.token_ids for each in outputs])),
        finish=last.finish,
        logprobs=tuple(chain.from_iterable([each.logprobs for each in outputs])),
        num_proposed=last.num_proposed,
        num_accepted=last.num_accepted,
    )


class _Link(asyncio.Protocol):
    def __init__(
        self,
        handshake: Handshake | relayed.Attached,
        on_lost: Callable[[], None],
        on_draining: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._handshake, self._on_lost, self._on_draining = handshake, on_lost, on_draining
        self._frames = FrameReader()
        self._decode = msgspec.msgpack.Decoder(FromEngine).decode
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, _Stream[Any]] = {}  # by the ids of requests that have not ended
        self._answers: dict[int, asyncio.Future[Pong | PicturesTested]] = {}  # by nonce
        # What waits for the next part, by request, and the last grants of these generations.
        self._outboxes: deque[Iterator[MediaPixels | Submit]] = deque()
        self._unsent: dict[int, Grant | None] = {}
        self._begun: set[int] = set()  # ids of `_unsent` with pixels that were sent
        self._is_paused = self._is_planned_end = False
        self.is_draining = False  # the engine takes no new generations
        self.hello: asyncio.Future[Hello] = loop.create_future()
        self.load: Load | None = None
        self.known = KnownParts()
        self.closed: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, no assertion: uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._handshake.opening)

    def connection_lost(self, exc: Exception | None) -> None:
        # `_on_lost` comes first: a stream's owner may submit again as soon as the stream is lost.
        self._on_lost()
        streams, self._streams = set(self._streams.values()), {}
        for stream in streams:
            stream.lose(EngineDisconnected(is_planned=self._is_planned_end))
        for answer in self._answers.values():
            _fail(answer, EngineDisconnected())
        _fail(self.hello, EngineDisconnected())
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        try:
            if not self._handshake.is_done:
                reply, data = self._handshake.feed(data)
                cast("asyncio.Transport", self._transport).write(reply)
            for frame in self._frames.feed(data):
                self._take(self._decode(frame))
        except (InvalidFrame, Stranger, msgspec.MsgspecError):
            self.close()

    @property
    def num_generations(self) -> int:
        return len(self._streams)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._send_part()

    def send(self, message: msgspec.Struct) -> int:
        """Return the bytes that were sent. Raises EngineDisconnected."""
        if self._transport is None or self._transport.is_closing():
            raise EngineDisconnected
        frame = pack(message)
        self._transport.write(frame)
        return len(frame)

    def send_if_open(self, message: msgspec.Struct) -> None:
        with contextlib.suppress(EngineDisconnected):
            self.send(message)

    def cancel(self, id_: int, num_used: int) -> None:
        self._streams.pop(id_, None)
        is_unsent = id_ in self._unsent
        self._unsent.pop(id_, None)
        if not is_unsent or id_ in self._begun:
            self._begun.discard(id_)
            self.send_if_open(Cancel(id_, num_used))

    def grant(self, grant: Grant) -> None:
        if grant.id in self._unsent:
            self._unsent[grant.id] = grant
        else:
            self.send_if_open(grant)

    def pool(self, texts: PoolTexts) -> VectorStream:
        self.send(texts)
        stream = self._streams[texts.id] = VectorStream(self, (texts.id,))
        return stream

    def submit(self, submits: Sequence[Submit]) -> OutputStream:
        ids = [id_ for submit in submits for id_ in submit.ids]
        stream = OutputStream(self, ids)
        self._streams.update(dict.fromkeys(ids, stream))
        num_bytes = 0
        for number, submit in enumerate(submits):
            if num_bytes >= _PART_BYTES or submit.media:
                self._send_later(submits[number:])
                break
            num_bytes += self.send(submit)
        return stream

    def _send_later(self, submits: Sequence[Submit]) -> None:
        if not self._outboxes:
            asyncio.get_running_loop().call_soon(self._send_part)
        self._outboxes.append(chain.from_iterable(map(_submit_parts, submits)))
        self._unsent.update((submit.id, None) for submit in submits)

    def _send_part(self) -> None:
        num_bytes = 0
        while self._outboxes and num_bytes < _PART_BYTES and not self._is_paused:
            outbox = self._outboxes.popleft()
            message = next(outbox, None)
            if message is not None:
                num_bytes += self._send_unsent(message)
                self._outboxes.append(outbox)
        if self._outboxes and not self._is_paused:
            asyncio.get_running_loop().call_soon(self._send_part)

    def _send_unsent(self, message: MediaPixels | Submit) -> int:
        is_lost = self._transport is None or self._transport.is_closing()
        if is_lost or message.id not in self._unsent:
            return 0
        num_bytes = self.send(message)
        if isinstance(message, MediaPixels):
            self._begun.add(message.id)
            return num_bytes
        self._begun.discard(message.id)
        if (grant := self._unsent.pop(message.id)) is not None:
            self.send(grant)
        return num_bytes

    async def ask(self, question: Ping | TestPictures) -> Pong | PicturesTested:
        """Return the answer, which has the question's nonce. Raises EngineDisconnected."""
        answer: asyncio.Future[Pong | PicturesTested] = asyncio.get_running_loop().create_future()
        self._answers[question.nonce] = answer
        try:
            self.send(question)
            return await answer
        finally:
            self._answers.pop(question.nonce, None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def leave(self) -> None:
        self._is_planned_end = True
        self.close()

    def _take(self, message: FromEngine) -> None:
        match message:
            case StepOutputs(outputs=outputs):
                for output in outputs:
                    self._deliver(output, is_end=output.finish is not None)
            case Accepted():
                self._deliver(message, is_end=False)
            case TextVectors(is_last=is_last):
                self._deliver(message, is_end=is_last)
            case Rejected():
                self._deliver(message, is_end=True)
            case Load():
                self.load = message
                self.known.take(message.added, message.dropped)
            case Draining():
                self.is_draining = True
                self._on_draining()
            case Leaving():
                self._is_planned_end = True
            case Pong() | PicturesTested():
                answer = self._answers.get(message.nonce)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case Hello() if not speaks_with(message.protocol_version):
                self.close()
            case Hello():
                self.is_draining = self.is_draining or message.is_draining
                if not self.hello.done():
                    self.hello.set_result(message)
            case _:
                assert_never(message)

    def _deliver(self, update: GenerationUpdate | TextVectors, *, is_end: bool) -> None:
        stream = self._streams.pop(update.id, None) if is_end else self._streams.get(update.id)
        if stream is not None:  # else cancelled meanwhile
            stream.put(update, is_end=is_end)


def _fail(
    future: asyncio.Future[Pong | PicturesTested] | asyncio.Future[Hello], error: Exception
) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # read here, so that asyncio does not warn of an unread exception


def _submit_parts(submit: Submit) -> Iterator[MediaPixels | Submit]:
    for media in submit.media:
        for start in range(0, len(media.pixels), _PART_BYTES):
            yield MediaPixels(submit.id, media.pixels[start : start + _PART_BYTES])
    bare = tuple(structs.replace(media, pixels=b"") for media in submit.media)
    yield structs.replace(submit, media=bare) if bare else submit


class EngineClient:
    """A gateway's client of one engine. Call `open` once, and `close` at the end."""

    def __init__(self, address: UnixAddress | TlsAddress, key: bytes | relayed.Key) -> None:
        """`key` is the engine's, see `handshake`; of an engine of another host it returns the
        certificates of this process."""
        self.address, self.key = address, key
        name = address.path.name if isinstance(address, UnixAddress) else address.engine.file_name
        self.seed = seed(name)  # for `rank`
        self._link: _Link | None = None
        self._connected = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.hello: Hello | None = None

    @property
    def path(self) -> Path:
        """The socket of an engine of this host."""
        assert isinstance(self.address, UnixAddress)
        return self.address.path

    @property
    def is_connected(self) -> bool:
        """Whether an engine takes new generations, which a draining engine does not."""
        return self._connected.is_set()

    @property
    def is_running(self) -> bool:
        return self._link is not None

    @property
    def num_generations(self) -> int:
        return 0 if self._link is None else self._link.num_generations

    @property
    def load(self) -> Load | None:
        return None if self._link is None else self._link.load

    @property
    def known(self) -> KnownParts | None:
        """What the engine's prefix cache has; None: there is no engine."""
        return None if self._link is None else self._link.known

    def open(self) -> None:
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name=f"engine-link {self.address}")

    async def close(self) -> None:
        if self._keeper is not None:
            if self._link is not None:
                self._link.leave()
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None

    async def wait_connected(self, timeout_s: float) -> Hello:
        """Return the engine's first message. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._connected.wait()
        assert self.hello is not None
        return self.hello

    def new_id(self) -> int:
        """Return an id that no other generation or ping of this process has. A generation may go
        on with another client."""
        return next(_ids)

    def submit(self, submits: Sequence[Submit]) -> OutputStream:
        """Raises EngineDisconnected if no engine takes new generations."""
        if self._link is None or not self.is_connected:
            raise EngineDisconnected
        return self._link.submit(submits)

    def pool(self, texts: PoolTexts) -> VectorStream:
        """Raises EngineDisconnected if no engine is connected."""
        if self._link is None or not self.is_connected:
            raise EngineDisconnected
        return self._link.pool(texts)

    async def ping(self, timeout_s: float) -> EngineStats:
        """Raises EngineDisconnected, or TimeoutError if the engine hangs."""
        pong = await self._ask(Ping(self.new_id()), timeout_s)
        return cast("Pong", pong).stats

    async def test_pictures(self, timeout_s: float) -> str:
        """Let the engine show the model known pictures. Returns the failure; empty: passed. Raises
        EngineDisconnected or TimeoutError."""
        tested = await self._ask(TestPictures(self.new_id()), timeout_s)
        return cast("PicturesTested", tested).failure

    async def _ask(self, question: Ping | TestPictures, timeout_s: float) -> Pong | PicturesTested:
        if self._link is None:
            raise EngineDisconnected
        async with asyncio.timeout(timeout_s):
            return await self._link.ask(question)

    async def _keep(self) -> None:
        pause_s = _RECONNECT_S
        while True:
            with contextlib.suppress(OSError, Stranger, EngineDisconnected):
                link = await self._connect()
                try:
                    self.hello = await link.hello
                    self._link, pause_s = link, _RECONNECT_S
                    if not link.is_draining:
                        self._connected.set()
                    await link.closed
                finally:
                    self._lose()
                    link.close()
            await asyncio.sleep(pause_s)
            if isinstance(self.address, TlsAddress):
                pause_s = relayed.longer(pause_s)

    async def _connect(self) -> _Link:
        """Raises OSError or `Stranger`."""
        on_draining = self._connected.clear
        match self.address, self.key:
            case UnixAddress(path=path), bytes() as key:
                handshake = Handshake(key, listens=False)
                loop = asyncio.get_running_loop()
                _, link = await loop.create_unix_connection(
                    lambda: _Link(handshake, self._lose, on_draining), str(path)
                )
                return link
            case TlsAddress() as address, key if not isinstance(key, bytes):
                link = _Link(relayed.Attached(address.engine), self._lose, on_draining)
                await relayed.connect(address, key, link, link.leave)
                return link
            case _:
                raise TypeError(self.address)

    def _lose(self) -> None:
        self._link = None
        self._connected.clear()
