"""Decodes a file for the tester of rules, in another process."""

import asyncio
from typing import Final

import msgspec

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import MediaKind
from vinery_serving.media import decoding
from vinery_serving.processes.apart import NoAnswer, run_apart

# Only the size is reported, so pixels are scaled down to a few.
_SCALED: Final = 32


def probe(
    data: bytes, max_pixels: int, max_frames: int = decoding.DecodeLimits().max_frames
) -> tuple[bool, str]:
    """Return whether the file can be decoded, and its contents in words or the error. Blocks for up
    to 15 s. Raises nothing for a bad file."""
    limits = decoding.DecodeLimits(
        max_bytes=len(data), max_pixels=max_pixels, max_frames=max_frames
    )
    try:
        return msgspec.json.decode(
            asyncio.run(run_apart(find, data, limits)), type=tuple[bool, str]
        )
    except (NoAnswer, OSError, msgspec.MsgspecError):
        return False, "The file could not be decoded within the limits of time and memory."


def find(data: bytes, limits: decoding.DecodeLimits) -> bytes:
    """Return what `probe` returns. Only for a process that may be killed."""
    try:
        found = True, _decode(data, limits)
    except InvalidRequest as error:
        found = False, error.message
    return msgspec.json.encode(found)


def _decode(data: bytes, limits: decoding.DecodeLimits) -> str:
    sizes: list[tuple[int, int]] = []

    def fit(width: int, height: int) -> tuple[int, int]:
        sizes.append((width, height))
        return min(width, _SCALED), min(height, _SCALED)

    match decoding.kind_of(data):
        case MediaKind.VIDEO:
            num_frames = decoding.decode_video(data, limits, fit, "file").num_frames
            what, rest = "video of", f", {num_frames} frames for a model"
        case MediaKind.DOCUMENT:
            num_pages = len(decoding.decode_document(data, limits, fit, "file"))
            what, rest = f"document of {num_pages} pages, the first of", ""
        case _:
            decoding.decode_image(data, limits, fit, "file")
            what, rest = "picture of", ""
    width, height = sizes[0]
    return f"{what} {width} x {height} pixels{rest}"
