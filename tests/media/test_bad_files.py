"""A corpus of bad files is decoded in real worker processes: each is refused by the name of its
part, or shows what other programs show, and the memory of the workers stays bounded.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from typing import Any

from tests.examples import examples
from tests.media import decoding_jobs
from tests.media.bad_files import BadFile, bad_files, files_of_many_parts, mutated_files
from tests.media.containers import good_pictures
from tests.media.drawing import PARAM, QUADRANTS, assert_shows, frames_of, is_close, seen_quadrants
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import Clip, MediaKind, Picture
from vinery_serving.gateway.workers.pool import WorkerPool, WorkLimits

# The defaults of the settings, but for processor time, which the job limits itself.
LIMITS = WorkLimits(
    num_processes=2, cpu_s=60, wall_s=120, memory_bytes=1024 * 2**20, max_waiting=1000, wait_s=600
)
# The most resident memory of a worker: a picture of 40 megapixels has 160 MB in the decoder.
MOST_BYTES = 512 * 2**20

_KNOWN = json.loads(Path(__file__).with_name("bad_files.json").read_text(encoding="utf-8"))
# Files with harmless damage or none: these show the drawn quadrants.
WHOLE = frozenset(_KNOWN["whole"])
# Valid as far as the decoder looks, without the drawn quadrants: the colour that is shown.
PLAIN = {name: tuple(colour) for name, colour in _KNOWN["plain"].items()}
NAMED = _KNOWN["named"]  # what the refusal of a file names
# A limit of processor time or memory may end the decoding: no header shows the cost, and a slow
# machine reaches the limit earlier.
ENDED = frozenset(
    {
        *("png-a-million-chunks", "jpeg-fill-bytes", "jpeg-2000-scans"),
        *("gif-700000-frames", "mp4-a-million-boxes", "webm-2-million-frames"),
        *("pdf-forms-in-forms", "pdf-many-operators", "pdf-stream-bomb"),
    }
)


@dataclass(frozen=True)
class Outcome:
    file: tuple[str, int, bytes]  # the kind as sent, the size and the digest
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
    return Outcome((file.kind, len(file.data), sha256(file.data).digest()), result, peak_bytes)


@asynccontextmanager
async def _running_pool() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool("tests.media.decoding_jobs", LIMITS)
    pool.load("libraries")
    try:
        yield pool
    finally:
        await pool.stop()


async def _lane(
    pool: WorkerPool, files: Iterator[BadFile], outcomes: dict[str, Outcome], number: int
) -> None:
    for file in files:
        assert file.name not in outcomes
        outcomes[file.name] = await _outcome(pool, file, number)


async def _outcomes(files: Iterable[BadFile]) -> dict[str, Outcome]:
    """Two at a time, as each process of a platform with two cores decodes them."""
    outcomes: dict[str, Outcome] = {}
    remaining = iter(files)
    async with _running_pool() as pool:
        await asyncio.gather(*(_lane(pool, remaining, outcomes, number) for number in (1, 2)))
    return outcomes


def _first_picture(result: Any) -> Picture:
    if isinstance(result, Clip):
        return frames_of(result)[0]
    picture: Picture = result if isinstance(result, Picture) else result[0].picture
    return picture


def _fault(name: str, outcome: Outcome) -> str | None:
    """Return what is wrong about an outcome; None: nothing."""
    result = outcome.result
    if outcome.peak_bytes > MOST_BYTES:
        return f"the worker had {outcome.peak_bytes} bytes"
    if name in WHOLE or name in PLAIN:
        if isinstance(result, InvalidRequest):
            return f"refused: {result.message}"
        seen = seen_quadrants(_first_picture(result))
        expected = QUADRANTS if name in WHOLE else (PLAIN[name],) * 4
        return None if all(map(is_close, seen, expected, repeat(14))) else f"shows {seen}"
    if not isinstance(result, InvalidRequest):
        return f"decoded, and shows {seen_quadrants(_first_picture(result))}"
    is_right = result.status == 400 and result.param == PARAM and result.message.endswith(".")
    is_ended = name in ENDED and not outcome.peak_bytes
    if is_right and (is_ended or NAMED.get(name, "") in result.message):
        return None
    return f"refused for {result.param}: {result.message}"


async def test_bad_files_of_all_formats_are_refused_by_their_part() -> None:
    outcomes = await _outcomes(bad_files())
    assert len(outcomes) >= 120
    assert len({each.file for each in outcomes.values()}) > len(outcomes) - 3
    assert outcomes.keys() >= WHOLE | PLAIN.keys()
    assert max(each.file[1] for each in outcomes.values()) < 20 * 2**20, "too large to be decoded"

    faults = {name: _fault(name, outcome) for name, outcome in outcomes.items()}
    assert {name: fault for name, fault in faults.items() if fault is not None} == {}
    assert {name for name, each in outcomes.items() if not each.peak_bytes} <= ENDED


async def test_a_file_of_many_parts_costs_a_worker_at_most_and_no_neighbour_notices() -> None:
    neighbour = BadFile("good", MediaKind.IMAGE, good_pictures()["png"])
    outcomes: dict[str, Outcome] = {}
    async with _running_pool() as pool:
        hostile = asyncio.ensure_future(_lane(pool, files_of_many_parts(), outcomes, 1))
        while not hostile.done():
            shown = await _outcome(pool, neighbour, 2)
            assert_shows(shown.result)
        await hostile

    assert outcomes.keys() >= NAMED.keys()
    faults = {name: _fault(name, outcome) for name, outcome in outcomes.items()}
    assert {name: fault for name, fault in faults.items() if fault is not None} == {}


async def test_changed_bytes_end_in_no_other_error() -> None:
    files = mutated_files(examples(1500))

    outcomes = await _outcomes(files)

    refused = [each.result for each in outcomes.values() if isinstance(each.result, InvalidRequest)]
    assert {each.param for each in refused} == {PARAM}
    assert len(outcomes) == len(files) > len(refused) > len(files) // 3
