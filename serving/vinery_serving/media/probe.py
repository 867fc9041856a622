"""Decodes a file and reads what a model sees of it, for the tester of rules, in other processes."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import SEEN_PIXELS, Detail, MediaKind
from vinery_serving.media import decoding
from vinery_serving.processes.apart import NoAnswer, run_apart
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder
from vinery_serving.prompting.vision import load_processor

# Only the size is reported, so pixels are scaled down to a few.
_SCALED: Final = 32


@dataclass(frozen=True, slots=True)
class Finding:
    """The contents of a file. Sizes in pixels: of the upright picture, frame or first page."""

    kind: str = ""
    width: int = 0
    height: int = 0
    number: int = 0  # of pictures, frames that a model would see, or pages
    sizes: tuple[tuple[int, int], ...] = ()  # width and height of each page; else of one
    error: str = ""
    seen: str = ""  # what the model sees of it, and the tokens, in words
    unseen: str = ""  # why the model sees nothing


def probe(
    data: bytes,
    max_pixels: int,
    max_frames: int = decoding.DecodeLimits().max_frames,
    seer: Path | None = None,
    seen_pixels: int = 0,
) -> Finding:
    """Decode the file in a process. Blocks for up to 15 s. Raises nothing for a bad file. `seer` is
    the folder of a vision model that is shown at most `seen_pixels`; 0: as many as it takes."""
    limits = decoding.DecodeLimits(
        max_bytes=len(data), max_pixels=max_pixels, max_frames=max_frames
    )
    reads = () if seer is None else (seer,)
    try:
        answer = asyncio.run(run_apart(find, data, limits, seer, seen_pixels, reads=reads))
        return msgspec.json.decode(answer, type=Finding)
    except (NoAnswer, OSError, msgspec.MsgspecError):
        return Finding(error="The file could not be decoded within the limits of time and memory.")


def find(data: bytes, limits: decoding.DecodeLimits, seer: Path | None, seen_pixels: int) -> bytes:
    """Return a `Finding`. Only for a process that may be killed."""
    try:
        found = _decode(data, limits)
        if seer is not None:
            found = replace(found, seen=_sight(seer, seen_pixels, found))
    except InvalidRequest as error:
        found = Finding(error=error.message)
    except UnusableFolder as error:
        found = replace(found, unseen=str(error))
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
    return Finding(kind.value, width, height, number, tuple(sizes))


def _sight(folder: Path, max_pixels: int, found: Finding) -> str:
    """Raises `UnusableFolder` if the model sees nothing."""
    processor = load_processor(ModelFolder.read(folder, has_templates=False))
    if processor is None:
        raise UnusableFolder(f"{folder} has no vision model any more.")
    kind = MediaKind(found.kind)
    if kind is MediaKind.VIDEO and not processor.takes_video:
        raise UnusableFolder("The model takes pictures only, no videos.")
    processor = processor.within(max_pixels)
    sizes = [processor.fit(*each, Detail.AUTO, SEEN_PIXELS[kind]) for each in found.sizes]
    width, height = sizes[0]
    shown = f"{width} x {height} pixels"
    match kind:
        case MediaKind.IMAGE:
            return f"{shown}: {processor.num_tokens(width, height)} tokens"
        case MediaKind.VIDEO:
            num_tokens = processor.num_tokens(width, height, found.number)
            return f"{found.number} frames of {shown}: {num_tokens} tokens"
        case MediaKind.DOCUMENT:
            num_tokens = sum(processor.num_tokens(*each) for each in sizes)
            first = f"{len(sizes)} pages, the first of {shown}"
            return f"{first}: {num_tokens} tokens, and those of their text"
