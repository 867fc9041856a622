"""A corpus of bad files is decoded in real worker processes: each is refused by the name of its
part, or is one that is read all the same, and the memory of the workers stays bounded.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.examples import examples
from tests.media import decoding_jobs
from tests.media.bad_files import BadFile, bad_files, mutated_files
from tests.media.drawing import PARAM
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.gateway.workers.pool import WorkerPool, WorkLimits

# The defaults of the settings, but for processor time, which the job limits itself.
LIMITS = WorkLimits(
    num_processes=2, cpu_s=60, wall_s=120, memory_bytes=1024 * 2**20, max_waiting=1000, wait_s=600
)
# The most resident memory of a worker: a picture of 40 megapixels has 160 MB in the decoder.
MOST_BYTES = 512 * 2**20
# Files with harmless damage or none, and files whose headers alone lie.
READ = frozenset(
    {
        *("jpeg-and-pdf-as-picture", "pdf-a-billion-pages", "pdf-table-of-itself"),
        *("webm-cut-at-3/4", "gif-100000-frames-as-picture", "png-40-megapixels"),
        *("png-more-data-than-rows", "pdf-page-of-size-huge"),
    }
)
NAMED = {  # what the refusal of a file names
    "apng-20000-frames": "20000 frames",
    "webp-100000-frames": "100000 frames",
    "webm-2-million-frames": "more frames than can be read",
}
# A limit of processor time or memory may end the decoding: no header shows the cost, and a slow
# machine reaches the limit earlier.
ENDED = frozenset(
    {
        *("png-a-million-chunks", "jpeg-fill-bytes", "jpeg-2000-scans", "jpeg-9000-exif-segments"),
        *("gif-700000-frames", "mp4-a-million-boxes", *NAMED, "pdf-a-page-of-40-megabytes"),
        *("pdf-forms-in-forms", "pdf-many-operators", "pdf-stream-bomb"),
    }
)


@dataclass(frozen=True)
class Outcome:
    num_bytes: int
    result: Any  # what was decoded, or the error
    peak_bytes: int  # 0: the worker was killed


async def _outcome(pool: WorkerPool, file: BadFile, lane: int) -> Outcome:
    async with pool.worker(lane, "test") as worker:
        worker.param = PARAM
        try:
            result = await worker.call(decoding_jobs.decode, file.kind, PARAM, body=file.data)
        except InvalidRequest as error:
            result = error
        try:
            peak_bytes = await worker.call(decoding_jobs.peak_bytes)
        except InvalidRequest:
            peak_bytes = 0
    return Outcome(len(file.data), result, peak_bytes)


@asynccontextmanager
async def _running_pool() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool("tests.media.decoding_jobs", LIMITS)
    pool.load("libraries")
    try:
        yield pool
    finally:
        await pool.stop()


async def _outcomes(files: Iterable[BadFile]) -> dict[str, Outcome]:
    """Two at a time, as each process of a platform with two cores decodes them."""
    outcomes: dict[str, Outcome] = {}

    async def lane(number: int, remaining: Iterator[BadFile]) -> None:
        for file in remaining:
            assert file.name not in outcomes
            outcomes[file.name] = await _outcome(pool, file, number)

    async with _running_pool() as pool:
        remaining = iter(files)
        await asyncio.gather(*(lane(number, remaining) for number in (1, 2)))
    return outcomes


def _fault(name: str, outcome: Outcome) -> str | None:
    """Return what is wrong about an outcome; None: nothing."""
    result = outcome.result
    if outcome.peak_bytes > MOST_BYTES:
        return f"the worker had {outcome.peak_bytes} bytes"
    if not isinstance(result, InvalidRequest):
        return None if name in READ else "decoded"
    is_right = result.status == 400 and result.param == PARAM and result.message.endswith(".")
    is_ended = name in ENDED and not outcome.peak_bytes
    if is_right and name not in READ and (is_ended or NAMED.get(name, "") in result.message):
        return None
    return f"refused for {result.param}: {result.message}"


async def test_bad_files_of_all_formats_are_refused_by_their_part() -> None:
    outcomes = await _outcomes(bad_files())
    assert len(outcomes) >= 120
    assert outcomes.keys() >= READ | ENDED
    assert max(each.num_bytes for each in outcomes.values()) < 20 * 2**20, "too large to be decoded"
    faults = {name: _fault(name, outcome) for name, outcome in outcomes.items()}
    assert {name: fault for name, fault in faults.items() if fault is not None} == {}
    assert {name for name, each in outcomes.items() if not each.peak_bytes} <= ENDED


async def test_changed_bytes_end_in_no_other_error() -> None:
    files = mutated_files(examples(1500))

    outcomes = await _outcomes(files)

    refused = [each.result for each in outcomes.values() if isinstance(each.result, InvalidRequest)]
    assert {each.param for each in refused} == {PARAM}
    assert len(outcomes) == len(files) > len(refused) > len(files) // 3
