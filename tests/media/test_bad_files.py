"""A corpus of bad files is decoded in real worker processes: each is refused by the name of its
part, or shows what other programs show, and the memory of the workers stays bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pytest

from tests.media.bad_files import GROUPS, BadFile, bad_files, mutated_files
from tests.media.drawing import (
    BLACK,
    PARAM,
    QUADRANTS,
    WHITE,
    frames_of,
    is_close,
    seen_quadrants,
)
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import Clip, Picture
from vinery_serving.workers.limits import WorkLimits
from vinery_serving.workers.pool import WorkerPool

# The defaults of the settings, but for processor time, which the job limits itself.
LIMITS = WorkLimits(
    num_processes=2,
    cpu_s=60,
    wall_s=120,
    memory_bytes=1024 * 2**20,
    max_waiting=1000,
    wait_s=600,
)
# The most resident memory of a worker: a picture of 40 megapixels has 160 MB in the decoder.
MOST_BYTES = 512 * 2**20

# What is damaged in these does not matter, or nothing is: they show the drawn quadrants.
WHOLE = frozenset(
    {
        "avi-huge",
        "avi-lying-list",
        "avif-larger-than-coded",
        "avif-mdat-empty",
        "avif-mdat-huge",
        "gif-and-html-as-picture",
        "jpeg-and-pdf-as-picture",
        "jpeg-damaged-exif",
        "jpeg-exif-loop",
        "jpeg-segment-of-length-0",
        "jpeg-with-script-as-picture",
        "mp4-65535",
        "mp4-avcC-huge",
        "mp4-mdia-empty",
        "mp4-mdia-huge",
        "mp4-moov-empty",
        "mp4-moov-huge",
        "mp4-no-timescale",
        "mp4-stbl-empty",
        "mp4-stbl-huge",
        "mp4-stco-huge",
        "mp4-stco-many",
        "mp4-trak-huge",
        "mp4-zero",
        "mpo-lying-index",
        "pdf-a-billion-pages",
        "pdf-and-zip",
        "pdf-negative-count",
        "pdf-table-of-itself",
        "png-and-zip-as-picture",
        "webm-cut-at-6/8",
        "webm-cut-at-7/8",
        "webm-other-type",
    }
)
# Their decoding is ended by its limit of processor time. No header shows what they cost.
ENDED = frozenset({"pdf-forms-in-forms"})
# Valid as far as the decoder looks, without the drawn quadrants: the colour that is shown.
PLAIN = {
    "pdf-image-garbage-CCITTFaxDecode": BLACK,
    "pdf-image-of-20000": BLACK,
    "png-40-megapixels": BLACK,
    "png-data-before-header": BLACK,
    "png-more-data-than-rows": BLACK,
    "png-more-rows-than-data": BLACK,
    "tiff-directories-in-a-loop": BLACK,
    "tiff-exif-in-a-loop": BLACK,
    "pdf-form-of-itself": WHITE,
    "pdf-image-garbage-DCTDecode": WHITE,
    "pdf-image-garbage-JBIG2Decode": WHITE,
    "pdf-image-garbage-JPXDecode": WHITE,
    "pdf-image-of-100000": WHITE,
    "pdf-image-of-2147483647": WHITE,
    "pdf-open-brackets": WHITE,
    "pdf-page-of-size-huge": WHITE,
    "pdf-page-of-size-words": WHITE,
    "pdf-page-of-size-zero": WHITE,
    "jpeg-more-rows-than-data": (128, 128, 128),
}


@dataclass(frozen=True)
class Outcome:
    result: Any  # what was decoded, or the error
    peak_bytes: int  # 0: the worker was killed


async def _outcome(pool: WorkerPool, file: BadFile, lane: int) -> Outcome:
    async with pool.worker(lane, "test") as worker:
        worker.param = PARAM
        try:
            result = await worker.call("decode", str(file.kind), PARAM, body=file.data)
        except InvalidRequest as error:
            result = error
        try:
            return Outcome(result, await worker.call("peak_bytes"))
        except InvalidRequest:
            return Outcome(result, 0)


async def _outcomes(files: Iterable[BadFile]) -> dict[str, Outcome]:
    """Two at a time, as each process of a platform with two cores decodes them."""
    pool = WorkerPool("tests.media.decoding_jobs", LIMITS)
    pool.load("libraries")
    outcomes: dict[str, Outcome] = {}
    remaining = iter(files)

    async def lane(number: int) -> None:
        for file in remaining:
            outcomes[file.name] = await _outcome(pool, file, number)

    try:
        await asyncio.gather(lane(1), lane(2))
    finally:
        await pool.stop()
    return outcomes


def _first_picture(result: Any) -> Picture:
    if isinstance(result, Clip):
        return frames_of(result)[0]
    picture: Picture = result if isinstance(result, Picture) else result[0].picture
    return picture


def _fault(name: str, outcome: Outcome) -> str | None:
    """What is wrong about what became of a file."""
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
    return None if is_right else f"refused for {result.param}: {result.message}"


@pytest.mark.parametrize("group", GROUPS)
async def test_bad_files_are_refused_by_the_name_of_their_part(group: str) -> None:
    files = bad_files(group)

    outcomes = await _outcomes(files)

    faults = {name: _fault(name, outcome) for name, outcome in outcomes.items()}
    assert len(outcomes) == len(files) > 5
    assert {name: fault for name, fault in faults.items() if fault is not None} == {}
    assert {name for name, each in outcomes.items() if not each.peak_bytes} <= ENDED


async def test_changed_bytes_end_in_no_other_error() -> None:
    files = mutated_files(1500)

    outcomes = await _outcomes(files)

    refused = [each.result for each in outcomes.values() if isinstance(each.result, InvalidRequest)]
    assert {each.param for each in refused} == {PARAM}
    assert len(outcomes) == len(files) > len(refused) > 500


def test_the_corpus_has_hundreds_of_different_files() -> None:
    files = [each for group in GROUPS for each in bad_files(group)]
    names = {each.name for each in files}

    assert len(names) == len(files) >= 400
    assert len({(each.kind, each.data) for each in files}) > len(files) - 3
    assert names >= WHOLE | set(PLAIN)
    assert max(len(each.data) for each in files) < 20 * 2**20, "too large to be decoded at all"
