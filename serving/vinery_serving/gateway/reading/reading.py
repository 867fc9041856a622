"""Reads the bodies of requests: small ones here, and large ones in a worker process.

A worker also decodes all media, translates schemas and patterns, and runs templates that came with
a request, because these may take long, as may the template or tokenizer of a model beyond its
budget. A large body never becomes objects of this process.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final, Generic, Self

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import InlineSource, MediaPart
from vinery_serving.core.memory import Memory, Needs, Recalled
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.preparing.prepared import Origin
from vinery_serving.gateway.reading import worker_jobs
from vinery_serving.gateway.reading.worker_jobs import Head, PreparedT, Reading
from vinery_serving.gateway.workers.pool import Worker, WorkerCrashed, WorkerPool
from vinery_serving.gateway.workers.worker import too_large
from vinery_serving.prompting.budget import OverBudget

# A body of this size takes less than 5 ms of CPU time from JSON to tokens (measured: 8.5 ms for 8
# KiB of tool arguments with a token for each character, 5.5 ms for 8 KiB of empty input items).
SMALL_BODY_BYTES: Final = 4 * 1024

# Fetches the media that did not come with a request. Returns the files by the index of the part.
# Raises `ServingError`, also for media that the caller must not send.
FetchMedia = Callable[[Sequence[MediaPart]], Awaitable[Mapping[int, InlineSource]]]


# Reads what a request needs of stored responses and conversations. Raises `ServingError`.
Recall = Callable[[Needs], Awaitable[Recalled]]


class RequestReader(Generic[PreparedT]):
    """Reads one request: call `parse`, then `prepare`, within `async with`."""

    def __init__(
        self,
        pool: WorkerPool,
        key: Hashable,
        reading: Reading[PreparedT],
        body: bytes,
        about: tuple[str, str | None, Memory],
    ) -> None:
        """`about`: see `Reading.parse`."""
        self._pool, self._key, self._reading = pool, key, reading
        self._body, self._about = body, about
        self._stack = AsyncExitStack()
        self._worker: Worker | None = None  # that has the request
        self._parsed: Any = None  # of a small body
        self._head = Head(None)

    async def __aenter__(self) -> Self:
        """Raises `ServingError` while no worker is available for a large body."""
        if len(self._body) > SMALL_BODY_BYTES:
            self._worker = await self._take(self._reading.large_work)
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._worker, self._body = None, b""
        await self._stack.__aexit__(*error)

    async def parse(self, recall: Recall) -> Head:
        """Raises `ServingError`."""
        head = await self._parse()
        if head.needs is not None:
            recalled = await recall(head.needs)
            tree, fingerprint, memory = self._about
            self._about = tree, fingerprint, replace(memory, recalled=recalled)
            num_bytes = sum(len(each.payload) for each in recalled.items)
            if self._worker is None and len(self._body) + num_bytes > SMALL_BODY_BYTES:
                self._worker = await self._take(self._reading.large_work)
            head = await self._parse()
        return head

    async def _parse(self) -> Head:
        if self._worker is None:
            self._parsed = self._reading.parse(self._body, *self._about)
            self._head = self._reading.head(self._parsed)
        else:
            await self._parse_in(self._worker)
        return self._head

    async def _parse_in(self, worker: Worker) -> None:
        """A client's template may escape from the sandbox: no other client may use the process."""
        name = self._reading.name
        self._head = await worker.call(worker_jobs.parse, name, *self._about, body=self._body)
        if self._head.has_template:
            worker.use_once()

    async def prepare(self, engine: Engine, fetch: FetchMedia, origin: Origin) -> PreparedT:
        """Raises `ServingError`."""
        worker = self._worker
        if self._head.media:
            worker = await self._with_media(engine, fetch)
        elif worker is None and self._head.may_take_long:
            worker = await self._hand_over(self._reading.long_work)
        if worker is None:
            try:
                return self._reading.prepare(self._parsed, engine, origin)
            except OverBudget:
                worker = await self._hand_over(self._reading.long_work)
        prepared: PreparedT = await worker.call(worker_jobs.prepare_parsed, engine.entry, origin)
        return prepared

    async def _with_media(self, engine: Engine, fetch: FetchMedia) -> Worker:
        """Let a worker decode the media. None is held while files are fetched from slow servers."""
        media = self._head.media
        if engine.assets.vision is None:
            first, name = media[0], engine.entry.name
            raise InvalidRequest(
                f"`{first.param}` holds {first.kind} input, but the model {name} takes text only. "
                "Send text parts, or choose a model with vision.",
                param=first.param,
            )
        is_complete = all(isinstance(part.source, InlineSource) for part in media)
        if self._worker is not None and not is_complete:
            self._worker = None
            await self._stack.aclose()
        files = await fetch(media)
        worker = self._worker or await self._hand_over("media")
        worker.use_once()  # decoders have had bugs by which a file takes over the process
        for index, part in enumerate(media):
            worker.param = part.param
            try:
                await worker.call(worker_jobs.decode_media, engine.entry, index, files.get(index))
            except WorkerCrashed:  # as damaged files end their decoders
                raise too_large(part.param) from None
        worker.param = None
        return worker

    async def _hand_over(self, work: str) -> Worker:
        """Let a worker read the request, which another process has read."""
        worker = await self._take(work)
        await self._parse_in(worker)
        return worker

    async def _take(self, work: str) -> Worker:
        return await self._stack.enter_async_context(self._pool.worker(self._key, work))
