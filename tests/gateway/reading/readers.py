"""Reads bodies as the endpoints do."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from vinery_serving.core.media import InlineSource, MediaPart, UrlSource
from vinery_serving.core.memory import NO_MEMORY, Needs, Recalled
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.preparing.prepared import Origin
from vinery_serving.gateway.reading.reading import SMALL_BODY_BYTES, RequestReader
from vinery_serving.gateway.reading.worker_jobs import READINGS
from vinery_serving.gateway.workers.pool import WorkerPool, WorkLimits

LIMITS = WorkLimits(
    num_processes=2, cpu_s=5, wall_s=60, memory_bytes=1024 * 2**20, max_waiting=9, wait_s=60
)
LARGE = " " * SMALL_BODY_BYTES
ORIGIN = Origin(9, "req", (5, 6))


@contextlib.asynccontextmanager
async def new_pool(limits: WorkLimits = LIMITS) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool("vinery_serving.gateway.reading.worker_jobs", limits)
    yield pool
    await pool.stop()


async def no_files(media: Sequence[MediaPart]) -> Mapping[int, InlineSource]:
    assert not any(isinstance(part.source, UrlSource) for part in media)
    return {}


async def no_memory(needs: Needs) -> Recalled:
    raise AssertionError(needs)


async def read(
    pool: WorkerPool,
    engine: Engine,
    name: str,
    body: bytes,
    fetch: Any = no_files,
    tree: str = "v1",
) -> Any:
    pool.allow([engine.entry.folder])
    about = (tree, "vinery", NO_MEMORY)
    async with RequestReader(pool, 1, READINGS[name], body, about) as reader:
        await reader.parse(no_memory)
        return await reader.prepare(engine, fetch, ORIGIN)
