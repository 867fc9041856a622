"""Decodes a file for the tester of rules, in another process."""

import asyncio
from dataclasses import dataclass
from typing import Final

import msgspec

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import MediaKind
from vinery_serving.media import decoding
from vinery_serving.processes.apart import NoAnswer, run_apart

# Only the size is reported, so pixels are scaled down to a few.
_SCALED: Final = 32


@dataclass(frozen=True, slots=True)
class Finding:
    """The contents of a file. Sizes in pixels: of the upright picture, frame or first page."""

    kind: str = ""
    width: int = 0
    height: int = 0
    number: int = 0  # of pictures, frames that a model would see, or pages
    error: str = ""


def probe(
    data: bytes, max_pixels: int, max_frames: int = decoding.DecodeLimits().max_frames
) -> Finding:
    """Decode the file in a process. Blocks for up to 15 s. Raises nothing for a bad file."""
    limits = decoding.DecodeLimits(
        max_bytes=len(data), max_pixels=max_pixels, max_frames=max_frames
    )
    try:
        answer = asyncio.run(run_apart(find, data, limits))
        return msgspec.json.decode(answer, type=Finding)
    except (NoAnswer, OSError, msgspec.MsgspecError):
        return Finding(error="The file could not be decoded within the limits of time and memory.")


def find(data: bytes, limits: decoding.DecodeLimits) -> bytes:
    """Return a `Finding`. Only for a process that may be killed."""
    try:
        found = _decode(data, limits)
    except InvalidRequest as error:
        found = Finding(error=error.message)
    return msgspec.json.encode(found)


def _decode(data: bytes, limits: decoding.DecodeLimits) -> Finding:
    kind = decoding.kind_of(data) or MediaKind.IMAGE
    sizes: list[tuple[int, int]] = []

    def fit(width: int, height: int) -> tuple[int, int]:
        sizes.append((width, height))
        return min(width, _SCALED), min(height, _SCALED)

    number = 1
    match kind:
        case MediaKind.IMAGE:
            decoding.decode_image(data, limits, fit, "file")
        case MediaKind.VIDEO:
            number = decoding.decode_video(data, limits, fit, "file").num_frames
        case MediaKind.DOCUMENT:
            number = len(decoding.decode_document(data, limits, fit, "file"))
    width, height = sizes[0] if sizes else (0, 0)
    return Finding(kind.value, width, height, number)
