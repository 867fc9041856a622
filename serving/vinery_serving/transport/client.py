"""The gateway's end of the socket: one connection per engine, many generations on it.

`EngineClient` keeps the connection up while it is open, and connects again within moments of an
engine's start. When a connection breaks, every `OutputStream` on it raises `EngineDisconnected`,
and the stream's owner decides whether to submit again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, assert_never, cast

import msgspec
from msgspec import structs

from vinery_serving.core.prompt_parts import KnownParts, seed
from vinery_serving.transport import messages, relayed
from vinery_serving.transport.handshake import Handshake, Stranger
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

# A request of many long prompts or of pictures is sent in parts of about this size, between which
# messages of other requests are sent.
_PART_BYTES: Final = 64 * 1024
_ids = itertools.count(1)

# A message about one generation. Its `id` is the generation's.
GenerationUpdate = messages.Accepted | messages.TokenOutput | messages.Rejected
_Part = messages.MediaPixels | messages.Submit  # of a large request
_Question = messages.Ping | messages.TestPictures
_Reply = messages.Pong | messages.PicturesTested
UpdateT = TypeVar("UpdateT", bound=GenerationUpdate | messages.TextVectors)


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
        self.rest: Iterator[_Part] | None = None  # what is not sent yet

    async def next(self, timeout_s: float | None = None) -> list[UpdateT]:
        """Return all updates since the last call; wait for the first if there is none. Returns an
        empty list after `timeout_s` without updates. Raises EngineDisconnected."""
        if self.rest is not None:
            await self.send_rest()
        if not self._inbox and self._lost is None:
            await self._wait(timeout_s)
        if self._inbox:
            updates, self._inbox = self._inbox, []
            return updates if len(updates) == 1 else _merge_outputs(updates)
        if self._lost is not None:
            raise self._lost
        return []

    async def send_rest(self) -> None:
        """Send the rest of a large request, before any grant. `next` tells of a lost connection."""
        with contextlib.suppress(EngineDisconnected):
            while self.rest is not None and self._lost is None:
                await self._link.until_writable()
                self.send_part()

    def send_part(self) -> None:
        """Raises EngineDisconnected."""
        rest, self.rest, num_bytes = self.rest, None, 0
        for message in rest or ():
            num_bytes += self._link.send(message)
            if num_bytes >= _PART_BYTES:
                self.rest = rest
                return

    def grant(self, id_: int, num_tokens: int, *, is_last: bool) -> None:
        """Let a generation have `num_tokens` in all, and then pause, or end if `is_last`."""
        if id_ in self._open:
            self._link.send_if_open(messages.Grant(id_, num_tokens, is_last))

    def cancel(self, num_used: Mapping[int, int] | None = None) -> None:
        """Free these requests in the engine; None: all that have not ended. `num_used` has the
        tokens that the client used, by id: the engine may have generated more."""
        self.rest = None
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
VectorStream = _Stream[messages.TextVectors | messages.Rejected]


def _merge_outputs(updates: list[Any]) -> list[Any]:
    """Join the outputs of a generation at the place of the first, for a gateway that is behind."""
    joined: list[Any] = []
    outputs: dict[int, list[messages.TokenOutput]] = {}
    for update in updates:
        if not isinstance(update, messages.TokenOutput):
            joined += map(_merged_output, outputs.values())
            outputs.clear()
            joined.append(update)
        else:
            outputs.setdefault(update.id, []).append(update)
    joined += map(_merged_output, outputs.values())
    return joined


def _merged_output(outputs: Sequence[messages.TokenOutput]) -> messages.TokenOutput:
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
        self._decode = msgspec.msgpack.Decoder(messages.FromEngine).decode
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, _Stream[Any]] = {}  # by the ids of requests that have not ended
        self._answers: dict[int, asyncio.Future[_Reply]] = {}  # by nonce
        self._writable = asyncio.Event()
        self._is_planned_end = False
        self.is_draining = False  # the engine takes no new generations
        self.hello: asyncio.Future[messages.Hello] = loop.create_future()
        self.load: messages.Load | None = None
        self.known = KnownParts()
        self.closed: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, no assertion: uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._handshake.opening)
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        # `_on_lost` comes first: a stream's owner may submit again as soon as the stream is lost.
        self._on_lost()
        self._writable.set()
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
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def until_writable(self) -> None:
        """Let other tasks send, and the engine read what was sent."""
        await asyncio.sleep(0)
        await self._writable.wait()

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
        self.send_if_open(messages.Cancel(id_, num_used))

    def pool(self, texts: messages.PoolTexts) -> VectorStream:
        self.send(texts)
        stream = self._streams[texts.id] = VectorStream(self, (texts.id,))
        return stream

    def submit(self, submits: Sequence[messages.Submit]) -> OutputStream:
        ids = [id_ for submit in submits for id_ in submit.ids]
        stream = OutputStream(self, ids)
        self._streams.update(dict.fromkeys(ids, stream))
        stream.rest = chain.from_iterable(map(_submit_parts, submits))
        stream.send_part()
        return stream

    async def ask(self, question: _Question) -> _Reply:
        """Return the answer, which has the question's nonce. Raises EngineDisconnected."""
        answer: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
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

    def _take(self, message: messages.FromEngine) -> None:
        match message:
            case messages.StepOutputs(outputs=outputs):
                for output in outputs:
                    self._deliver(output, is_end=output.finish is not None)
            case messages.Accepted():
                self._deliver(message, is_end=False)
            case messages.TextVectors(is_last=is_last):
                self._deliver(message, is_end=is_last)
            case messages.Rejected():
                self._deliver(message, is_end=True)
            case messages.Load():
                self.load = message
                self.known.take(message.added, message.dropped)
            case messages.Draining():
                self.is_draining = True
                self._on_draining()
            case messages.Leaving():
                self._is_planned_end = True
            case messages.Pong() | messages.PicturesTested():
                answer = self._answers.get(message.nonce)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case messages.Hello() if not messages.speaks_with(message.protocol_version):
                self.close()
            case messages.Hello():
                self.is_draining = self.is_draining or message.is_draining
                if not self.hello.done():
                    self.hello.set_result(message)
            case _:
                assert_never(message)

    def _deliver(self, update: GenerationUpdate | messages.TextVectors, *, is_end: bool) -> None:
        stream = self._streams.pop(update.id, None) if is_end else self._streams.get(update.id)
        if stream is not None:  # else cancelled meanwhile
            stream.put(update, is_end=is_end)


