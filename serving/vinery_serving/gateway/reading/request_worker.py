"""The worker of one request, and how the request's media get there.

Files that must be fetched are fetched by the web process, under the media rules of the caller. A
server may send them slowly, so the request has no worker meanwhile, and its body is parsed again
afterwards.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Self

from vinery_serving.core.media import InlineSource, MediaPart
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.running.media import refuse_media
from vinery_serving.gateway.workers.pool import Worker, WorkerPool
from vinery_serving.gateway.workers.process import WorkerCrashed
from vinery_serving.gateway.workers.worker import too_large

# Fetches those media of a request that did not come with it. Returns their files by the index of
# the part. Raises `ServingError`, also for media that the caller must not send.
FetchMedia = Callable[[Sequence[MediaPart]], Awaitable[Mapping[int, InlineSource]]]

_KIND: Final = "media"


class RequestWorker:
    """A context manager, which gives the worker back at its end."""

    def __init__(self, pool: WorkerPool, key: Hashable) -> None:
        self._pool = pool
        self._key = key
        self._stack = AsyncExitStack()
        self._worker: Worker | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._worker = None
        await self._stack.__aexit__(*error)

    @property
    def is_held(self) -> bool:
        return self._worker is not None

    @property
    def held(self) -> Worker:
        assert self._worker is not None
        return self._worker

    async def take(self, kind: str) -> Worker:
        """Raises `ServingError` while none is available."""
        self._worker = await self._stack.enter_async_context(self._pool.worker(self._key, kind))
        return self._worker

    async def give_back(self) -> None:
        self._worker = None
        await self._stack.aclose()


async def decode_media(
    worker: RequestWorker,
    media: Sequence[MediaPart],
    engine: Engine,
    fetch: FetchMedia,
    parse: Callable[[], Awaitable[object]],
) -> None:
    """Let the worker have the request with decoded media; `parse` lets it parse the body. Raises
    `ServingError`."""
    refuse_media(media, engine)
    if worker.is_held and not all(isinstance(part.source, InlineSource) for part in media):
        await worker.give_back()
    files = await fetch(media)
    if not worker.is_held:
        await worker.take(_KIND)
        await parse()
    param = worker.held.param
    for index, part in enumerate(media):
        worker.held.param = part.param
        try:
            await worker.held.call("decode_media", engine.entry, index, files.get(index))
        except WorkerCrashed:  # as damaged files end their decoders
            raise too_large(part.param) from None
    worker.held.param = param
