"""A pool of real worker processes with small limits."""

from collections.abc import AsyncIterator

import pytest

from vinery_serving.workers.limits import WorkLimits
from vinery_serving.workers.pool import WorkerPool

LIMITS = WorkLimits(
    num_processes=2, cpu_s=1, wall_s=60, memory_bytes=256 * 2**20, max_waiting=4, wait_s=60
)


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool("tests.workers.jobs_for_tests", LIMITS)
    yield pool
    await pool.stop()