def _fail(
    future: asyncio.Future[_Reply] | asyncio.Future[messages.Hello], error: Exception
) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # read here, so that asyncio does not warn of an unread exception


def _submit_parts(submit: messages.Submit) -> Iterator[_Part]:
    for media in submit.media:
        for start in range(0, len(media.pixels), _PART_BYTES):
            yield messages.MediaPixels(submit.id, media.pixels[start : start + _PART_BYTES])
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
        self.hello: messages.Hello | None = None

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
    def load(self) -> messages.Load | None:
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

    async def wait_connected(self, timeout_s: float) -> messages.Hello:
        """Return the engine's first message. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._connected.wait()
        assert self.hello is not None
        return self.hello

    def new_id(self) -> int:
        """Return an id that no other generation or ping of this process has. A generation may go
        on with another client."""
        return next(_ids)

    def announce(self) -> None:
        """Let the low tier make room: a request that is not of this tier will be submitted soon."""
        if self._link is not None and self._link.load is not None and self._link.load.has_low_tier:
            self._link.send_if_open(messages.Arriving())

    def submit(self, submits: Sequence[messages.Submit]) -> OutputStream:
        """Raises EngineDisconnected if no engine takes new generations."""
        if self._link is None or not self.is_connected:
            raise EngineDisconnected
        return self._link.submit(submits)

    def pool(self, texts: messages.PoolTexts) -> VectorStream:
        """Raises EngineDisconnected if no engine is connected."""
        if self._link is None or not self.is_connected:
            raise EngineDisconnected
        return self._link.pool(texts)

    async def ping(self, timeout_s: float) -> messages.EngineStats:
        """Raises EngineDisconnected, or TimeoutError if the engine hangs."""
        pong = await self._ask(messages.Ping(self.new_id()), timeout_s)
        return cast("messages.Pong", pong).stats

    async def test_pictures(self, timeout_s: float) -> str:
        """Let the engine show the model known pictures. Returns the failure; empty: passed. Raises
        EngineDisconnected or TimeoutError."""
        tested = await self._ask(messages.TestPictures(self.new_id()), timeout_s)
        return cast("messages.PicturesTested", tested).failure

    async def _ask(self, question: _Question, timeout_s: float) -> _Reply:
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
