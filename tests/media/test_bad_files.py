"""A corpus of bad files is decoded in real worker processes: each is refused by the name of its
part, or shows what other programs show, and the memory of the workers stays bounded.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from itertools import repeat
from typing import Any

import pytest

from tests.examples import examples
from tests.media.bad_files import GROUPS, BadFile, bad_files, mutated_files
from tests.media.drawing import BLACK, PARAM, QUADRANTS, WHITE, frames_of, is_close, seen_quadrants
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import Clip, Picture
from vinery_serving.workers.limits import WorkLimits
from vinery_serving.workers.pool import WorkerPool

# The defaults of the settings, but for processor time, which the job limits itself.
LIMITS = WorkLimits(
    num_processes=2, cpu_s=60, wall_s=120, memory_bytes=1024 * 2**20, max_waiting=1000, wait_s=600
)
# The most resident memory of a worker: a picture of 40 megapixels has 160 MB in the decoder.
MOST_BYTES = 512 * 2**20

# What is damaged in these does not matter, or nothing is: they show the drawn quadrants.
WHOLE = frozenset(
    (
        *("avi-huge", "avi-lying-list", "avif-larger-than-coded", "avif-mdat-empty"),
        *("avif-mdat-huge", "gif-and-html-as-picture", "jpeg-and-pdf-as-picture"),
        *("jpeg-damaged-exif", "jpeg-exif-loop", "jpeg-segment-of-length-0"),
        *("jpeg-with-script-as-picture", "mp4-65535", "mp4-avcC-huge", "mp4-mdia-empty"),
        *("mp4-mdia-huge", "mp4-moov-empty", "mp4-moov-huge", "mp4-no-timescale"),
        *("mp4-stbl-empty", "mp4-stbl-huge", "mp4-stco-huge", "mp4-stco-many", "mp4-trak-huge"),
        *("mp4-zero", "mpo-lying-index", "pdf-a-billion-pages", "pdf-and-zip"),
        *("pdf-negative-count", "pdf-table-of-itself", "png-and-zip-as-picture"),
        *("webm-cut-at-6/8", "webm-cut-at-7/8", "webm-other-type"),
    )
)
# Their decoding is ended by its limit of processor time. No header shows what they cost.
ENDED = frozenset({"pdf-forms-in-forms"})
# Valid as far as the decoder looks, without the drawn quadrants: the colour that is shown.
PLAIN = {
    **dict.fromkeys(
        (
            *("pdf-image-garbage-CCITTFaxDecode", "pdf-image-of-20000", "png-40-megapixels"),
            *("png-data-before-header", "png-more-data-than-rows", "png-more-rows-than-data"),
            *("tiff-directories-in-a-loop", "tiff-exif-in-a-loop"),
        ),
        BLACK,
    ),
    **dict.fromkeys(
        (
            *("pdf-form-of-itself", "pdf-image-garbage-DCTDecode"),
            *("pdf-image-garbage-JBIG2Decode", "pdf-image-garbage-JPXDecode"),
            *("pdf-image-of-100000", "pdf-image-of-2147483647", "pdf-open-brackets"),
            *("pdf-page-of-size-huge", "pdf-page-of-size-words", "pdf-page-of-size-zero"),
        ),
        WHITE,
    ),
    "jpeg-more-rows-than-data": (128, 128, 128),
}
# What the refusal of a file names.
NAMED = {
    "png-400000-texts": "50000 chunks",
    "png-exif-of-2-million-ratios": "50000 values of the TIFF tag 274",
    "apng-20000-frames": "20000 frames",
    "gif-comment-in-bytes": "200000 blocks",
    "gif-bytes-between-blocks": "65536 bytes between its blocks",
    "gif-bytes-between-many-blocks": "65536 bytes between its blocks",
    "gif-a-million-extensions": "200000 blocks",
    "jpeg-4-million-comments": "10000 segments",
    "jpeg-9-million-restarts": "65536 bytes between its segments",
    "jpeg-9000-exif-segments": "16 segments of EXIF data",
    "jpeg-bytes-behind-markers": "65536 bytes between its segments",
    "jpeg-10000-scans": "100 scans",
    "tiff-2-million-strips": "50000 values of the TIFF tag 273",
    "tiff-2-million-ratios": "50000 values of the TIFF tag 282",
    "tiff-big-strips": "50000 values of the TIFF tag 273",
    "webp-100000-frames": "100000 frames",
    "bmp-9-million-runs": "run lengths of more than 1048576 bytes",
    "avif-100000-locations": "65536 bytes in its list `iloc`",
    "avif-100000-items": "65536 bytes in its list `iinf`",
    "mp4-4-million-sizes": "is damaged",
    "mp4-a-million-chunks": "is damaged",
    "webm-9-million-voids": "is damaged",
    "webm-2-million-frames": "more frames than can be read",
    "pdf-900000-objects": "250000 objects",
    "pdf-a-million-streams": "20000 streams",
    "pdf-a-page-of-40-megabytes": "25165824 bytes of drawing",
}


@dataclass(frozen=True)
class Outcome:
    file: tuple[str, int, bytes]  # as what it was sent, its size and its digest
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
            peak_bytes = await worker.call("peak_bytes")
        except InvalidRequest:
            peak_bytes = 0
    return Outcome((file.kind, len(file.data), sha256(file.data).digest()), result, peak_bytes)


async def _outcomes(files: Iterable[BadFile]) -> dict[str, Outcome]:
    """Two at a time, as each process of a platform with two cores decodes them."""
    pool = WorkerPool("tests.media.decoding_jobs", LIMITS)
    pool.load("libraries")
    outcomes: dict[str, Outcome] = {}
    remaining = iter(files)

    async def lane(number: int) -> None:
        for file in remaining:
            assert file.name not in outcomes
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
    if is_right and NAMED.get(name, "") in result.message:
        return None
    return f"refused for {result.param}: {result.message}"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """What became of each bad file, all in the same workers."""
    return asyncio.run(_outcomes(file for group in GROUPS for file in bad_files(group)))


def test_bad_files_are_refused_by_the_name_of_their_part(outcomes: dict[str, Outcome]) -> None:
    faults = {name: _fault(name, outcome) for name, outcome in outcomes.items()}

    assert {name: fault for name, fault in faults.items() if fault is not None} == {}
    assert {name for name, each in outcomes.items() if not each.peak_bytes} <= ENDED


def test_the_corpus_has_hundreds_of_different_files(outcomes: dict[str, Outcome]) -> None:
    assert len(outcomes) >= 400
    assert len({each.file for each in outcomes.values()}) > len(outcomes) - 3
    assert outcomes.keys() >= WHOLE | PLAIN.keys() | NAMED.keys()
    assert max(each.file[1] for each in outcomes.values()) < 20 * 2**20, "too large to be decoded"


async def test_changed_bytes_end_in_no_other_error() -> None:
    files = mutated_files(examples(1500))

    outcomes = await _outcomes(files)

    refused = [each.result for each in outcomes.values() if isinstance(each.result, InvalidRequest)]
    assert {each.param for each in refused} == {PARAM}
    assert len(outcomes) == len(files) > len(refused) > len(files) // 3
